package grpclimit_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/zlimit/zlimit-go/grpclimit"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/faulttest"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/zlimittest"
)

// breakable is a listener whose connections can be broken.
type breakable struct {
	net.Listener
	mu    sync.Mutex
	conns []net.Conn
}

func (l *breakable) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns = append(l.conns, conn)
	return conn, err
}

func (l *breakable) breakAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		if c != nil {
			_ = c.Close()
		}
	}
	l.conns = nil
}

// TestClientsChargeWhatWasSent makes 40 calls and streams that fail after a server took them. A limit of five lets five
// through.
func TestClientsChargeWhatWasSent(t *testing.T) {
	request := grpclimit.Requests("api", "rpm", grpclimit.For("alice"))
	tcp, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it is closed by the server
	check.Fatal(t, "net.Listen()", err)
	listener := &breakable{Listener: tcp}
	var served atomic.Int64
	var handle func(context.Context) error
	var leave atomic.Pointer[context.CancelFunc] // ends the call from its client's side
	server := grpc.NewServer(
		grpc.UnaryInterceptor(func(ctx context.Context, m any, _ *grpc.UnaryServerInfo, _ grpc.UnaryHandler) (any, error) {
			served.Add(1)
			return m, handle(ctx)
		}),
		grpc.StreamInterceptor(func(_ any, s grpc.ServerStream, _ *grpc.StreamServerInfo, _ grpc.StreamHandler) error {
			served.Add(1)
			return handle(s.Context())
		}))
	server.RegisterService(&description, nil)
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()
	for name, outcome := range map[string]func(context.Context) error{
		"UNAVAILABLE": func(context.Context) error { return status.Error(codes.Unavailable, "busy") },
		"a handler that is too slow": func(ctx context.Context) error {
			(*leave.Load())()
			<-ctx.Done()
			return ctx.Err()
		},
		"a connection that breaks": func(ctx context.Context) error {
			listener.breakAll()
			<-ctx.Done()
			return ctx.Err()
		},
	} {
		handle = outcome
		for kind, call := range map[string]func(context.Context, *grpc.ClientConn) error{
			"call": func(ctx context.Context, conn *grpc.ClientConn) error { return once(ctx, conn, "hello") },
			"stream": func(ctx context.Context, conn *grpc.ClientConn) error {
				_, err := many(ctx, conn, "hello")
				return err
			},
		} {
			limiter, _ := zlimittest.New(t, zlimit.PerHour("rpm", 5))
			conn := check.Call(grpc.NewClient(tcp.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
				grpc.WithDefaultCallOptions(grpc.WaitForReady(true)),
				grpc.WithUnaryInterceptor(grpclimit.UnaryClientInterceptor(limiter, request)),
				grpc.WithStreamInterceptor(grpclimit.StreamClientInterceptor(limiter, request)))).Must(t, "grpc.NewClient()")
			served.Store(0)
			refused := 0
			for range 40 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				leave.Store(&cancel)
				if err := call(ctx, conn); err == nil {
					t.Errorf("%s: a %s has no error", name, kind)
				} else if errors.As(err, new(*zlimit.ExceededError)) {
					refused++
				}
				cancel()
			}
			_ = conn.Close()
			if served.Load() > 5 || refused < 35 {
				t.Errorf("%s: the server took %d of 40 %ss, %d were refused; want 5 at most, and 35", name, served.Load(), kind, refused)
			}
		}
	}
}

// TestClientsGiveBackWhatWasNeverSent ends a call and a stream that wait for a connection.
func TestClientsGiveBackWhatWasNeverSent(t *testing.T) {
	request := grpclimit.Requests("api", "rpm", grpclimit.For("alice"))
	limiter, _ := zlimittest.New(t, zlimit.PerHour("rpm", 5))
	conn := check.Call(grpc.NewClient("passthrough:///nobody", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return nil, errors.New("nobody") }),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)),
		grpc.WithUnaryInterceptor(grpclimit.UnaryClientInterceptor(limiter, request)),
		grpc.WithStreamInterceptor(grpclimit.StreamClientInterceptor(limiter, request)))).Must(t, "grpc.NewClient()")
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if err := once(ctx, conn, "hello"); status.Code(err) != codes.DeadlineExceeded || faulttest.Left(t, limiter, "alice") != 5 {
		t.Errorf("a call that waits for a server: %v, %d left of 5", err, faulttest.Left(t, limiter, "alice"))
	}
	ctx, cancel = context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if _, err := many(ctx, conn, "hello"); status.Code(err) != codes.DeadlineExceeded || faulttest.Left(t, limiter, "alice") != 5 {
		t.Errorf("a stream that waits for a server: %v, %d left of 5", err, faulttest.Left(t, limiter, "alice"))
	}
}

// TestClientsWait checks that calls wait for their tokens before they are sent.
func TestClientsWait(t *testing.T) {
	limiter, clock := zlimittest.New(t, zlimit.PerMinute("rpm", 1))
	request := grpclimit.Requests("api", "rpm", grpclimit.For("alice"))
	conn := dial(t, nil, grpc.WithUnaryInterceptor(grpclimit.UnaryClientInterceptor(limiter, request, grpclimit.WithMaxWait(time.Minute))))
	faulttest.CheckWaits(t, clock, func() error { return once(t.Context(), conn, "hello") })
}

// TestServersWait checks that calls wait at the server.
func TestServersWait(t *testing.T) {
	limiter, clock := zlimittest.New(t, zlimit.PerMinute("rpm", 1))
	request := grpclimit.Requests("api", "rpm", grpclimit.For("alice"))
	waits := grpclimit.UnaryServerInterceptor(limiter, request, grpclimit.WithMaxWait(time.Minute))
	conn := dial(t, []grpc.ServerOption{grpc.UnaryInterceptor(waits)})
	call := func(ctx context.Context) error {
		err := once(ctx, conn, "hello")
		if status.Code(err) == codes.ResourceExhausted {
			return &zlimit.ExceededError{}
		}
		return err
	}
	faulttest.CheckWaits(t, clock, func() error { return call(t.Context()) })
	faulttest.CheckLeavers(t, limiter, clock, true, call)
}
