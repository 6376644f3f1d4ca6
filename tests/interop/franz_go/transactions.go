package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	producersLock sync.Mutex
	producers     = map[string]*kgo.Client{}
)

func producerOf(asked question) *kgo.Client {
	producersLock.Lock()
	defer producersLock.Unlock()
	return producers[asked.Member]
}

// transactionOpen makes a producer and gets its id now, not with the first record.
func transactionOpen(ctx context.Context, asked question) (any, error) {
	timeoutMs := asked.TimeoutMs
	if timeoutMs == 0 {
		timeoutMs = 30_000
	}
	client, err := connect(
		kgo.TransactionalID(asked.TransactionalID),
		kgo.TransactionTimeout(time.Duration(timeoutMs)*time.Millisecond),
		kgo.RecordPartitioner(choosing()),
		kgo.AllowAutoTopicCreation(),
	)
	if err != nil {
		return nil, err
	}
	if _, _, err := client.ProducerID(ctx); err != nil {
		client.Close()
		return nil, err
	}
	producersLock.Lock()
	producers[asked.Member] = client
	producersLock.Unlock()
	return nil, nil
}

func transactionBegin(_ context.Context, asked question) (any, error) {
	return nil, producerOf(asked).BeginTransaction()
}

func transactionSend(ctx context.Context, asked question) (any, error) {
	return nil, producerOf(asked).ProduceSync(ctx, made(asked)...).FirstErr()
}

func transactionCommit(ctx context.Context, asked question) (any, error) {
	return nil, producerOf(asked).EndTransaction(ctx, kgo.TryCommit)
}

func transactionAbort(ctx context.Context, asked question) (any, error) {
	return nil, producerOf(asked).EndTransaction(ctx, kgo.TryAbort)
}

// relay reads `count` records in a group and writes them on in one transaction with their offsets;
// it ends the transaction the way `committed` says.
func relay(ctx context.Context, asked question) (any, error) {
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(address),
		kgo.MetadataMinAge(50*time.Millisecond),
		kgo.FetchMaxWait(100*time.Millisecond),
		kgo.AllowAutoTopicCreation(),
		kgo.TransactionalID(asked.TransactionalID),
		kgo.TransactionTimeout(30*time.Second),
		kgo.ConsumerGroup(asked.Group),
		kgo.ConsumeTopics(asked.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
		kgo.SessionTimeout(6*time.Second),
		kgo.HeartbeatInterval(200*time.Millisecond),
	)
	if err != nil {
		return nil, err
	}
	defer session.Close()
	if err := session.Begin(); err != nil {
		return nil, err
	}
	for left := asked.Count; left > 0; {
		fetches := session.PollRecords(ctx, left)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		var passed []*kgo.Record
		fetches.EachRecord(func(one *kgo.Record) {
			passed = append(passed, &kgo.Record{Topic: asked.Target, Key: one.Key, Value: one.Value})
		})
		left -= len(passed)
		if err := session.ProduceSync(ctx, passed...).FirstErr(); err != nil {
			return nil, err
		}
	}
	ended, err := session.End(ctx, kgo.TransactionEndTry(asked.Committed))
	if err == nil && ended != asked.Committed {
		err = fmt.Errorf("the transaction ended with committed=%v", ended)
	}
	return nil, err
}
