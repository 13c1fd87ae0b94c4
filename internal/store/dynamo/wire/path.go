// Package wire makes calls of the DynamoDB API in the place of an SDK client, in a fraction of its time. It writes the
// body of a request itself, signs it, sends it by the client's HTTP client, and reads the reply.
//
// All else is the SDK's. Endpoint, headers and signing scope come from a request that the client builds once.
// Credentials come from the client's provider at each attempt. The SDK's deserializer reads errors, and every reply
// that is not plain. A client that does more, such as by middleware, keeps its calls.
package wire

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
)

// ErrUnused says that a call was not made: the SDK is to make it.
var ErrUnused = errors.New("wire: the call is left to the SDK")

// A Path makes calls for one table. It is safe for concurrent use. The nil Path makes none.
type Path struct {
	Images Habit // of the items that updates return

	client  *dynamodb.Client
	options dynamodb.Options
	table   string
	lambda  bool // where each call carries the trace that it belongs to
	resends bool // the client has a [Resender]
	logger  *slog.Logger

	learning   sync.Mutex
	prototypes [operations]atomic.Pointer[prototype]
	refusal    atomic.Pointer[string] // why calls are left to the SDK; nil where they are not

	skew  atomic.Int64 // of the server's clock, in nanoseconds, by the last reply
	date  atomic.Pointer[date]
	stamp atomic.Pointer[stamp]
}

// A date is the Date header of a reply, which changes once a second.
type date struct {
	text string
	time time.Time
}

// A Resender is the transport of a client that follows no redirect. It may have the body of a request once more:
// net/http asks for it when an idle connection took none of the request. Other clients might follow a redirect with
// such a body.
type Resender interface {
	http.RoundTripper
	Resends()
}

// New returns a path for the calls of a client on a table. It makes no call. At the first call of the path, the client
// builds a request that is not sent. A path that cannot stand in for its client makes no calls: see [Path.Refusal]. The
// path logs who makes the calls, at the debug level.
func New(client *dynamodb.Client, table string, logger *slog.Logger) *Path {
	_, lambda := os.LookupEnv("AWS_LAMBDA_FUNCTION_NAME")
	p := &Path{client: client, options: client.Options(), table: table, lambda: lambda, logger: logger}
	if c, ok := p.options.HTTPClient.(*http.Client); ok {
		_, p.resends = c.Transport.(Resender)
	}
	if reason := unsuited(p.options); reason != "" {
		p.refuse(reason)
	}
	return p
}

// Refusal returns why the path leaves all calls to the SDK, "" if it does not. That may change once, with a first call.
func (p *Path) Refusal() string {
	if reason := p.refusal.Load(); reason != nil {
		return *reason
	}
	return ""
}

func (p *Path) refuse(reason string) {
	if p.refusal.CompareAndSwap(nil, &reason) {
		p.logger.Debug("zlimit: the AWS SDK makes all calls of DynamoDB", "table", p.table, "reason", reason)
	}
}

// Open reports whether the path makes calls, as far as it knows yet.
func (p *Path) Open() bool { return p != nil && p.refusal.Load() == nil }

// traceID returns the header by which AWS Lambda finds functions that call one another in circles, "" for none. It is
// false for a value that would have to be escaped.
func (p *Path) traceID() (string, bool) {
	if !p.lambda {
		return "", true
	}
	id := os.Getenv("_X_AMZN_TRACE_ID")
	for i := range len(id) {
		c := id[i]
		if (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && c != '-' && c != '=' && c != ';' && c != ':' {
			return "", false
		}
	}
	return id, true
}

// An Operation is a call of the DynamoDB API that a [Path] makes.
type Operation uint8

// The operations.
const (
	UpdateItem Operation = iota
	PutItem
	GetItem
	BatchGetItem
	operations
)

// String returns the operation's name in the DynamoDB API.
func (o Operation) String() string {
	if o < operations {
		return specs[o].name
	}
	return fmt.Sprintf("Operation(%d)", uint8(o))
}
