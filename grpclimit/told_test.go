package grpclimit_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/zlimit/zlimit-go/grpclimit"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/faulttest"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/zlimittest"
)

// TestHeadersTellWhatIsLeft reads the header of answers. An error has none, so that retry policies go on.
func TestHeadersTellWhatIsLeft(t *testing.T) {
	for name, test := range map[string]struct {
		opts          []grpclimit.Option
		policy, state string
	}{
		"fields":    {[]grpclimit.Option{grpclimit.WithQuotaUnit("rpm", "calls")}, `"rpm";q=4;qu="calls";w=60`, `"rpm";r=3;t=15`},
		"no fields": {[]grpclimit.Option{grpclimit.WithoutHeaders()}, "", ""},
	} {
		for _, kind := range []string{"unary", "stream", "an error"} {
			limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 4))
			conn := dial(t, []grpc.ServerOption{
				grpc.UnaryInterceptor(grpclimit.UnaryServerInterceptor(limiter, byKey, test.opts...)),
				grpc.StreamInterceptor(grpclimit.StreamServerInterceptor(limiter, byKey, test.opts...)),
			})
			var header metadata.MD
			policy, state := test.policy, test.state
			switch kind {
			case "unary":
				check.Fatal(t, "once()", once(as(t, "alice"), conn, "hello", grpc.Header(&header)))
			case "an error":
				policy, state = "", ""
				if err := once(as(t, "alice"), conn, "fail", grpc.Header(&header)); status.Code(err) != codes.NotFound {
					t.Fatalf("once() = %v, want the code NotFound", err)
				}
			default:
				stream, err := conn.NewStream(as(t, "alice"), &description.Streams[0], "/test.Echo/Many")
				check.Fatal(t, "NewStream()", err)
				check.Fatal(t, "SendMsg()", stream.SendMsg(wrapperspb.String("a")))
				if header, err = stream.Header(); err != nil {
					t.Fatalf("Header() = %v", err)
				}
				_ = stream.CloseSend()
				for stream.RecvMsg(new(wrapperspb.StringValue)) == nil {
				}
			}
			got := func(name string) string {
				if values := header.Get(name); len(values) == 1 {
					return values[0]
				}
				return ""
			}
			if got("ratelimit-policy") != policy || got("ratelimit") != state {
				t.Errorf("%s, %s: the header is %v, want %q and %q", name, kind, header, policy, state)
			}
		}
	}
}

// TestSkip calls health and reflection services without a key, and one that an option exempts.
func TestSkip(t *testing.T) {
	limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 4))
	for method, want := range map[string][2]codes.Code{
		"/grpc.health.v1.Health/Check":                                   {codes.OK, codes.Unauthenticated},
		"/grpc.health.v1.Health/Watch":                                   {codes.OK, codes.Unauthenticated},
		"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo":      {codes.OK, codes.Unauthenticated},
		"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": {codes.OK, codes.Unauthenticated},
		"/test.Echo/Static":                                              {codes.OK, codes.OK},
		"/test.Echo/Once":                                                {codes.Unauthenticated, codes.Unauthenticated},
		"/grpc.health.v1.HealthX/Check":                                  {codes.Unauthenticated, codes.Unauthenticated},
	} {
		for i, opts := range [][]grpclimit.Option{nil, {grpclimit.WithHealthAndReflection()}} {
			opts = append(opts, grpclimit.Skip(func(_ context.Context, m string) bool { return m == "/test.Echo/Static" }))
			_, err := grpclimit.UnaryServerInterceptor(limiter, byKey, opts...)(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: method},
				func(context.Context, any) (any, error) { return "", nil })
			if status.Code(err) != want[i] {
				t.Errorf("%s with %d options: %v, want %v", method, len(opts), err, want[i])
			}
			err = grpclimit.StreamServerInterceptor(limiter, byKey, opts...)(nil, &serverStream{ctx: t.Context()}, &grpc.StreamServerInfo{FullMethod: method},
				func(any, grpc.ServerStream) error { return nil })
			if status.Code(err) != want[i] {
				t.Errorf("a stream of %s with %d options: %v, want %v", method, len(opts), err, want[i])
			}
		}
	}
}

// TestPanicsAreCharged calls a handler that panics 50 times. It runs as often as the limit says.
func TestPanicsAreCharged(t *testing.T) {
	limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 4))
	conn := dial(t, []grpc.ServerOption{grpc.UnaryInterceptor(recovering(grpclimit.UnaryServerInterceptor(limiter, byKey)))})
	ran := 0
	for range 50 {
		if status.Code(once(as(t, "alice"), conn, "panic")) == codes.Unknown {
			ran++
		}
	}
	if ran != 4 || faulttest.Left(t, limiter, "alice") != 0 {
		t.Errorf("the handler ran %d times, want 4", ran)
	}
}

// A success is an error whose status is that of a success, as a function finds that asks another service.
type success struct{ error }

func (success) GRPCStatus() *status.Status { return status.New(codes.OK, "") }

// TestRefusalsAreNoSuccess refuses calls with an error of status OK. No client takes that for a success.
func TestRefusalsAreNoSuccess(t *testing.T) {
	limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 4))
	refuse := func(context.Context, string) (zlimit.Request, error) {
		return zlimit.Request{}, fmt.Errorf("ask the other service: %w", success{errors.New("no answer")})
	}
	for _, opts := range [][]grpclimit.Option{nil, {grpclimit.PerMessage()}} {
		conn := dial(t, []grpc.ServerOption{
			grpc.UnaryInterceptor(grpclimit.UnaryServerInterceptor(limiter, refuse, opts...)),
			grpc.StreamInterceptor(grpclimit.StreamServerInterceptor(limiter, refuse, opts...)),
		})
		if err := once(t.Context(), conn, "hello"); status.Code(err) != codes.Internal {
			t.Errorf("a call = %v, want INTERNAL", err)
		}
		stream := check.Call(conn.NewStream(t.Context(), &description.Streams[0], "/test.Echo/Many")).Must(t, "NewStream()")
		_ = stream.SendMsg(wrapperspb.String("hello"))
		if err := stream.RecvMsg(new(wrapperspb.StringValue)); status.Code(err) != codes.Internal {
			t.Errorf("a stream = %v, want INTERNAL", err)
		}
	}
}
