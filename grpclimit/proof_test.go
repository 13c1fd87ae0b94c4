package grpclimit_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/zlimit/zlimit-go/grpclimit"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/faulttest"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/zlimittest"
)

// In TestGivingBackNeedsProof, other interceptors between the limiter and gRPC drop options, or fail once the call was sent. A call is
// charged unless gRPC says that it was not sent.
func TestGivingBackNeedsProof(t *testing.T) {
	request := grpclimit.Requests("api", "rpm", grpclimit.For("alice"))
	broken := errors.New("the interceptor fails")
	type unary = grpc.UnaryClientInterceptor
	type stream = grpc.StreamClientInterceptor
	pass := func(ctx context.Context, method string, m, answer any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		return invoke(ctx, method, m, answer, conn, opts...)
	}
	drop := func(ctx context.Context, method string, m, answer any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, _ ...grpc.CallOption) error {
		return invoke(ctx, method, m, answer, conn)
	}
	open := func(keep, use, fail bool) stream {
		return func(ctx context.Context, d *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			if !keep {
				opts = nil
			}
			s, err := open(ctx, d, conn, method, opts...)
			if err == nil && use {
				err = errors.Join(s.SendMsg(wrapperspb.String("hello")), s.RecvMsg(new(wrapperspb.StringValue)))
			}
			if err == nil && fail {
				err = broken
			}
			return s, err
		}
	}
	for _, test := range []struct {
		name   string
		unary  unary
		stream stream
		served bool // there is a server
		left   int64
	}{
		{"a call that fails at the server", pass, nil, true, 4},
		{"a call that fails at the server, without options", drop, nil, true, 4},
		{"a call that finds no server", pass, nil, false, 5},
		{"a call that finds no server, without options", drop, nil, false, 4},
		{"a call that no interceptor makes", func(context.Context, string, any, any, *grpc.ClientConn, grpc.UnaryInvoker, ...grpc.CallOption) error {
			return broken
		}, nil, true, 4},
		{"a stream that finds no server", nil, open(true, false, false), false, 5},
		{"a stream that finds no server, without options", nil, open(false, false, false), false, 4},
		{"a stream that is opened, and fails", nil, open(true, false, true), true, 4},
		{"a stream that is opened and used, and fails", nil, open(true, true, true), true, 4},
		{"a stream that is opened without options, and fails", nil, open(false, true, true), true, 4},
	} {
		t.Run(test.name, func(t *testing.T) {
			limiter, _ := zlimittest.New(t, zlimit.PerHour("rpm", 5))
			options := []grpc.DialOption{grpc.WithDefaultCallOptions(grpc.WaitForReady(true))}
			if test.unary != nil {
				options = append(options, grpc.WithChainUnaryInterceptor(grpclimit.UnaryClientInterceptor(limiter, request), test.unary))
			} else {
				options = append(options, grpc.WithChainStreamInterceptor(grpclimit.StreamClientInterceptor(limiter, request), test.stream))
			}
			conn := dial(t, nil, options...)
			patience := time.Minute
			if !test.served {
				var err error
				conn, err = grpc.NewClient("passthrough:///nobody", append(options, grpc.WithTransportCredentials(insecure.NewCredentials()),
					grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return nil, broken }))...)
				check.Fatal(t, "grpc.NewClient()", err)
				defer conn.Close()
				patience = 30 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			var err error
			if test.unary != nil {
				err = once(ctx, conn, "fail")
			} else {
				_, err = many(ctx, conn, "hello")
			}
			// A call that waits no more for a server, since that option is dropped too, fails immediately.
			if code := status.Code(err); err == nil || !test.served && code != codes.DeadlineExceeded && code != codes.Unavailable {
				t.Errorf("the error is %v", err)
			}
			if got := faulttest.Left(t, limiter, "alice"); got != test.left {
				t.Errorf("%d are left of 5, want %d", got, test.left)
			}
		})
	}
}
