// Package dynamo links the DynamoDB store, so that [zlimit.Open] takes "dynamodb:TABLE". A program that opens its store by
// such a name imports the package for its effect, in one file:
//
//	import _ "github.com/zlimit/zlimit-go/zlimit/dynamo"
//
// A program with a client of its own passes the store that [New] returns to [zlimit.New].
//
// The package is apart from zlimit, so that a program with its limits in a file or in memory carries no AWS SDK.
//
// [zlimit.New]: https://pkg.go.dev/github.com/zlimit/zlimit-go/zlimit#New
// [zlimit.Open]: https://pkg.go.dev/github.com/zlimit/zlimit-go/zlimit#Open
package dynamo

import (
	"context"

	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/store/dynamo"
)

func init() {
	store.OpenTable = func(ctx context.Context, c store.TableConfig, table string, schema store.Table) (store.Store, error) {
		return dynamo.Open(ctx, dynamo.ClientConfig(c), table, schema, CreateTableInput)
	}
}

// A Client is the part of the AWS SDK's DynamoDB client that a store calls. Every [*dynamodb.Client] is one.
//
// [*dynamodb.Client]: https://pkg.go.dev/github.com/aws/aws-sdk-go-v2/service/dynamodb#Client
type Client = dynamo.Client

// A StreamsClient is the part of the AWS SDK's client of DynamoDB Streams that reads the changes of a table.
// Every [*dynamodbstreams.Client] is one.
//
// [*dynamodbstreams.Client]: https://pkg.go.dev/github.com/aws/aws-sdk-go-v2/service/dynamodbstreams#Client
type StreamsClient = dynamo.StreamsClient

// An Option changes a store that [New] makes.
type Option = dynamo.Option

// WithStreams gives a store the client that an aggregator reads the changes of the table with. By default it has none.
// A store that is opened by a data source name makes its own.
func WithStreams(client StreamsClient) Option { return dynamo.Streams(client) }

// WithoutWirePath leaves every call of a store to the AWS SDK. By default a store makes the frequent calls itself
// (GetItem, BatchGetItem, PutItem, UpdateItem), which takes a fraction of the SDK's time. It makes them with the
// credentials, the endpoint, the headers and the HTTP client of the client that it was made with. A client with
// middleware, interceptors or a tracer makes all calls anyway. So does a type that is not [*dynamodb.Client] itself.
//
// [*dynamodb.Client]: https://pkg.go.dev/github.com/aws/aws-sdk-go-v2/service/dynamodb#Client
func WithoutWirePath() Option { return dynamo.WithoutWire() }

// New returns a store on a DynamoDB table. The store brings its own retryer for the calls that it makes. It tries
// again only after errors that prove the absence of a write.
func New(client Client, table string, opts ...Option) store.Handle {
	if client == nil {
		return store.Handle{} // which zlimit.New refuses
	}
	return store.NewHandle(dynamo.New(client, table, layout.Table, CreateTableInput, opts...), false)
}
