package grpclimit_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/zlimit/zlimit-go/grpclimit"
	"github.com/zlimit/zlimit-go/internal/faulttest"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A breakage is a fault while a lease is settled, with what becomes of it.
type breakage struct {
	name    string
	fault   faulttest.Fault
	written bool // what settles it is
	takes   time.Duration
	logged  int
}

var breakages = []breakage{
	{"none", nil, true, 0, 0},
	{"slow", faulttest.Slow(time.Second), true, time.Second, 0},
	{"too slow", faulttest.Slow(3 * time.Second), false, 2 * time.Second, 1},
	{"down", faulttest.Down, false, 0, 1},
	{"a lost reply", faulttest.Lost, true, 0, 1},
	{"no reply", faulttest.Hang, true, 2 * time.Second, 1},
}

// never is a limit that does not refill during a test.
var never = []zlimit.Limit{zlimit.PerDay("rpm", 10)}

// A log counts the lines of a logger.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *log) option() grpclimit.Option {
	return grpclimit.WithLogger(slog.New(slog.NewTextHandler(l, nil)))
}

// lines returns how many lines say that a lease could not be settled.
func (l *log) lines() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), "grpclimit: a lease could not be settled")
}

// TestHandlersSettleInOutages breaks the store while a handler runs, which corrects its lease and returns or panics. The call
// ends as ever; the lease is settled once, or given up once.
func TestHandlersSettleInOutages(t *testing.T) {
	for _, b := range breakages {
		for _, end := range []string{"returns", "panics", "cancelled", "too late"} {
			for _, kind := range []string{"unary", "stream"} {
				t.Run(b.name+", "+end+", "+kind, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { handleInOutage(t, b, end, kind) })
				})
			}
		}
	}
}

// A serverStream is one without messages.
type serverStream struct {
	grpc.ServerStream
	ctx context.Context //nolint:containedctx // it is the stream's
}

func (s *serverStream) Context() context.Context { return s.ctx }
func (s *serverStream) SetTrailer(metadata.MD)   {}

func handleInOutage(t *testing.T, b breakage, end, kind string) {
	limiter, store := faulttest.New(t, never)
	var log log
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var ended time.Time
	var before int64
	failed := status.Error(codes.NotFound, "no such book")
	handle := func(ctx context.Context) error {
		if err := grpclimit.Lease(ctx).Adjust(zlimit.Amounts{"rpm": 2}); err != nil {
			t.Error(err)
		}
		switch end {
		case "cancelled":
			cancel()
		case "too late":
			time.Sleep(2 * time.Minute)
		}
		store.Break(b.fault)
		ended, before = time.Now(), store.Writes()
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
		if kind == "unary" {
			_, err = grpclimit.UnaryServerInterceptor(limiter, request, log.option())(ctx, nil, &grpc.UnaryServerInfo{},
				func(ctx context.Context, _ any) (any, error) { return nil, handle(ctx) })
		} else {
			err = grpclimit.StreamServerInterceptor(limiter, request, log.option())(nil, &serverStream{ctx: ctx}, &grpc.StreamServerInfo{},
				func(_ any, s grpc.ServerStream) error { return handle(s.Context()) })
		}
		if !errors.Is(err, failed) {
			t.Errorf("the call fails with %v, want the handler's error", err)
		}
	}()
	if got := time.Since(ended); got != b.takes {
		t.Errorf("the call is held back for %v, want %v", got, b.takes)
	}
	if got := store.Writes() - before; got != 1 || log.lines() != b.logged {
		t.Errorf("%d writes, want 1; the log is %q, want %d lines", got, &log.text, b.logged)
	}
	store.Break(nil)
	want := int64(9)
	switch {
	case b.written && end == "panics":
		want = 10
	case b.written:
		want = 7
	}
	if got := left(t, limiter, "alice"); got != want {
		t.Errorf("%d left, want %d", got, want)
	}
}

// TestClientsSettleInOutages breaks the store while a client's stream is open, whose lease is corrected. The answers come at
// once. The end comes when the lease is settled, or given up.
func TestClientsSettleInOutages(t *testing.T) {
	for _, b := range breakages {
		for _, end := range []string{"read", "cancelled", "too late", "abandoned"} {
			t.Run(b.name+", "+end, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { streamInOutage(t, b, end) })
			})
		}
	}
}

func streamInOutage(t *testing.T, b breakage, end string) {
	limiter, store := faulttest.New(t, never)
	var log log
	request := grpclimit.Requests("api", "rpm", grpclimit.For("alice"))
	conn := dial(t, nil, grpc.WithStreamInterceptor(grpclimit.StreamClientInterceptor(limiter, request, log.option())))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	stream, err := conn.NewStream(ctx, &description.Streams[0], "/test.Echo/Many")
	if err != nil {
		t.Fatal(err)
	}
	if err := grpclimit.Lease(stream.Context()).Adjust(zlimit.Amounts{"rpm": 2}); err != nil {
		t.Fatal(err)
	}
	store.Break(b.fault)
	began, before := time.Now(), store.Writes()
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
		began = began.Add(time.Minute)
	}
	if waited := time.Since(began); waited != 0 {
		t.Errorf("the answers are held back for %v", waited)
	}
	if end == "abandoned" {
		time.Sleep(b.takes)
		synctest.Wait()
	} else if err := stream.RecvMsg(answer); status.Code(err) != want && (want != codes.OK || !errors.Is(err, io.EOF)) {
		t.Errorf("the stream ends with %v, want %v", err, want)
	}
	if waited := time.Since(began); waited != b.takes {
		t.Errorf("the end is held back for %v, want %v", waited, b.takes)
	}
	if got := store.Writes() - before; got != 1 || log.lines() != b.logged {
		t.Errorf("%d writes, want 1; the log is %q, want %d lines", got, &log.text, b.logged)
	}
	store.Break(nil)
	if got, want := left(t, limiter, "alice"), map[bool]int64{true: 7, false: 9}[b.written]; got != want {
		t.Errorf("%d left, want %d", got, want)
	}
}

// TestUnsentInOutages breaks the store before a call that no server takes. Its error stays.
func TestUnsentInOutages(t *testing.T) {
	for _, b := range breakages {
		t.Run(b.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limiter, store := faulttest.New(t, never)
				var log log
				request := grpclimit.Requests("api", "rpm", grpclimit.For("alice"))
				var began time.Time
				err := grpclimit.UnaryClientInterceptor(limiter, request, log.option())(t.Context(), "/x/Y", nil, nil, nil,
					func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
						store.Break(b.fault)
						began = time.Now()
						return status.Error(codes.Unavailable, "no route")
					})
				if status.Convert(err).Message() != "no route" || time.Since(began) != b.takes || log.lines() != b.logged {
					t.Errorf("the call = %v after %v, want its own error after %v; the log is %q, want %d lines", err, time.Since(began), b.takes, &log.text, b.logged)
				}
				store.Break(nil)
				if got, want := left(t, limiter, "alice"), map[bool]int64{true: 10, false: 9}[b.written]; got != want {
					t.Errorf("%d left, want %d", got, want)
				}
			})
		})
	}
}

// TestMessagesInOutages breaks the store in the middle of streams that acquire for each message: the next message is refused
// with UNAVAILABLE, within the time of a call, and the stream ends at both sides.
func TestMessagesInOutages(t *testing.T) {
	for _, b := range []breakage{breakages[2], breakages[3], breakages[5]} {
		for _, side := range []string{"server", "client"} {
			t.Run(b.name+", "+side, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					limiter, store := faulttest.New(t, never)
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
					stream, err := conn.NewStream(ctx, &description.Streams[0], "/test.Echo/Many")
					if err != nil {
						t.Fatal(err)
					}
					answer := new(wrapperspb.StringValue)
					if err := errors.Join(stream.SendMsg(wrapperspb.String("a")), stream.RecvMsg(answer)); err != nil {
						t.Fatal(err)
					}
					store.Break(b.fault)
					began := time.Now()
					_ = stream.SendMsg(wrapperspb.String("b"))
					if err := stream.RecvMsg(answer); status.Code(err) != codes.Unavailable {
						t.Errorf("the stream ends with %v, want UNAVAILABLE", err)
					}
					if waited := time.Since(began); waited != b.takes {
						t.Errorf("the stream is held back for %v, want %v", waited, b.takes)
					}
				})
			})
		}
	}
}

// TestClosedWhileStreamsAreOpen closes the limiter. The streams go on; a lease with something to write is given up.
func TestClosedWhileStreamsAreOpen(t *testing.T) {
	for more, logged := range map[int64]int{0: 0, 2: 1} {
		limiter, _ := faulttest.New(t, never)
		var log log
		request := grpclimit.Requests("api", "rpm", grpclimit.For("alice"))
		conn := dial(t, nil, grpc.WithStreamInterceptor(grpclimit.StreamClientInterceptor(limiter, request, log.option())))
		stream, err := conn.NewStream(t.Context(), &description.Streams[0], "/test.Echo/Many")
		if err != nil {
			t.Fatal(err)
		}
		if err := grpclimit.Lease(stream.Context()).Adjust(zlimit.Amounts{"rpm": more}); err != nil {
			t.Fatal(err)
		}
		if err := limiter.Close(); err != nil {
			t.Fatal(err)
		}
		answer := new(wrapperspb.StringValue)
		if err := errors.Join(stream.SendMsg(wrapperspb.String("a")), stream.RecvMsg(answer), stream.CloseSend()); err != nil {
			t.Errorf("the stream fails with %v", err)
		}
		if err := stream.RecvMsg(answer); !errors.Is(err, io.EOF) || log.lines() != logged {
			t.Errorf("the stream ends with %v, and the log is %q, want %d lines", err, &log.text, logged)
		}
	}
}
