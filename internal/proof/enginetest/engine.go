// Package enginetest gives tests a DynamoDB engine: a process of its own that
// speaks DynamoDB's protocol on a loopback port. Its transport breaks calls to
// the engine in the ways a network and a busy table do.
//
//	func TestSpend(t *testing.T) {
//		engine := enginetest.Start(t)
//		client, table := engine.Client(), engine.Table(t)
//		…
//	}
//
// Four environment variables steer it:
//
//   - ZLIMIT_TEST_ENDPOINT is the URL of a running engine to use instead of
//     starting one.
//   - ZLIMIT_ENGINE is the path of the engine's binary. Without it, the binary
//     that `make engine` installs is used, and with none no engine at all.
//   - ZLIMIT_MEAN is a seed that makes the engine behave like DynamoDB on a bad
//     day; see Mean.
//   - ZLIMIT_REQUIRE_ENGINE=1 makes a test fail, instead of being skipped, where
//     there is no engine.
package enginetest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
)

// Region is the region that clients of an engine sign for.
const Region = "us-east-1"

// The environment variables named in the package's comment.
const (
	envEndpoint = "ZLIMIT_TEST_ENDPOINT"
	envBinary   = "ZLIMIT_ENGINE"
	envRequire  = "ZLIMIT_REQUIRE_ENGINE"
)

// noEngine is the value of envBinary for tests without an engine, although one is
// installed.
const noEngine = "none"

// Engine is a running DynamoDB engine. It is safe for concurrent use.
type Engine struct {
	endpoint  string
	transport *http.Transport
	process   *process // Nil where ZLIMIT_TEST_ENDPOINT names the engine.
	way       http.RoundTripper
}

// shared is the engine of this test binary, started by the first Start.
var shared struct {
	once   sync.Once
	engine *Engine
	err    error
}

// Start returns the engine that all tests of the binary share, and starts it on the first call. It
// ends with the test process in any case; a TestMain with Main or With ends it in good order.
func Start(tb testing.TB) *Engine {
	tb.Helper()
	shared.once.Do(func() { shared.engine, shared.err = launch() })
	if shared.err != nil {
		giveUp(tb, shared.err)
	}
	if p := shared.engine.process; p != nil && p.exited() {
		tb.Fatalf("enginetest: the shared engine has died:\n%s", p.output())
	}
	return shared.engine
}

// Fresh starts an engine for one test, with no tables and no stream records, and
// stops it when the test ends. Where ZLIMIT_TEST_ENDPOINT is set, it returns that
// engine.
func Fresh(tb testing.TB) *Engine {
	tb.Helper()
	engine, err := launch()
	if err != nil {
		giveUp(tb, err)
	}
	tb.Cleanup(func() {
		if err := engine.stop(); err != nil {
			tb.Errorf("enginetest: stop the engine: %v", err)
		}
	})
	return engine
}

// A Runner runs the tests and returns an exit code, as a *testing.M does. With wraps it.
type Runner interface {
	Run() int
}

// With wraps a test binary's tests so that the shared engine and the connections to it are gone
// when Run returns. It is for a TestMain that looks for leaks of the tests:
//
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(enginetest.With(m)) }
func With(m Runner) Runner { return runner{m} }

// Main runs the tests, stops the shared engine and exits:
//
//	func TestMain(m *testing.M) { enginetest.Main(m) }
func Main(m *testing.M) { os.Exit(With(m).Run()) }

type runner struct{ tests Runner }

// Run runs the tests and then stops the shared engine, if a test started it.
func (r runner) Run() int {
	code := r.tests.Run()
	// No test runs any more: from here on, Start has nothing to start.
	shared.once.Do(func() { shared.err = errors.New("the tests are over") })
	if shared.engine == nil {
		return code
	}
	if err := shared.engine.stop(); err != nil {
		fmt.Fprintln(os.Stderr, "enginetest: stop the engine:", err)
		return max(code, 1)
	}
	return code
}

// giveUp ends a test that has no engine to run on. It skips the test where no
// engine is installed and none is required, and fails it otherwise.
func giveUp(tb testing.TB, err error) {
	tb.Helper()
	if errors.Is(err, errNotInstalled) && os.Getenv(envRequire) != "1" {
		tb.Skipf("no DynamoDB engine: run `make engine` or set %s", envEndpoint)
	}
	tb.Fatalf("enginetest: %v", err)
}

// launch starts an engine, or connects to the one ZLIMIT_TEST_ENDPOINT names.
func launch() (*Engine, error) {
	transport := &http.Transport{
		MaxIdleConns:        256,
		MaxIdleConnsPerHost: 256,
		IdleConnTimeout:     90 * time.Second,
		DisableCompression:  true,
	}
	if endpoint := os.Getenv(envEndpoint); endpoint != "" {
		return newEngine(strings.TrimSuffix(endpoint, "/"), transport, nil)
	}
	binary, err := locate()
	if err != nil {
		return nil, err
	}
	p, err := start(binary)
	if err != nil {
		return nil, err
	}
	return newEngine("http://"+p.address, transport, p)
}

// newEngine returns an engine, which is mean if the environment says so.
func newEngine(endpoint string, transport *http.Transport, p *process) (*Engine, error) {
	e := &Engine{endpoint: endpoint, transport: transport, process: p, way: caseful{transport}}
	m, err := meanOf(os.Getenv(envMean))
	if m != nil {
		e.way = m.Transport(e.way)
	}
	return e, err
}

// stop closes the connections to the engine and ends its process.
func (e *Engine) stop() error {
	e.transport.CloseIdleConnections()
	if e.process == nil {
		return nil
	}
	return e.process.stop()
}

// Signal sends a signal to the process of an engine that Fresh started. After SIGSTOP it answers nothing until SIGCONT.
func (e *Engine) Signal(s syscall.Signal) error {
	if e.process == nil {
		return errors.New("the engine is no process of this test")
	}
	return e.process.cmd.Process.Signal(s)
}

// Endpoint returns the engine's URL, without a slash at the end.
func (e *Engine) Endpoint() string { return e.endpoint }

// Transport returns the transport that the engine's clients share. It keeps
// enough idle connections for many concurrent callers, and is what NewFaults
// takes as its base. Where the engine differs from DynamoDB in how it compares
// prefixes, the transport makes up for it.
func (e *Engine) Transport() http.RoundTripper { return e.way }

// Client returns a client of the engine with dummy credentials. The options are
// the caller's to override anything, the retryer for one. Clients are cheap:
// they share the engine's transport.
func (e *Engine) Client(optFns ...func(*dynamodb.Options)) *dynamodb.Client {
	return dynamodb.New(dynamodb.Options{
		Region:       Region,
		BaseEndpoint: aws.String(e.endpoint),
		Credentials:  aws.CredentialsProviderFunc(dummyCredentials),
		HTTPClient:   &http.Client{Transport: e.Transport()},
	}, optFns...)
}

// Streams returns a client of the engine's streams, like Client.
func (e *Engine) Streams(optFns ...func(*dynamodbstreams.Options)) *dynamodbstreams.Client {
	return dynamodbstreams.New(dynamodbstreams.Options{
		Region:       Region,
		BaseEndpoint: aws.String(e.endpoint),
		Credentials:  aws.CredentialsProviderFunc(dummyCredentials),
		HTTPClient:   &http.Client{Transport: e.Transport()},
	}, optFns...)
}

// dummyCredentials are well-formed and worth nothing.
func dummyCredentials(context.Context) (aws.Credentials, error) {
	return aws.Credentials{AccessKeyID: "ZLIMITTEST", SecretAccessKey: "zlimit-test", Source: "enginetest"}, nil
}

var (
	// run separates the tables of this process from the tables of others on one endpoint.
	run = strings.ToLower(rand.Text()[:8])
	// tables counts the names given out by this process.
	tables atomic.Int64
)

// Table returns a table name that no other call returns, made from the test's
// name. The test creates the table, if it wants one; it is deleted when the test
// ends, so that a shared engine does not grow.
func (e *Engine) Table(tb testing.TB) string {
	tb.Helper()
	name := tableName(tb.Name(), tables.Add(1))
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_, err := e.Client().DeleteTable(ctx, &dynamodb.DeleteTableInput{TableName: &name})
		if missing := (*types.ResourceNotFoundException)(nil); err != nil && !errors.As(err, &missing) {
			tb.Logf("enginetest: delete table %s: %v", name, err)
		}
	})
	return name
}

// tableName makes a table name of the characters DynamoDB allows, well below its
// length of 255.
func tableName(test string, n int64) string {
	clean := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '-', r == '.':
			return r
		}
		return '-'
	}, test)
	return fmt.Sprintf("%.100s-%s-%d", clean, run, n)
}
