// Package dynamo keeps items in a DynamoDB table.
//
// Every method is one call of the DynamoDB API unless its comment says otherwise. The package adds to the SDK the
// translation of items and templates, and a rule for failures. With any retryer of the client, it tries a write
// again only where the failure proves that nothing was written.
package dynamo

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/store/dynamo/wire"
)

// A Client makes the calls of the DynamoDB API that a [Store] needs. A *dynamodb.Client is one.
type Client interface {
	GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error)
	BatchGetItem(context.Context, *dynamodb.BatchGetItemInput, ...func(*dynamodb.Options)) (*dynamodb.BatchGetItemOutput, error)
	Query(context.Context, *dynamodb.QueryInput, ...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error)
	UpdateItem(context.Context, *dynamodb.UpdateItemInput, ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error)
	PutItem(context.Context, *dynamodb.PutItemInput, ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error)
	DeleteItem(context.Context, *dynamodb.DeleteItemInput, ...func(*dynamodb.Options)) (*dynamodb.DeleteItemOutput, error)
	TransactWriteItems(context.Context, *dynamodb.TransactWriteItemsInput, ...func(*dynamodb.Options)) (*dynamodb.TransactWriteItemsOutput, error)
	BatchWriteItem(context.Context, *dynamodb.BatchWriteItemInput, ...func(*dynamodb.Options)) (*dynamodb.BatchWriteItemOutput, error)
	CreateTable(context.Context, *dynamodb.CreateTableInput, ...func(*dynamodb.Options)) (*dynamodb.CreateTableOutput, error)
	DescribeTable(context.Context, *dynamodb.DescribeTableInput, ...func(*dynamodb.Options)) (*dynamodb.DescribeTableOutput, error)
	UpdateTable(context.Context, *dynamodb.UpdateTableInput, ...func(*dynamodb.Options)) (*dynamodb.UpdateTableOutput, error)
	DescribeTimeToLive(context.Context, *dynamodb.DescribeTimeToLiveInput, ...func(*dynamodb.Options)) (*dynamodb.DescribeTimeToLiveOutput, error)
	UpdateTimeToLive(context.Context, *dynamodb.UpdateTimeToLiveInput, ...func(*dynamodb.Options)) (*dynamodb.UpdateTimeToLiveOutput, error)
}

// A Store is a [store.Store] on one DynamoDB table. Its own methods read and write items. It is safe for concurrent use.
type Store struct {
	*handle
	setup
	stream
	own      ownPath
	identity func(context.Context) (string, error) // of the caller; nil if it is not known
	sdkOnly  bool
	timeout  time.Duration // of a call, where the caller does not say it; 0 for the default
	release  func()        // of what Open opened
}

var (
	_ store.Store    = (*Store)(nil)
	_ store.Streamer = (*Store)(nil)
	_ store.Clock    = (*Store)(nil)
)

// An Option changes how a [Store] calls DynamoDB.
type Option func(*Store)

// ConsumedCapacity requests the consumed capacity units, of the table and of each index, in every reply, for a client that looks at
// replies. By default no reply has them.
func ConsumedCapacity() Option {
	return func(s *Store) { s.capacity = types.ReturnConsumedCapacityIndexes }
}

// WithoutWire leaves all calls to the SDK. By default the store itself makes the calls of the hot path if the settings of the client
// allow it: see [Store.Path].
func WithoutWire() Option { return func(s *Store) { s.sdkOnly = true } }

// Logger sets the logger of who makes the calls of the hot path, at the debug level. By default there is none.
func Logger(l *slog.Logger) Option { return func(s *Store) { s.logger = l } }

// New returns a store on the table called name, with the keys and indexes of schema. [Store.Setup] creates the
// table with the input that create returns. New makes no call. Closing the client is left to the caller.
func New(client Client, name string, schema store.Table, create func(table string) *dynamodb.CreateTableInput, options ...Option) *Store {
	h := &handle{client: client, name: name, schema: schema, retries: newRetries()}
	s := &Store{
		handle: h,
		setup:  setup{h, create, slog.New(slog.DiscardHandler)},
		stream: stream{handle: h, interval: readInterval},
		own:    ownPath{handle: h},
	}
	for _, option := range options {
		option(s)
	}
	if sdk, ok := client.(*dynamodb.Client); ok && sdk != nil && !s.sdkOnly { // a wrapper may do more
		s.own.Path = wire.New(sdk, name, s.logger)
	}
	return s
}

// Open is [New] on clients of its own, the first made by [NewClient], and both released by [Store.Close].
func Open(ctx context.Context, config ClientConfig, name string, schema store.Table, create func(table string) *dynamodb.CreateTableInput, options ...Option) (*Store, error) {
	cfg, err := config.load(ctx)
	if err != nil {
		return nil, err
	}
	client, err := config.client(ctx, cfg)
	if err != nil {
		return nil, err
	}
	streams := config.streams(cfg, client.Options().HTTPClient)
	own := []Option{Streams(streams)}
	if config.Logger != nil {
		own = append(own, Logger(config.Logger))
	}
	s := New(client, name, schema, create, append(own, options...)...)
	s.timeout = config.CallTimeout
	if !isLoopback(config.Endpoint) { // an engine, which knows no identities
		s.identity = callerIdentity(cfg)
	}
	s.release = s.Redial
	return s, nil
}

// CallTimeout returns how long a call may take where the caller does not say it, 0 for the default.
func (s *Store) CallTimeout() time.Duration { return s.timeout }

// Close closes the idle connections of a store made by [Open], and leaves a client given to [New] as it is. Calls that
// are under way finish. Later calls fail with [store.ErrClosed].
func (s *Store) Close() error {
	if !s.closed.Swap(true) && s.release != nil {
		s.release()
	}
	return nil
}

// Redial implements [store.Redialer] for clients of [NewClient], and for others on an [http.Client]. The client that the SDK makes if none
// is given closes no connections.
func (s *Store) Redial() {
	if c, ok := s.client.(interface{ Options() dynamodb.Options }); ok {
		if idle, ok := c.Options().HTTPClient.(interface{ CloseIdleConnections() }); ok {
			idle.CloseIdleConnections()
		}
	}
}

// Partitioned returns true: a partition key takes about 1,000 writes per second.
func (s *Store) Partitioned() bool { return true }

// Ping reads a key that no item has: one GetItem, half a read unit. Unlike DescribeTable it asks for a permission that
// the limiter needs anyway. The servers of all other calls answer it. The key is one of many, since the probes of ten
// thousand processes would be more than DynamoDB serves one key.
func (s *Store) Ping(ctx context.Context) error {
	_, err := s.get(ctx, pingKey(rand.IntN(pingKeys)), false)
	return err
}

const pingKeys = 64

func pingKey(n int) store.Key { return store.Key{PK: "_/PING#" + strconv.Itoa(n), SK: "#"} }
