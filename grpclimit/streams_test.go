package grpclimit_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/zlimit/zlimit-go/grpclimit"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/faulttest"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/zlimittest"
)

// A counter has a stream with one answer, the number of its messages, and says how its streams ended.
type counter struct {
	conn  *grpc.ClientConn
	ended chan error
}

func newCounter(t *testing.T, server []grpc.ServerOption, client ...grpc.DialOption) *counter {
	t.Helper()
	c := &counter{ended: make(chan error, 1)}
	listener := bufconn.Listen(1 << 20)
	s := grpc.NewServer(server...)
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: "test.Counter", HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{{StreamName: "Count", ClientStreams: true, Handler: func(_ any, stream grpc.ServerStream) error {
			for n := int64(0); ; n++ {
				m := new(wrapperspb.StringValue)
				err := stream.RecvMsg(m)
				if err == nil {
					err = echo(stream.Context(), m.GetValue())
				}
				if err == nil {
					continue
				}
				c.ended <- err
				if errors.Is(err, io.EOF) {
					return stream.SendMsg(wrapperspb.Int64(n))
				}
				return err
			}
		}}},
	}, nil)
	go func() { _ = s.Serve(listener) }()
	conn, err := grpc.NewClient("passthrough:///test", append(client,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))...)
	check.Fatal(t, "grpc.NewClient()", err)
	t.Cleanup(func() {
		_ = conn.Close()
		s.Stop()
	})
	c.conn = conn
	return c
}

// count sends messages as generated clients do, and returns the answer.
func (c *counter) count(ctx context.Context, messages ...string) (int64, error) {
	stream, err := c.conn.NewStream(ctx, &grpc.StreamDesc{StreamName: "Count", ClientStreams: true}, "/test.Counter/Count")
	if err != nil {
		return 0, err
	}
	for _, m := range messages {
		if err := stream.SendMsg(wrapperspb.String(m)); err != nil {
			break // RecvMsg says why
		}
	}
	_ = stream.CloseSend()
	answer := new(wrapperspb.Int64Value)
	return answer.GetValue(), stream.RecvMsg(answer)
}

// TestStreamsWithOneAnswer settles a client's stream at its only answer, under a context that never ends.
func TestStreamsWithOneAnswer(t *testing.T) {
	limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 4)) // which finds leases that are forgotten
	request := grpclimit.Requests("api", "rpm", grpclimit.For("alice"))
	c := newCounter(t, nil, grpc.WithStreamInterceptor(grpclimit.StreamClientInterceptor(limiter, request)))
	for range 2 {
		if _, err := c.count(context.Background(), "a", "b"); err != nil {
			t.Fatalf("count() = %v", err)
		}
		<-c.ended
	}
	if got := faulttest.Left(t, limiter, "alice"); got != 2 {
		t.Errorf("%d left, want 2", got)
	}
	if _, err := c.count(context.Background(), "fail"); status.Code(err) != codes.NotFound {
		t.Errorf("a stream that fails: %v", err)
	}
}

// TestRefusedMessages cancels the stream: the server must not take the messages before the refused one for all.
func TestRefusedMessages(t *testing.T) {
	limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 2))
	request := grpclimit.Requests("api", "rpm", grpclimit.For("alice"))
	c := newCounter(t, nil, grpc.WithStreamInterceptor(grpclimit.StreamClientInterceptor(limiter, request, grpclimit.PerMessage())))
	_, err := c.count(context.Background(), "a", "b", "c")
	if status.Code(err) != codes.ResourceExhausted || !errors.As(err, new(*zlimit.ExceededError)) {
		t.Errorf("a stream with a refused message: %v, want the refusal", err)
	}
	select {
	case ended := <-c.ended:
		if errors.Is(ended, io.EOF) {
			t.Error("the server took the messages before the refused one for all")
		}
	case <-time.After(10 * time.Second):
		t.Error("the server waits for more messages")
	}
}

// TestStreamsThatPanic give back what they took where they are asked to; another interceptor's panic in a client does not.
func TestStreamsThatPanic(t *testing.T) {
	limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 4))
	request := grpclimit.Requests("api", "rpm", grpclimit.For("alice"))
	recovering := func(s any, stream grpc.ServerStream, info *grpc.StreamServerInfo, h grpc.StreamHandler) (err error) {
		defer func() {
			if recover() != nil {
				err = status.Error(codes.Unknown, "panic")
			}
		}()
		return grpclimit.StreamServerInterceptor(limiter, request, grpclimit.RefundPanics())(s, stream, info, h)
	}
	c := newCounter(t, []grpc.ServerOption{grpc.StreamInterceptor(recovering)})
	if _, err := c.count(t.Context(), "a", "panic"); status.Code(err) != codes.Unknown || faulttest.Left(t, limiter, "alice") != 4 {
		t.Errorf("a stream that panics: %v, %d left, want 4", err, faulttest.Left(t, limiter, "alice"))
	}
	func() {
		defer func() { _ = recover() }()
		_ = grpclimit.UnaryClientInterceptor(limiter, request)(t.Context(), "/x/Y", nil, nil, nil,
			func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error { panic("panic") })
	}()
	if got := faulttest.Left(t, limiter, "alice"); got != 3 {
		t.Errorf("%d left after a client's panic, want 3", got)
	}
	func() {
		defer func() { _ = recover() }()
		_, _ = grpclimit.StreamClientInterceptor(limiter, request)(t.Context(), &grpc.StreamDesc{}, nil, "/x/Y",
			func(context.Context, *grpc.StreamDesc, *grpc.ClientConn, string, ...grpc.CallOption) (grpc.ClientStream, error) {
				panic("panic")
			})
	}()
	if got := faulttest.Left(t, limiter, "alice"); got != 2 {
		t.Errorf("%d left after a panic when a stream is opened, want 2", got)
	}
}

// TestAbandonedStreams settles once when the context ends, whatever else happens at that time.
func TestAbandonedStreams(t *testing.T) {
	limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 100))
	request := grpclimit.Requests("api", "rpm", grpclimit.For("alice"))
	conn := dial(t, nil, grpc.WithStreamInterceptor(grpclimit.StreamClientInterceptor(limiter, request)))
	var opened atomic.Int64
	for range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		stream := check.Call(conn.NewStream(ctx, &description.Streams[0], "/test.Echo/Many")).Must(t, "NewStream()")
		opened.Add(1)
		go cancel()
		_ = stream.SendMsg(wrapperspb.String("a"))
		_ = stream.RecvMsg(new(wrapperspb.StringValue))
	}
	if got := faulttest.Left(t, limiter, "alice"); got != 100-opened.Load() {
		t.Errorf("%d left, want %d", got, 100-opened.Load())
	}
}
