// A franz-go client that the tests ask in JSON lines; see tests/interop/programs/process.py.
//
// Every question runs in its own goroutine, so that members of a group work on while others are asked.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const callSecondsMax = 30

type question struct {
	ID              int               `json:"id"`
	Op              string            `json:"op"`
	Topic           string            `json:"topic"`
	Target          string            `json:"target"`
	Partition       int32             `json:"partition"`
	Partitions      int               `json:"partitions"`
	Replicas        int16             `json:"replicas"`
	Offset          int64             `json:"offset"`
	TimeMs          *int64            `json:"time_ms"`
	Count           int               `json:"count"`
	Committed       bool              `json:"committed"`
	Acks            string            `json:"acks"`
	Codec           string            `json:"codec"`
	Records         []record          `json:"records"`
	Member          string            `json:"member"`
	Group           string            `json:"group"`
	Strategy        string            `json:"strategy"`
	SessionMs       int               `json:"session_ms"`
	Metadata        string            `json:"metadata"`
	TransactionalID string            `json:"transactional_id"`
	TimeoutMs       int               `json:"timeout_ms"`
	Create          bool              `json:"create"`
	Settings        map[string]string `json:"settings"`
}

type answer map[string]any

var (
	address string
	output  sync.Mutex
	encoder = json.NewEncoder(os.Stdout)
)

var operations = map[string]func(context.Context, question) (any, error){
	"produce":               produce,
	"read":                  read,
	"member_start":          memberStart,
	"member_stop":           memberStop,
	"committed":             committed,
	"commit":                commit,
	"transaction_open":      transactionOpen,
	"transaction_begin":     transactionBegin,
	"transaction_send":      transactionSend,
	"transaction_commit":    transactionCommit,
	"transaction_abort":     transactionAbort,
	"relay":                 relay,
	"topics":                topics,
	"cluster":               cluster,
	"create_topic":          createTopic,
	"delete_topic":          deleteTopic,
	"grow_topic":            growTopic,
	"partition_count":       partitionCount,
	"offsets":               offsets,
	"offset_at":             offsetAt,
	"delete_records":        deleteRecords,
	"settings":              settings,
	"alter":                 alter,
	"groups":                groups,
	"group":                 group,
	"delete_group":          deleteGroup,
	"delete_group_offsets":  deleteGroupOffsets,
	"lag":                   lag,
	"log_bytes":             logBytes,
	"max_timestamp":         maxTimestamp,
	"elect_leaders":         electLeaders,
	"list_transactions":     listTransactions,
	"describe_transaction":  describeTransaction,
	"describe_producers":    describeProducers,
	"describe_server_group": describeServerGroup,
	"committed_end":         committedEnd,
}

func main() {
	address = os.Args[1]
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var asked question
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			panic(err)
		}
		go reply(asked)
	}
}

func reply(asked question) {
	operation, known := operations[asked.Op]
	if !known {
		tell(answer{"id": asked.ID, "error": "UNKNOWN_OPERATION", "message": asked.Op})
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), callSecondsMax*time.Second)
	defer cancel()
	result, err := operation(ctx, asked)
	if err != nil {
		tell(answer{"id": asked.ID, "error": nameOf(err), "message": err.Error()})
		return
	}
	tell(answer{"id": asked.ID, "result": result})
}

func tell(line answer) {
	output.Lock()
	defer output.Unlock()
	if err := encoder.Encode(line); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

// nameOf is Kafka's name of an error, where it has one.
func nameOf(err error) string {
	var known *kerr.Error
	if errors.As(err, &known) {
		return known.Message
	}
	return "CLIENT_ERROR"
}

func connect(options ...kgo.Opt) (*kgo.Client, error) {
	common := []kgo.Opt{
		kgo.SeedBrokers(address),
		kgo.MetadataMinAge(50 * time.Millisecond),
		kgo.FetchMaxWait(100 * time.Millisecond),
		kgo.WithLogger(kgo.BasicLogger(os.Stderr, kgo.LogLevelInfo, nil)),
	}
	login, err := secured()
	if err != nil {
		return nil, err
	}
	return kgo.NewClient(append(append(common, login...), options...)...)
}

func connectAdmin() (*kadm.Client, error) {
	client, err := connect()
	if err != nil {
		return nil, err
	}
	return kadm.NewClient(client), nil
}
