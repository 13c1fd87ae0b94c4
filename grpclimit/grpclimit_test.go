package grpclimit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/zlimit/zlimit-go/grpclimit"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/faulttest"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/zlimittest"
)

var byKey = grpclimit.Requests("api", "rpm", grpclimit.ByMetadata("x-api-key"))

// echo answers as its first message says: it returns it, corrects the lease, fails or panics. A stream returns all of them.
func echo(ctx context.Context, text string) error {
	switch text {
	case "adjust":
		return grpclimit.Lease(ctx).Adjust(zlimit.Amounts{"rpm": 2})
	case "fail":
		return status.Error(codes.NotFound, "fail")
	case "panic":
		panic("panic")
	}
	return nil
}

var description = grpc.ServiceDesc{
	ServiceName: "test.Echo",
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{MethodName: "Once", Handler: func(server any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
		message := new(wrapperspb.StringValue)
		if err := decode(message); err != nil {
			return nil, err
		}
		calls.Add(1)
		handle := func(ctx context.Context, m any) (any, error) {
			return m, echo(ctx, m.(*wrapperspb.StringValue).GetValue())
		}
		if intercept == nil {
			return handle(ctx, message)
		}
		return intercept(ctx, message, &grpc.UnaryServerInfo{Server: server, FullMethod: "/test.Echo/Once"}, handle)
	}}},
	Streams: []grpc.StreamDesc{{StreamName: "Many", ServerStreams: true, ClientStreams: true, Handler: func(_ any, stream grpc.ServerStream) error {
		for {
			message := new(wrapperspb.StringValue)
			if err := stream.RecvMsg(message); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
			if err := echo(stream.Context(), message.GetValue()); err != nil {
				return err
			}
			if err := stream.SendMsg(message); err != nil {
				return err
			}
		}
	}}},
}

// calls are those of Once that reach the server.
var calls atomic.Int64

// dial starts a server with options, and returns a connection to it.
func dial(t testing.TB, server []grpc.ServerOption, client ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	listener := bufconn.Listen(1 << 20)
	s := grpc.NewServer(server...)
	s.RegisterService(&description, nil)
	go func() { _ = s.Serve(listener) }()
	conn, err := grpc.NewClient("passthrough:///test", append(client,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))...)
	check.Fatal(t, "grpc.NewClient()", err)
	t.Cleanup(func() {
		_ = conn.Close()
		s.Stop()
	})
	return conn
}

// recovering turns the panic of a handler into a status, as servers do.
func recovering(inner grpc.UnaryServerInterceptor) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, m any, info *grpc.UnaryServerInfo, h grpc.UnaryHandler) (answer any, err error) {
		defer func() {
			if p := recover(); p != nil {
				err = status.Error(codes.Unknown, fmt.Sprint(p))
			}
		}()
		return inner(ctx, m, info, h)
	}
}

func as(t testing.TB, key string) context.Context {
	return metadata.AppendToOutgoingContext(t.Context(), "x-api-key", key)
}

func once(ctx context.Context, conn *grpc.ClientConn, text string, opts ...grpc.CallOption) error {
	return conn.Invoke(ctx, "/test.Echo/Once", wrapperspb.String(text), new(wrapperspb.StringValue), opts...)
}

func TestUnaryServer(t *testing.T) {
	limiter, clock := zlimittest.New(t, zlimit.PerMinute("rpm", 4))
	conn := dial(t, []grpc.ServerOption{grpc.UnaryInterceptor(recovering(grpclimit.UnaryServerInterceptor(limiter, byKey, grpclimit.RefundPanics())))})
	for _, test := range []struct {
		text string
		code codes.Code
		left int64
	}{
		{"hello", codes.OK, 3},
		{"panic", codes.Unknown, 3},
		{"fail", codes.NotFound, 2},
		{"adjust", codes.OK, -1},
	} {
		if err := once(as(t, "alice"), conn, test.text); status.Code(err) != test.code || faulttest.Left(t, limiter, "alice") != test.left {
			t.Errorf("%s: %v, %d left, want %v and %d", test.text, err, faulttest.Left(t, limiter, "alice"), test.code, test.left)
		}
	}
	var trailer metadata.MD
	err := once(as(t, "alice"), conn, "hello", grpc.Trailer(&trailer))
	s := status.Convert(err)
	if s.Code() != codes.ResourceExhausted || len(s.Details()) != 2 {
		t.Fatalf("a refused call fails with %v and %v", s, s.Details())
	}
	violation := s.Details()[0].(*errdetails.QuotaFailure).GetViolations()[0]
	if violation.GetQuotaMetric() != "rpm" || violation.GetQuotaId() != "api/rpm" || violation.GetQuotaValue() != 4 || strings.Contains(s.String(), "alice") {
		t.Errorf("the violation is %v", violation)
	}
	if delay := s.Details()[1].(*errdetails.RetryInfo).GetRetryDelay().AsDuration(); delay != 30*time.Second {
		t.Errorf("the delay is %v, want 30s", delay)
	}
	if got := trailer.Get("grpc-retry-pushback-ms"); len(got) != 1 || got[0] != "30000" {
		t.Errorf("the pushback is %v, want 30000", got)
	}
	clock.Advance(30 * time.Second)
	check.Error(t, "a call after the delay", once(as(t, "alice"), conn, "hello"))
}

func TestKeysAndErrors(t *testing.T) {
	limiter, _ := zlimittest.New(t)
	check.Fatal(t, "Limits.Set()", limiter.Limits.Set(t.Context(), zlimit.Level{Entity: "alice", Resource: "api"}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 4)}}))
	conn := dial(t, []grpc.ServerOption{grpc.UnaryInterceptor(grpclimit.UnaryServerInterceptor(limiter, byKey))})
	for _, test := range []struct {
		name string
		ctx  context.Context //nolint:containedctx // each case has one
		want string
	}{
		{"no key", t.Context(), "rpc error: code = Unauthenticated desc = the key in the metadata x-api-key is missing"},
		{"two keys", metadata.AppendToOutgoingContext(as(t, "alice"), "x-api-key", "bob"), "rpc error: code = Unauthenticated desc = the key in the metadata x-api-key is there 2 times"},
		{"a key of a thousand bytes", as(t, strings.Repeat("k", 1000)), "rpc error: code = Unauthenticated desc = the key in the metadata x-api-key has 1000 bytes; it must have at most 256"},
		{"a key that cannot be an entity", as(t, "a b"), "rpc error: code = InvalidArgument desc = the entity must hold only ASCII letters, digits and _.-:@/+|=~%"},
		{"an entity without limits", as(t, "globex"), "rpc error: code = PermissionDenied desc = no quota"},
	} {
		if err := once(test.ctx, conn, "hello"); err == nil || err.Error() != test.want {
			t.Errorf("%s: %v, want %s", test.name, err, test.want)
		}
	}
	for _, test := range []struct {
		err  error
		want codes.Code
	}{
		{nil, codes.OK},
		{&zlimit.UnavailableError{Op: "acquire", Err: errors.New("secret")}, codes.Unavailable},
		{zlimit.ErrContended, codes.Unavailable},
		{context.Canceled, codes.Canceled},
		{context.DeadlineExceeded, codes.DeadlineExceeded},
		{errors.New("secret"), codes.Internal},
		{status.Error(codes.AlreadyExists, ""), codes.AlreadyExists},
	} {
		got := grpclimit.Error(test.err)
		if status.Code(got) != test.want || got != nil && strings.Contains(got.Error(), "secret") || !errors.Is(got, test.err) {
			t.Errorf("Error(%v) = %v, want %v", test.err, got, test.want)
		}
	}
}

// TestPushback gives a client a policy to try again: it does not when the server says that it never helps.
func TestPushback(t *testing.T) {
	limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 4))
	conn := dial(t, []grpc.ServerOption{grpc.UnaryInterceptor(grpclimit.UnaryServerInterceptor(limiter,
		func(context.Context, string) (zlimit.Request, error) {
			return zlimit.Request{Entity: "alice", Resource: "api", Consume: zlimit.Amounts{"rpm": 5}}, nil
		}))},
		grpc.WithDefaultServiceConfig(`{"methodConfig":[{"name":[{}],"retryPolicy":{"maxAttempts":4,"initialBackoff":"0.001s","maxBackoff":"0.001s","backoffMultiplier":1,"retryableStatusCodes":["RESOURCE_EXHAUSTED"]}}]}`))
	calls.Store(0)
	err := once(t.Context(), conn, "hello")
	if got := status.Convert(err); got.Code() != codes.ResourceExhausted || len(got.Details()) != 1 || calls.Load() != 1 {
		t.Errorf("the call fails with %v after %d tries, want one", err, calls.Load())
	}
}

// many sends messages in a stream, and returns how many came back.
func many(ctx context.Context, conn *grpc.ClientConn, messages ...string) (int, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := conn.NewStream(ctx, &description.Streams[0], "/test.Echo/Many")
	if err != nil {
		return 0, err
	}
	for i, m := range messages {
		if err := stream.SendMsg(wrapperspb.String(m)); err != nil && !errors.Is(err, io.EOF) {
			return i, err
		}
		if err := stream.RecvMsg(new(wrapperspb.StringValue)); err != nil {
			return i, err
		}
	}
	if err := stream.CloseSend(); err != nil {
		return 0, err
	}
	if err := stream.RecvMsg(new(wrapperspb.StringValue)); !errors.Is(err, io.EOF) {
		return 0, fmt.Errorf("the stream ends with %w", err)
	}
	return len(messages), nil
}

func TestStreamServer(t *testing.T) {
	for _, test := range []struct {
		name     string
		opts     []grpclimit.Option
		messages []string
		received int
		code     codes.Code
		left     int64
	}{
		{"one for each stream", nil, []string{"a", "b", "c"}, 3, codes.OK, 1},
		{"corrected", nil, []string{"adjust"}, 1, codes.OK, -1},
		{"one for each message", []grpclimit.Option{grpclimit.PerMessage()}, []string{"a", "b"}, 2, codes.OK, 0},
		{"more messages than there are", []grpclimit.Option{grpclimit.PerMessage()}, []string{"a", "b", "c"}, 2, codes.ResourceExhausted, 0},
	} {
		limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 2))
		conn := dial(t, []grpc.ServerOption{grpc.StreamInterceptor(grpclimit.StreamServerInterceptor(limiter, byKey, test.opts...))})
		received, err := many(as(t, "alice"), conn, test.messages...)
		if received != test.received || status.Code(err) != test.code {
			t.Errorf("%s: %d messages and %v, want %d and %v", test.name, received, err, test.received, test.code)
		}
		if got := faulttest.Left(t, limiter, "alice"); got != test.left {
			t.Errorf("%s: %d left, want %d", test.name, got, test.left)
		}
	}
	limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 1))
	conn := dial(t, []grpc.ServerOption{grpc.StreamInterceptor(grpclimit.StreamServerInterceptor(limiter, byKey))})
	for i, want := range []codes.Code{codes.OK, codes.ResourceExhausted} {
		if _, err := many(as(t, "alice"), conn, "a"); status.Code(err) != want {
			t.Errorf("stream %d: %v, want %v", i, err, want)
		}
	}
}

func TestClients(t *testing.T) {
	request := grpclimit.Requests("api", "rpm", grpclimit.For("alice"))
	limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 2))
	conn := dial(t, nil, grpc.WithUnaryInterceptor(grpclimit.UnaryClientInterceptor(limiter, request)))
	for i, want := range []codes.Code{codes.OK, codes.NotFound, codes.ResourceExhausted} {
		calls.Store(0)
		err := once(t.Context(), conn, []string{"hello", "fail", "hello"}[i])
		if status.Code(err) != want || errors.As(err, new(*zlimit.ExceededError)) != (i == 2) || calls.Load() != map[bool]int64{false: 1}[i == 2] {
			t.Errorf("call %d: %v after %d calls, want %v", i, err, calls.Load(), want)
		}
	}
	limiter, _ = zlimittest.New(t, zlimit.PerMinute("rpm", 2))
	broken := check.Call(grpc.NewClient("passthrough:///nobody", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return nil, errors.New("nobody") }),
		grpc.WithUnaryInterceptor(grpclimit.UnaryClientInterceptor(limiter, request)),
		grpc.WithStreamInterceptor(grpclimit.StreamClientInterceptor(limiter, request)))).Must(t, "grpc.NewClient()")
	defer broken.Close()
	if err := once(t.Context(), broken, "hello"); status.Code(err) != codes.Unavailable || faulttest.Left(t, limiter, "alice") != 2 {
		t.Errorf("a call to nobody: %v, %d left, want all", err, faulttest.Left(t, limiter, "alice"))
	}
	if _, err := many(t.Context(), broken, "hello"); status.Code(err) != codes.Unavailable || faulttest.Left(t, limiter, "alice") != 2 {
		t.Errorf("a stream to nobody: %v, %d left, want all", err, faulttest.Left(t, limiter, "alice"))
	}
}

func TestStreamClients(t *testing.T) {
	request := grpclimit.Requests("api", "rpm", grpclimit.For("alice"))
	for _, test := range []struct {
		opts  []grpclimit.Option
		wants []codes.Code
	}{
		{nil, []codes.Code{codes.OK, codes.OK, codes.ResourceExhausted}},
		{[]grpclimit.Option{grpclimit.PerMessage()}, []codes.Code{codes.OK, codes.ResourceExhausted}},
	} {
		limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 2))
		conn := dial(t, nil, grpc.WithStreamInterceptor(grpclimit.StreamClientInterceptor(limiter, request, test.opts...)))
		for i, want := range test.wants {
			if _, err := many(t.Context(), conn, "a", "b"); status.Code(err) != want {
				t.Errorf("stream %d of %v: %v", i, test.wants, err)
			}
		}
	}
}

func TestWrongUse(t *testing.T) {
	limiter, _ := zlimittest.New(t)
	for name, wrong := range map[string]func(){
		"no limiter":  func() { grpclimit.UnaryServerInterceptor(nil, byKey) },
		"no function": func() { grpclimit.StreamServerInterceptor(limiter, nil) },
		"no option":   func() { grpclimit.UnaryClientInterceptor(limiter, byKey, nil) },
		"no logger":   func() { grpclimit.StreamClientInterceptor(limiter, byKey, grpclimit.WithLogger(nil)) },
		"no key":      func() { grpclimit.Requests("api", "rpm", nil) },
	} {
		func() {
			defer func() {
				if text, ok := recover().(string); !ok || !strings.HasPrefix(text, "grpclimit: ") {
					t.Errorf("%s: recover() = %q, want a panic of this package", name, text)
				}
			}()
			wrong()
		}()
	}
	if got := grpclimit.Lease(t.Context()); got != nil {
		t.Errorf("Lease() outside = %v, want nil", got)
	}
}

// TestErrorOfPrepaid refuses a call until a prepaid limit is topped up: no time is named.
func TestErrorOfPrepaid(t *testing.T) {
	s := status.Convert(grpclimit.Error(&zlimit.ExceededError{Statuses: zlimit.Statuses{
		{Entity: "alice", Resource: "api", Limit: zlimit.Prepaid("usd", 5_000_000_000), Available: 2_000_000_000, Requested: 7_000_000_000, Exceeded: true, RetryAfter: zlimit.Never},
	}}))
	if s.Code() != codes.ResourceExhausted || len(s.Details()) != 1 {
		t.Errorf("Error() = %v with %v, want only the violation", s, s.Details())
	}
}
