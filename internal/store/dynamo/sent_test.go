package dynamo

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
)

func TestTunedHTTPClient(t *testing.T) {
	transport := tunedHTTPClient(nil, 0).Transport.(patient).base
	if transport.MaxIdleConnsPerHost < 256 || transport.MaxIdleConns != 0 || transport.MaxConnsPerHost != 0 || transport.ResponseHeaderTimeout != 0 || transport.IdleConnTimeout == 0 {
		t.Errorf("transport = %+v", transport)
	}
	client, err := NewClient(t.Context(), ClientConfig{Region: "eu-west-1", Endpoint: "http://127.0.0.1:1", Idle: 20 * time.Second})
	check.Fatal(t, "NewClient()", err)
	if got := client.Options().HTTPClient.(*http.Client).Transport.(patient).base.IdleConnTimeout; got != 20*time.Second {
		t.Errorf("idle connections are kept for %v, want 20s", got)
	}
}

// holes are networks that swallow their input: the one gives no connection, the other no reply.
var holes = map[string]func(ctx context.Context, _, _ string) (net.Conn, error){
	"no connection": func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	},
	"no reply": func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, far) }()
		return near, nil
	},
}

// TestWhatWasSent ends the contexts of writes into holes: without a connection, nothing can have been written.
func TestWhatWasSent(t *testing.T) {
	for hole, want := range map[string]struct{ left, late store.Outcome }{
		"no connection": {store.Ended, store.Unavailable},
		"no reply":      {store.Unknown, store.Unknown},
	} {
		for call, do := range map[string]func(context.Context, *Store) error{
			"Write": func(ctx context.Context, s *Store) error {
				_, err := s.Write(ctx, store.Write{Kind: store.Put, Key: store.Key{PK: "p", SK: "s"}})
				return err
			},
			"Transact": func(ctx context.Context, s *Store) error {
				_, err := s.Transact(ctx, []store.Write{{Kind: store.Put, Key: store.Key{PK: "p", SK: "s"}}, {Kind: store.Put, Key: store.Key{PK: "p", SK: "t"}}})
				return err
			},
		} {
			synctest.Test(t, func(t *testing.T) {
				s, transport := onNetwork(holes[hole])
				defer transport.CloseIdleConnections()
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if err := do(ctx, s); store.OutcomeOf(err) != want.left {
					t.Errorf("%s with %s, when the caller leaves: %v, outcome %d; want %d", call, hole, err, store.OutcomeOf(err), want.left)
				}
				err := store.NewGate(1, nil).Do(t.Context(), time.Second, func(ctx context.Context) error { return do(ctx, s) })
				if store.OutcomeOf(err) != want.late {
					t.Errorf("%s with %s, when it is late: %v, outcome %d; want %d", call, hole, err, store.OutcomeOf(err), want.late)
				}
			})
		}
	}
}

// TestOneTimeoutGoverns sends requests that are not answered: those with a deadline end then, and others after a minute.
func TestOneTimeoutGoverns(t *testing.T) {
	for _, test := range []struct{ deadline, want time.Duration }{
		{10 * time.Minute, 10 * time.Minute}, {100 * time.Millisecond, 100 * time.Millisecond}, {0, replyTimeout},
	} {
		synctest.Test(t, func(t *testing.T) {
			client := tunedHTTPClient(nil, 0)
			defer client.CloseIdleConnections()
			client.Transport.(patient).base.DialContext = holes["no reply"]
			ctx := t.Context()
			if test.deadline > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, test.deadline)
				defer cancel()
			}
			start := time.Now()
			request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://dynamodb.test", http.NoBody)
			check.Fatal(t, "http.NewRequestWithContext()", err)
			reply, err := client.Do(request)
			if err == nil {
				_ = reply.Body.Close()
			}
			if waited := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || waited != test.want {
				t.Errorf("a request with a deadline of %v = %v after %v, want %v after %v", test.deadline, err, waited, context.DeadlineExceeded, test.want)
			}
		})
	}
}

// A tally is a connection that counts how often it is written to.
type tally struct {
	net.Conn
	writes *atomic.Int64
}

func (c tally) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(p)
}

// TestRequestsAreOnePiece counts the writes to the network: a request takes one, with its headers and its body.
func TestRequestsAreOnePiece(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, "{}")
	}))
	defer server.Close()
	for way, options := range map[string][]Option{"wire": nil, "SDK": {WithoutWire()}} {
		writes := new(atomic.Int64)
		s, transport := onNetwork(func(ctx context.Context, network, _ string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, server.Listener.Addr().String())
			return tally{conn, writes}, err
		}, options...)
		const requests = 5
		for range requests {
			if _, err := s.Write(t.Context(), store.Write{Kind: store.Put, Key: store.Key{PK: "p", SK: "s"}}); err != nil {
				t.Fatalf("Write() = %v", err)
			}
		}
		transport.CloseIdleConnections()
		if got := writes.Load(); got != requests {
			t.Errorf("%s: %d requests are written in %d pieces", way, requests, got)
		}
	}
}

// A closing connection breaks when it is written to after its first request, having taken so many bytes.
type closing struct {
	net.Conn
	takes  int
	writes atomic.Int64
}

func (c *closing) Write(p []byte) (int, error) {
	if c.writes.Add(1) == 1 {
		return c.Conn.Write(p)
	}
	n, _ := c.Conn.Write(p[:c.takes])
	_ = c.Close()
	return n, syscall.EPIPE
}

// In TestNothingWasSent, a server closes connections that are idle. A request of which such a connection took nothing is sent on
// another one. The outcome of a request of which it took a byte is not known.
func TestNothingWasSent(t *testing.T) {
	var requests atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if body, err := io.ReadAll(r.Body); err != nil || !bytes.HasSuffix(body, []byte("}")) {
			t.Errorf("the server reads %q, %v", body, err)
		}
		requests.Add(1)
		_, _ = io.WriteString(w, "{}")
	}))
	defer server.Close()
	for way, options := range map[string][]Option{"wire": nil, "SDK": {WithoutWire()}} {
		for takes, want := range []store.Outcome{store.Done, store.Unknown} {
			requests.Store(0)
			s, transport := onNetwork(func(ctx context.Context, network, _ string) (net.Conn, error) {
				conn, err := new(net.Dialer).DialContext(ctx, network, server.Listener.Addr().String())
				return &closing{Conn: conn, takes: takes}, err
			}, options...)
			put := func() error {
				_, err := s.Write(t.Context(), store.Write{Kind: store.Put, Key: store.Key{PK: "p", SK: "s"}})
				return err
			}
			check.Fatal(t, "put()", put())
			if err := put(); store.OutcomeOf(err) != want {
				t.Errorf("%s: a connection that took %d bytes: %v, outcome %d, want %d", way, takes, err, store.OutcomeOf(err), want)
			}
			if got := requests.Load(); got != int64(2-takes) {
				t.Errorf("%s: a connection that took %d bytes: the server had %d requests", way, takes, got)
			}
			transport.CloseIdleConnections()
		}
	}
}

// onNetwork returns a store whose connections a function makes.
func onNetwork(dial func(context.Context, string, string) (net.Conn, error), options ...Option) (*Store, *http.Transport) {
	client := tunedHTTPClient(nil, 0)
	transport := client.Transport.(patient).base
	transport.DialContext = dial
	return New(dynamodb.New(dynamodb.Options{
		Region: "us-east-1", BaseEndpoint: aws.String("http://dynamodb.test"), HTTPClient: client,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "key", SecretAccessKey: "secret"}, nil
		}),
	}), "table", store.Table{}, nil, options...), transport
}
