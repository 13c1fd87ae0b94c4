package grpclimit_test

import (
	"context"
	"io"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/zlimit/zlimit-go/grpclimit"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/faulttest"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/zlimittest"
)

// TestSlotsOfACall holds a slot over a whole call, at the server and in the client, and a stream to its end. It is given back once, however
// the call ends.
func TestSlotsOfACall(t *testing.T) {
	for side, options := range map[string]func(l *zlimit.RateLimiter, of grpclimit.RequestFunc) (server []grpc.ServerOption, client []grpc.DialOption){
		"server": func(l *zlimit.RateLimiter, of grpclimit.RequestFunc) ([]grpc.ServerOption, []grpc.DialOption) {
			return []grpc.ServerOption{
				grpc.UnaryInterceptor(recovering(grpclimit.UnaryServerInterceptor(l, of))), grpc.StreamInterceptor(grpclimit.StreamServerInterceptor(l, of)),
			}, nil
		},
		"client": func(l *zlimit.RateLimiter, of grpclimit.RequestFunc) ([]grpc.ServerOption, []grpc.DialOption) {
			return []grpc.ServerOption{grpc.UnaryInterceptor(recovering(through))}, []grpc.DialOption{
				grpc.WithUnaryInterceptor(grpclimit.UnaryClientInterceptor(l, of)), grpc.WithStreamInterceptor(grpclimit.StreamClientInterceptor(l, of)),
			}
		},
	} {
		t.Run(side, func(t *testing.T) {
			limiter, _ := zlimittest.New(t, zlimit.Slots("calls", 2), zlimit.PerMinute("rpm", 100))
			of := func(context.Context, string) (zlimit.Request, error) {
				return zlimit.Request{Entity: "alice", Resource: "api", Consume: zlimit.Amounts{"calls": 1, "rpm": 1}}, nil
			}
			server, client := options(limiter, of)
			conn := dial(t, server, client...)
			taken := uint64(0)
			for _, text := range []string{"hello", "fail", "panic"} {
				_ = once(t.Context(), conn, text)
				taken++
				faulttest.CheckSlots(t, limiter, 0, taken)
			}
			for end, leave := range map[string]func(cancel func(), stream grpc.ClientStream){
				"closed": func(_ func(), stream grpc.ClientStream) {
					check.Error(t, "CloseSend()", stream.CloseSend())
					if err := stream.RecvMsg(new(wrapperspb.StringValue)); err != io.EOF { //nolint:errorlint // as gRPC promises
						t.Errorf("a stream that is closed ends with %v", err)
					}
				},
				"cancelled": func(cancel func(), _ grpc.ClientStream) { cancel() },
				"failed": func(_ func(), stream grpc.ClientStream) {
					_ = stream.SendMsg(wrapperspb.String("fail"))
					_ = stream.RecvMsg(new(wrapperspb.StringValue))
				},
			} {
				ctx, cancel := context.WithCancel(t.Context())
				stream, err := conn.NewStream(ctx, &grpc.StreamDesc{StreamName: "Many", ServerStreams: true, ClientStreams: true}, "/test.Echo/Many")
				check.Fatal(t, "NewStream()", err)
				taken++
				for range 3 {
					check.Fatal(t, "SendMsg()", stream.SendMsg(wrapperspb.String("hello")))
					check.Fatal(t, "RecvMsg()", stream.RecvMsg(new(wrapperspb.StringValue)))
					faulttest.CheckSlots(t, limiter, 1, taken)
				}
				leave(cancel, stream)
				faulttest.CheckSlots(t, limiter, 0, taken)
				cancel()
				if t.Failed() {
					t.Fatalf("of a stream that is %s", end)
				}
			}
		})
	}
}

// through is an interceptor that does nothing.
func through(ctx context.Context, m any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
	return h(ctx, m)
}
