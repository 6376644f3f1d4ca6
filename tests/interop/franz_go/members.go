package main

import (
	"context"
	"encoding/base64"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

type member struct {
	client *kgo.Client
	done   chan struct{}
}

var (
	membersLock sync.Mutex
	members     = map[string]member{}
)

var balancerByName = map[string]kgo.GroupBalancer{
	"range":              kgo.RangeBalancer(),
	"roundrobin":         kgo.RoundRobinBalancer(),
	"sticky":             kgo.StickyBalancer(),
	"cooperative-sticky": kgo.CooperativeStickyBalancer(),
}

// memberStart joins a group and tells what it is given, what it reads and what it gives up. It
// commits what it read before it gives anything up, so nobody needs to read a record again.
func memberStart(_ context.Context, asked question) (any, error) {
	changed := func(event string, partitions map[string][]int32) {
		listed := append([]int32{}, partitions[asked.Topic]...) // Empty, but never null.
		tell(answer{"event": event, "member": asked.Member, "partitions": listed})
	}
	gone := func(ctx context.Context, client *kgo.Client, lost map[string][]int32) {
		if err := client.CommitUncommittedOffsets(ctx); err != nil {
			tell(answer{"event": "error", "member": asked.Member, "error": nameOf(err)})
		}
		changed("revoked", lost)
	}
	sessionMs := asked.SessionMs
	if sessionMs == 0 {
		sessionMs = 6_000
	}
	options := []kgo.Opt{
		kgo.ConsumerGroup(asked.Group),
		kgo.ConsumeTopics(asked.Topic),
		kgo.SessionTimeout(time.Duration(sessionMs) * time.Millisecond),
		kgo.HeartbeatInterval(200 * time.Millisecond),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, given map[string][]int32) {
			changed("assigned", given)
		}),
		kgo.OnPartitionsRevoked(gone),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, lost map[string][]int32) {
			changed("revoked", lost)
		}),
	}
	if asked.Strategy == "server" {
		options = append(options, kgo.Balancers(kgo.RangeBalancer()), kgo.ServerSideBalancer())
	} else {
		options = append(options, kgo.Balancers(balancerByName[or(asked.Strategy, "range")]))
	}
	if asked.Committed {
		options = append(options, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	client, err := connect(options...)
	if err != nil {
		return nil, err
	}
	one := member{client: client, done: make(chan struct{})}
	membersLock.Lock()
	members[asked.Member] = one
	membersLock.Unlock()
	go one.work(asked.Member)
	return nil, nil
}

func (one member) work(name string) {
	defer close(one.done)
	for {
		fetches := one.client.PollFetches(context.Background())
		if fetches.IsClientClosed() {
			return
		}
		fetches.EachError(func(_ string, _ int32, err error) {
			tell(answer{"event": "error", "member": name, "error": nameOf(err)})
		})
		fetches.EachRecord(func(got *kgo.Record) {
			tell(answer{
				"event": "record", "member": name, "value": string(got.Value),
				"partition": got.Partition, "offset": got.Offset,
			})
		})
		one.client.AllowRebalance()
	}
}

func memberStop(_ context.Context, asked question) (any, error) {
	membersLock.Lock()
	one := members[asked.Member]
	delete(members, asked.Member)
	membersLock.Unlock()
	one.client.CloseAllowingRebalance()
	<-one.done
	return nil, nil
}

func committed(ctx context.Context, asked question) (any, error) {
	admin, err := connectAdmin()
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	found, err := admin.FetchOffsets(ctx, asked.Group)
	if err != nil {
		return nil, err
	}
	all := [][3]any{}
	for _, one := range found.Sorted() {
		if one.Topic == asked.Topic {
			all = append(all, [3]any{one.Partition, one.At, one.Metadata})
		}
	}
	return all, found.Error()
}

func commit(ctx context.Context, asked question) (any, error) {
	admin, err := connectAdmin()
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	wanted := kadm.Offsets{}
	wanted.Add(kadm.Offset{
		Topic: asked.Topic, Partition: asked.Partition, At: asked.Offset, LeaderEpoch: -1, Metadata: asked.Metadata,
	})
	return nil, admin.CommitAllOffsets(ctx, asked.Group, wanted)
}

func or(value, fallback string) string {
	if value == "" {
		return fallback
	}
	return value
}

func bytesOf(value *[]byte) []byte {
	if value == nil {
		return nil
	}
	return *value
}

func decoded(value any) []byte {
	text, present := value.(string)
	if !present {
		return nil
	}
	plain, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		panic(err)
	}
	return plain
}
