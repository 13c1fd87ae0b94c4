package grpclimit_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/zlimit/zlimit-go/grpclimit"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/faulttest"
	"github.com/zlimit/zlimit-go/zlimit"
)

// notSettled is logged of a lease that is given up.
const notSettled = "grpclimit: a lease could not be settled"

// TestHandlersSettleInOutages breaks the store while a handler runs, which corrects its lease and returns or panics. The call
// ends as ever; the lease is settled once, or given up once.
func TestHandlersSettleInOutages(t *testing.T) {
	kinds := faulttest.Pairs([]string{"returns", "panics", "cancelled", "too late"}, []string{"unary", "stream"})
	faulttest.InOutages(t, notSettled, kinds, handleInOutage)
}

// A serverStream is one without messages.
type serverStream struct {
	grpc.ServerStream
	ctx context.Context //nolint:containedctx // it is the stream's
}

func (s *serverStream) Context() context.Context { return s.ctx }
func (s *serverStream) SetTrailer(metadata.MD)   {}

func handleInOutage(t *testing.T, x *faulttest.Trial, kind [2]string) (left int64) {
	end := kind[0]
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	failed := status.Error(codes.NotFound, "no such book")
	handle := func(ctx context.Context) error {
		check.Error(t, "Adjust()", grpclimit.Lease(ctx).Adjust(zlimit.Amounts{"rpm": 2}))
		switch end {
		case "cancelled":
			cancel()
		case "too late":
			time.Sleep(2 * time.Minute)
		}
		x.Begin()
		if end == "panics" {
			panic("broken")
		}
		return failed
	}
	request := grpclimit.Requests("api", "rpm", grpclimit.For("alice"))
	func() {
		defer func() {
			if got := recover(); (got == "broken") != (end == "panics") {
				t.Errorf("the panic is %v", got)
			}
		}()
		var err error
		if kind[1] == "unary" {
			_, err = grpclimit.UnaryServerInterceptor(x.Limiter, request, grpclimit.WithLogger(x.Log.Logger()), grpclimit.RefundPanics())(ctx, nil, &grpc.UnaryServerInfo{},
				func(ctx context.Context, _ any) (any, error) { return nil, handle(ctx) })
		} else {
			err = grpclimit.StreamServerInterceptor(x.Limiter, request, grpclimit.WithLogger(x.Log.Logger()), grpclimit.RefundPanics())(nil, &serverStream{ctx: ctx}, &grpc.StreamServerInfo{},
				func(_ any, s grpc.ServerStream) error { return handle(s.Context()) })
		}
		if !errors.Is(err, failed) {
			t.Errorf("the call fails with %v, want the handler's error", err)
		}
	}()
	if end == "panics" {
		return 10
	}
	return 7
}

// TestClientsSettleInOutages breaks the store while a client's stream is open, whose lease is corrected. The answers come
// immediately. The end comes when the lease is settled, or given up.
func TestClientsSettleInOutages(t *testing.T) {
	faulttest.InOutages(t, notSettled, []string{"read", "cancelled", "too late", "abandoned"}, streamInOutage)
}

func streamInOutage(t *testing.T, x *faulttest.Trial, end string) (left int64) {
	request := grpclimit.Requests("api", "rpm", grpclimit.For("alice"))
	conn := dial(t, nil, grpc.WithStreamInterceptor(grpclimit.StreamClientInterceptor(x.Limiter, request, grpclimit.WithLogger(x.Log.Logger()))))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	stream := check.Call(conn.NewStream(ctx, &description.Streams[0], "/test.Echo/Many")).Must(t, "NewStream()")
	check.Fatal(t, "Adjust()", grpclimit.Lease(stream.Context()).Adjust(zlimit.Amounts{"rpm": 2}))
	x.Begin()
	answer := new(wrapperspb.StringValue)
	for _, text := range []string{"a", "b"} {
		if err := errors.Join(stream.SendMsg(wrapperspb.String(text)), stream.RecvMsg(answer)); err != nil || answer.GetValue() != text {
			t.Errorf("the answer to %q is %q, %v", text, answer.GetValue(), err)
		}
	}
	want := codes.OK
	switch end {
	case "read":
		_ = stream.CloseSend()
	case "cancelled", "abandoned":
		cancel()
		want = codes.Canceled
	case "too late":
		time.Sleep(time.Minute)
		want = codes.DeadlineExceeded
		x.Settling.Began = x.Settling.Began.Add(time.Minute)
	}
	if waited := time.Since(x.Settling.Began); waited != 0 {
		t.Errorf("the answers are held back for %v", waited)
	}
	if end == "abandoned" {
		time.Sleep(x.Takes)
		synctest.Wait()
	} else if err := stream.RecvMsg(answer); status.Code(err) != want && (want != codes.OK || !errors.Is(err, io.EOF)) {
		t.Errorf("the stream ends with %v, want %v", err, want)
	}
	return 7
}

// TestUnsentInOutages breaks the store before a call that no server takes. Its error stays.
func TestUnsentInOutages(t *testing.T) {
	faulttest.InOutages(t, notSettled, []string{"unary"}, func(t *testing.T, x *faulttest.Trial, _ string) (left int64) {
		request := grpclimit.Requests("api", "rpm", grpclimit.For("alice"))
		err := grpclimit.UnaryClientInterceptor(x.Limiter, request, grpclimit.WithLogger(x.Log.Logger()))(t.Context(), "/x/Y", nil, nil, nil,
			func(_ context.Context, _ string, _, _ any, _ *grpc.ClientConn, options ...grpc.CallOption) error {
				x.Begin()
				err := status.Error(codes.Unavailable, "no route")
				for _, o := range options { // as gRPC does at the end of each call
					if finish, ok := o.(grpc.OnFinishCallOption); ok {
						finish.OnFinish(err)
					}
				}
				return err
			})
		if status.Convert(err).Message() != "no route" {
			t.Errorf("the call = %v, want its own error", err)
		}
		return 10
	})
}

// TestMessagesInOutages breaks the store in the middle of streams that acquire for each message. The next message is
// refused with UNAVAILABLE, within the time of a call. The stream ends at both sides.
func TestMessagesInOutages(t *testing.T) {
	for _, b := range faulttest.Silent() {
		for _, side := range []string{"server", "client"} {
			t.Run(b.Name+", "+side, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					limiter, store := faulttest.New(t, faulttest.Never())
					request := grpclimit.Requests("api", "rpm", grpclimit.For("alice"))
					server, client := []grpc.ServerOption(nil), []grpc.DialOption(nil)
					if side == "server" {
						server = append(server, grpc.StreamInterceptor(grpclimit.StreamServerInterceptor(limiter, request, grpclimit.PerMessage())))
					} else {
						client = append(client, grpc.WithStreamInterceptor(grpclimit.StreamClientInterceptor(limiter, request, grpclimit.PerMessage())))
					}
					conn := dial(t, server, client...)
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					stream := check.Call(conn.NewStream(ctx, &description.Streams[0], "/test.Echo/Many")).Must(t, "NewStream()")
					answer := new(wrapperspb.StringValue)
					check.Fatal(t, "SendMsg() and RecvMsg()", errors.Join(stream.SendMsg(wrapperspb.String("a")), stream.RecvMsg(answer)))
					store.Break(b.Fault)
					began := time.Now()
					_ = stream.SendMsg(wrapperspb.String("b"))
					if err := stream.RecvMsg(answer); status.Code(err) != codes.Unavailable {
						t.Errorf("the stream ends with %v, want UNAVAILABLE", err)
					}
					if waited := time.Since(began); waited != b.Takes {
						t.Errorf("the stream is held back for %v, want %v", waited, b.Takes)
					}
				})
			})
		}
	}
}

// TestClosedWhileStreamsAreOpen closes the limiter. The streams go on; a lease with something to write is given up.
func TestClosedWhileStreamsAreOpen(t *testing.T) {
	for more, logged := range map[int64]int{0: 0, 2: 1} {
		limiter, _ := faulttest.New(t, faulttest.Never())
		var log faulttest.Log
		request := grpclimit.Requests("api", "rpm", grpclimit.For("alice"))
		conn := dial(t, nil, grpc.WithStreamInterceptor(grpclimit.StreamClientInterceptor(limiter, request, grpclimit.WithLogger(log.Logger()))))
		stream := check.Call(conn.NewStream(t.Context(), &description.Streams[0], "/test.Echo/Many")).Must(t, "NewStream()")
		check.Fatal(t, "Adjust()", grpclimit.Lease(stream.Context()).Adjust(zlimit.Amounts{"rpm": more}))
		check.Fatal(t, "Close()", limiter.Close())
		answer := new(wrapperspb.StringValue)
		if err := errors.Join(stream.SendMsg(wrapperspb.String("a")), stream.RecvMsg(answer), stream.CloseSend()); err != nil {
			t.Errorf("the stream fails with %v", err)
		}
		if err := stream.RecvMsg(answer); !errors.Is(err, io.EOF) || log.Count(notSettled) != logged {
			t.Errorf("the stream ends with %v, and the log is %q, want %d lines", err, &log, logged)
		}
	}
}
