package main

import (
	"context"
	"sort"

	"github.com/twmb/franz-go/pkg/kadm"
)

func administered(work func(*kadm.Client) (any, error)) (any, error) {
	admin, err := connectAdmin()
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	return work(admin)
}

func topics(ctx context.Context, _ question) (any, error) {
	return administered(func(admin *kadm.Client) (any, error) {
		found, err := admin.ListTopics(ctx)
		return found.Names(), err
	})
}

func cluster(ctx context.Context, _ question) (any, error) {
	return administered(func(admin *kadm.Client) (any, error) {
		found, err := admin.BrokerMetadata(ctx)
		nodes := [][3]any{}
		for _, one := range found.Brokers {
			nodes = append(nodes, [3]any{one.NodeID, one.Host, one.Port})
		}
		return answer{"nodes": nodes, "controller": found.Controller, "cluster_id": found.Cluster}, err
	})
}

func createTopic(ctx context.Context, asked question) (any, error) {
	return administered(func(admin *kadm.Client) (any, error) {
		wanted := map[string]*string{}
		for name, value := range asked.Settings {
			wanted[name] = &value
		}
		_, err := admin.CreateTopic(ctx, int32(asked.Partitions), max(asked.Replicas, 1), wanted, asked.Topic)
		return nil, err
	})
}

func deleteTopic(ctx context.Context, asked question) (any, error) {
	return administered(func(admin *kadm.Client) (any, error) {
		_, err := admin.DeleteTopic(ctx, asked.Topic)
		return nil, err
	})
}

func growTopic(ctx context.Context, asked question) (any, error) {
	return administered(func(admin *kadm.Client) (any, error) {
		found, err := admin.UpdatePartitions(ctx, asked.Partitions, asked.Topic)
		if err != nil {
			return nil, err
		}
		return nil, found.Error()
	})
}

func partitionCount(ctx context.Context, asked question) (any, error) {
	return administered(func(admin *kadm.Client) (any, error) {
		found, err := admin.ListTopics(ctx, asked.Topic)
		if err != nil {
			return nil, err
		}
		return len(found[asked.Topic].Partitions), found.Error()
	})
}

func offsets(ctx context.Context, asked question) (any, error) {
	return administered(func(admin *kadm.Client) (any, error) {
		first, err := admin.ListStartOffsets(ctx, asked.Topic)
		if err != nil {
			return nil, err
		}
		end, err := admin.ListEndOffsets(ctx, asked.Topic)
		at := asked.Partition
		return []int64{first[asked.Topic][at].Offset, end[asked.Topic][at].Offset}, err
	})
}

func committedEnd(ctx context.Context, asked question) (any, error) {
	return administered(func(admin *kadm.Client) (any, error) {
		found, err := admin.ListCommittedOffsets(ctx, asked.Topic)
		return found[asked.Topic][asked.Partition].Offset, err
	})
}

func maxTimestamp(ctx context.Context, asked question) (any, error) {
	return administered(func(admin *kadm.Client) (any, error) {
		found, err := admin.ListMaxTimestampOffsets(ctx, asked.Topic)
		one := found[asked.Topic][asked.Partition]
		return []int64{one.Offset, one.Timestamp}, err
	})
}

func offsetAt(ctx context.Context, asked question) (any, error) {
	return administered(func(admin *kadm.Client) (any, error) {
		found, err := admin.ListOffsetsAfterMilli(ctx, *asked.TimeMs, asked.Topic)
		return found[asked.Topic][asked.Partition].Offset, err
	})
}

func deleteRecords(ctx context.Context, asked question) (any, error) {
	return administered(func(admin *kadm.Client) (any, error) {
		wanted := kadm.Offsets{}
		wanted.Add(kadm.Offset{Topic: asked.Topic, Partition: asked.Partition, At: asked.Offset})
		found, err := admin.DeleteRecords(ctx, wanted)
		if err != nil {
			return nil, err
		}
		return nil, found.Error()
	})
}

func settings(ctx context.Context, asked question) (any, error) {
	return administered(func(admin *kadm.Client) (any, error) {
		found, err := admin.DescribeTopicConfigs(ctx, asked.Topic)
		if err != nil {
			return nil, err
		}
		values := map[string]*string{}
		for _, one := range found[0].Configs {
			values[one.Key] = one.Value
		}
		return values, found[0].Err
	})
}

func alter(ctx context.Context, asked question) (any, error) {
	return administered(func(admin *kadm.Client) (any, error) {
		var changes []kadm.AlterConfig
		for name, value := range asked.Settings {
			changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: &value})
		}
		found, err := admin.AlterTopicConfigs(ctx, changes, asked.Topic)
		if err != nil {
			return nil, err
		}
		return nil, found[0].Err
	})
}

func groups(ctx context.Context, _ question) (any, error) {
	return administered(func(admin *kadm.Client) (any, error) {
		found, err := admin.ListGroups(ctx)
		return found.Groups(), err
	})
}

func group(ctx context.Context, asked question) (any, error) {
	return administered(func(admin *kadm.Client) (any, error) {
		found, err := admin.DescribeGroups(ctx, asked.Group)
		if err != nil {
			return nil, err
		}
		one := found[asked.Group]
		owned := []int32{}
		for _, each := range one.Members {
			if given, ok := each.Assigned.AsConsumer(); ok {
				for _, of := range given.Topics {
					owned = append(owned, of.Partitions...)
				}
			}
		}
		sort.Slice(owned, func(i, j int) bool { return owned[i] < owned[j] })
		return answer{"state": one.State, "members": len(one.Members), "partitions": owned}, one.Err
	})
}

func describeServerGroup(ctx context.Context, asked question) (any, error) {
	return administered(func(admin *kadm.Client) (any, error) {
		found, err := admin.DescribeConsumerGroups(ctx, asked.Group)
		if err != nil {
			return nil, err
		}
		one := found[asked.Group]
		owned := []int32{}
		for _, each := range one.Members {
			for partition := range each.Assignment[asked.Topic] {
				owned = append(owned, partition)
			}
		}
		sort.Slice(owned, func(i, j int) bool { return owned[i] < owned[j] })
		return answer{"state": one.State, "members": len(one.Members), "partitions": owned}, one.Err
	})
}

func deleteGroup(ctx context.Context, asked question) (any, error) {
	return administered(func(admin *kadm.Client) (any, error) {
		_, err := admin.DeleteGroup(ctx, asked.Group)
		return nil, err
	})
}

func deleteGroupOffsets(ctx context.Context, asked question) (any, error) {
	return administered(func(admin *kadm.Client) (any, error) {
		wanted := kadm.TopicsSet{}
		wanted.Add(asked.Topic, asked.Partition)
		found, err := admin.DeleteOffsets(ctx, asked.Group, wanted)
		if err != nil {
			return nil, err
		}
		return nil, found.Error()
	})
}

func lag(ctx context.Context, asked question) (any, error) {
	return administered(func(admin *kadm.Client) (any, error) {
		found, err := admin.Lag(ctx, asked.Group)
		if err != nil {
			return nil, err
		}
		return found[asked.Group].Lag[asked.Topic][asked.Partition].Lag, found.Error()
	})
}

func logBytes(ctx context.Context, asked question) (any, error) {
	return administered(func(admin *kadm.Client) (any, error) {
		wanted := kadm.TopicsSet{}
		wanted.Add(asked.Topic, asked.Partition)
		found, err := admin.DescribeAllLogDirs(ctx, wanted)
		if err != nil {
			return nil, err
		}
		total := int64(0)
		for _, one := range found.Sorted() {
			if one.Err != nil {
				return nil, one.Err
			}
			total += one.Size()
		}
		return total, nil
	})
}

func electLeaders(ctx context.Context, asked question) (any, error) {
	return administered(func(admin *kadm.Client) (any, error) {
		wanted := kadm.TopicsSet{}
		wanted.Add(asked.Topic, asked.Partition)
		found, err := admin.ElectLeaders(ctx, kadm.ElectPreferredReplica, wanted)
		if err != nil {
			return nil, err
		}
		return nil, found[asked.Topic][asked.Partition].Err
	})
}

func listTransactions(ctx context.Context, _ question) (any, error) {
	return administered(func(admin *kadm.Client) (any, error) {
		found, err := admin.ListTransactions(ctx, nil, nil)
		states := map[string]string{}
		for _, one := range found.Sorted() {
			states[one.TxnID] = one.State
		}
		return states, err
	})
}

func describeTransaction(ctx context.Context, asked question) (any, error) {
	return administered(func(admin *kadm.Client) (any, error) {
		found, err := admin.DescribeTransactions(ctx, asked.TransactionalID)
		if err != nil {
			return nil, err
		}
		one := found[asked.TransactionalID]
		return answer{"state": one.State, "topics": one.Topics.Topics()}, one.Err
	})
}

func describeProducers(ctx context.Context, asked question) (any, error) {
	return administered(func(admin *kadm.Client) (any, error) {
		wanted := kadm.TopicsSet{}
		wanted.Add(asked.Topic, asked.Partition)
		found, err := admin.DescribeProducers(ctx, wanted)
		if err != nil {
			return nil, err
		}
		return len(found.SortedProducers()), nil
	})
}
