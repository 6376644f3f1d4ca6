package main

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type record struct {
	Partition *int32   `json:"partition"`
	Offset    int64    `json:"offset"`
	Key       *[]byte  `json:"key"`
	Value     *[]byte  `json:"value"`
	Headers   [][2]any `json:"headers"`
	Timestamp int64    `json:"timestamp"`
}

var acksByName = map[string]kgo.Acks{"0": kgo.NoAck(), "1": kgo.LeaderAck(), "all": kgo.AllISRAcks()}

var codecByName = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

// produce writes the records and returns partition and offset of each. Acks "all" is idempotent,
// as this client is by default.
func produce(ctx context.Context, asked question) (any, error) {
	options := []kgo.Opt{
		kgo.ProducerBatchCompression(codecByName[or(asked.Codec, "none")]),
		kgo.RequiredAcks(acksByName[or(asked.Acks, "all")]),
		kgo.RecordPartitioner(choosing()),
		kgo.ProducerBatchMaxBytes(8 << 20),
		kgo.UnknownTopicRetries(3),
		kgo.ProducerLinger(5 * time.Millisecond),
	}
	if or(asked.Acks, "all") != "all" {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	if asked.Create {
		options = append(options, kgo.AllowAutoTopicCreation())
	}
	client, err := connect(options...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	results := client.ProduceSync(ctx, made(asked)...)
	places := make([][2]int64, 0, len(results))
	for _, one := range results {
		places = append(places, [2]int64{int64(one.Record.Partition), one.Record.Offset})
	}
	return places, results.FirstErr()
}

// read returns `count` records of one partition from an offset or a time on.
func read(ctx context.Context, asked question) (any, error) {
	start := kgo.NewOffset().At(asked.Offset)
	if asked.TimeMs != nil {
		start = kgo.NewOffset().AfterMilli(*asked.TimeMs)
	}
	options := []kgo.Opt{
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{asked.Topic: {asked.Partition: start}}),
	}
	if asked.Committed {
		options = append(options, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	client, err := connect(options...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	found := []record{}
	for len(found) < asked.Count {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, fmt.Errorf("%d of %d records came: %w", len(found), asked.Count, err)
		}
		fetches.EachRecord(func(one *kgo.Record) { found = append(found, seen(one)) })
	}
	return found, nil
}

// choosing keeps a partition that was asked for and hashes the key, as Java does, where none was.
func choosing() kgo.Partitioner {
	byKey := kgo.StickyKeyPartitioner(nil)
	return kgo.BasicConsistentPartitioner(func(topic string) func(*kgo.Record, int) int {
		hashed := byKey.ForTopic(topic)
		return func(one *kgo.Record, count int) int {
			if one.Partition >= 0 {
				return int(one.Partition)
			}
			return hashed.Partition(one, count)
		}
	})
}

func made(asked question) []*kgo.Record {
	var records []*kgo.Record
	for _, one := range asked.Records {
		new := &kgo.Record{Topic: asked.Topic, Partition: -1, Key: bytesOf(one.Key), Value: bytesOf(one.Value)}
		if one.Partition != nil {
			new.Partition = *one.Partition
		}
		if one.Timestamp > 0 {
			new.Timestamp = time.UnixMilli(one.Timestamp)
		}
		for _, pair := range one.Headers {
			new.Headers = append(new.Headers, kgo.RecordHeader{Key: pair[0].(string), Value: decoded(pair[1])})
		}
		records = append(records, new)
	}
	return records
}

func seen(one *kgo.Record) record {
	found := record{
		Partition: &one.Partition,
		Offset:    one.Offset,
		Timestamp: one.Timestamp.UnixMilli(),
		Headers:   [][2]any{},
	}
	if one.Key != nil {
		found.Key = &one.Key
	}
	if one.Value != nil {
		found.Value = &one.Value
	}
	for _, pair := range one.Headers {
		found.Headers = append(found.Headers, [2]any{pair.Key, pair.Value})
	}
	return found
}
