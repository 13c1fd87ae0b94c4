package connectlimit_test

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/zlimit/zlimit-go/connectlimit"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/faulttest"
	"github.com/zlimit/zlimit-go/zlimit"
)

// notSettled is logged of a lease that is given up.
const notSettled = "connectlimit: a lease could not be settled"

// TestHandlersSettleInOutages breaks the store while a handler of each kind runs, which corrects its lease and returns or
// panics. The call ends as ever; the lease is settled once, or given up once.
func TestHandlersSettleInOutages(t *testing.T) {
	ends := faulttest.Pairs([]string{"returns", "panics", "cancelled"}, slices.Collect(maps.Keys(kinds)))
	faulttest.InOutages(t, notSettled, ends, handleInOutage)
}

func handleInOutage(t *testing.T, x *faulttest.Trial, kind [2]string) (left int64) {
	end := kind[0]
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	recovered := connect.WithRecover(func(context.Context, connect.Spec, http.Header, any) error {
		return connect.NewError(connect.CodeAborted, errors.New("panic"))
	})
	s := newService(t, func(ctx context.Context, _ string) error {
		check.Error(t, "Adjust()", connectlimit.Lease(ctx).Adjust(zlimit.Amounts{"rpm": 2}))
		if end == "cancelled" {
			cancel()
			<-ctx.Done()
		}
		x.Begin()
		if end == "panics" {
			panic("broken")
		}
		return connect.NewError(connect.CodeNotFound, errors.New("no such book"))
	}, []connect.HandlerOption{recovered, connect.WithInterceptors(connectlimit.New(x.Limiter, alice, connectlimit.WithLogger(x.Log.Logger()), connectlimit.RefundPanics()))})
	_, err := kinds[kind[1]](ctx, s, "a")
	want := map[string]connect.Code{"returns": connect.CodeNotFound, "panics": connect.CodeAborted, "cancelled": connect.CodeCanceled}[end]
	if code(err) != want {
		t.Errorf("the call fails with %v, want %v", err, want)
	}
	if end == "cancelled" { // the client does not wait for the handler
		time.Sleep(x.Takes)
		synctest.Wait()
	}
	if end == "panics" {
		return 10
	}
	return 7
}

// TestUnsentInOutages breaks the store before calls of each kind that no server takes. Their errors stay.
func TestUnsentInOutages(t *testing.T) {
	faulttest.InOutages(t, notSettled, slices.Collect(maps.Keys(kinds)), func(t *testing.T, x *faulttest.Trial, kind string) (left int64) {
		option := connect.WithInterceptors(connectlimit.New(x.Limiter, alice, connectlimit.WithLogger(x.Log.Logger())))
		procedure := func(name string) *connect.Client[text, text] {
			return connect.NewClient[text, text](&http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
				x.Begin()
				return nil, errors.New("no route")
			}}}, "http://nobody/"+name, option)
		}
		s := &service{unary: procedure("Unary"), client: procedure("Client"), server: procedure("Server"), bidi: procedure("Bidi")}
		_, err := kinds[kind](t.Context(), s, "a")
		if code(err) != connect.CodeUnavailable || !strings.Contains(err.Error(), "no route") {
			t.Errorf("the call = %v, want the error of the network", err)
		}
		return 10
	})
}

// TestMessagesInOutages breaks the store in the middle of streams that acquire for each message. The next message is
// refused as unavailable, within the time of a call. The stream ends at both sides.
func TestMessagesInOutages(t *testing.T) {
	for _, b := range faulttest.Silent() {
		for _, side := range []string{"handler", "client"} {
			t.Run(b.Name+", "+side, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					limiter, store := faulttest.New(t, faulttest.Never())
					option := connect.WithInterceptors(connectlimit.New(limiter, alice, connectlimit.PerMessage()))
					var s *service
					if side == "handler" {
						s = newService(t, echo, []connect.HandlerOption{option})
					} else {
						s = newService(t, echo, nil, option)
					}
					stream := s.bidi.CallBidiStream(t.Context())
					check.Fatal(t, "Send()", stream.Send(wrapperspb.String("a")))
					if _, err := stream.Receive(); err != nil {
						t.Fatalf("Receive() = %v", err)
					}
					store.Break(b.Fault)
					began := time.Now()
					_ = stream.Send(wrapperspb.String("b"))
					if _, err := stream.Receive(); code(err) != connect.CodeUnavailable {
						t.Errorf("the stream ends with %v, want unavailable", err)
					}
					if err := <-s.ended; err == nil {
						t.Error("the server takes the messages before for all")
					}
					if waited := time.Since(began); waited != b.Takes {
						t.Errorf("the stream is held back for %v, want %v", waited, b.Takes)
					}
					_ = stream.CloseRequest()
					_ = stream.CloseResponse()
				})
			})
		}
	}
}

// TestClosedWhileHandlersRun closes the limiter. The call goes on; a lease with something to write is given up.
func TestClosedWhileHandlersRun(t *testing.T) {
	for kind, call := range kinds {
		for more, logged := range map[int64]int{0: 0, 2: 1} {
			limiter, _ := faulttest.New(t, faulttest.Never())
			var log faulttest.Log
			s := newService(t, func(ctx context.Context, _ string) error {
				return errors.Join(connectlimit.Lease(ctx).Adjust(zlimit.Amounts{"rpm": more}), limiter.Close())
			}, []connect.HandlerOption{connect.WithInterceptors(connectlimit.New(limiter, alice, connectlimit.WithLogger(log.Logger())))})
			if n, err := call(t.Context(), s, "a"); n == 0 || err != nil || log.Count(notSettled) != logged {
				t.Errorf("%s: %d answers, %v, and the log is %q, want %d lines", kind, n, err, &log, logged)
			}
		}
	}
}
