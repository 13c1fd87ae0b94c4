package connectlimit_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/zlimit/zlimit-go/connectlimit"
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

func (l *log) option() connectlimit.Option {
	return connectlimit.WithLogger(slog.New(slog.NewTextHandler(l, nil)))
}

// lines returns how many lines say that a lease could not be settled.
func (l *log) lines() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), "connectlimit: a lease could not be settled")
}

// TestHandlersSettleInOutages breaks the store while a handler of each kind runs, which corrects its lease and returns or
// panics. The call ends as ever; the lease is settled once, or given up once.
func TestHandlersSettleInOutages(t *testing.T) {
	for _, b := range breakages {
		for kind, call := range kinds {
			for _, end := range []string{"returns", "panics", "cancelled"} {
				t.Run(b.name+", "+end+", "+kind, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { handleInOutage(t, b, call, end) })
				})
			}
		}
	}
}

func handleInOutage(t *testing.T, b breakage, call func(context.Context, *service, ...string) (int, error), end string) {
	limiter, store := faulttest.New(t, never)
	var log log
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var ended time.Time
	var before int64
	recovered := connect.WithRecover(func(context.Context, connect.Spec, http.Header, any) error {
		return connect.NewError(connect.CodeAborted, errors.New("panic"))
	})
	s := newService(t, func(ctx context.Context, _ string) error {
		if err := connectlimit.Lease(ctx).Adjust(zlimit.Amounts{"rpm": 2}); err != nil {
			t.Error(err)
		}
		if end == "cancelled" {
			cancel()
			<-ctx.Done()
		}
		store.Break(b.fault)
		ended, before = time.Now(), store.Writes()
		if end == "panics" {
			panic("broken")
		}
		return connect.NewError(connect.CodeNotFound, errors.New("no such book"))
	}, []connect.HandlerOption{recovered, connect.WithInterceptors(connectlimit.New(limiter, alice, log.option()))})
	_, err := call(ctx, s, "a")
	want := map[string]connect.Code{"returns": connect.CodeNotFound, "panics": connect.CodeAborted, "cancelled": connect.CodeCanceled}[end]
	if code(err) != want {
		t.Errorf("the call fails with %v, want %v", err, want)
	}
	if end == "cancelled" { // the client does not wait for the handler
		time.Sleep(b.takes)
		synctest.Wait()
	}
	if got := time.Since(ended); got != b.takes {
		t.Errorf("the call is held back for %v, want %v", got, b.takes)
	}
	if got := store.Writes() - before; got != 1 || log.lines() != b.logged {
		t.Errorf("%d writes, want 1; the log is %q, want %d lines", got, &log.text, b.logged)
	}
	store.Break(nil)
	remain := int64(9)
	switch {
	case b.written && end == "panics":
		remain = 10
	case b.written:
		remain = 7
	}
	if got := left(t, limiter, "alice"); got != remain {
		t.Errorf("%d left, want %d", got, remain)
	}
}

// TestUnsentInOutages breaks the store before calls of each kind that no server takes. Their errors stay.
func TestUnsentInOutages(t *testing.T) {
	for _, b := range breakages {
		for kind, call := range kinds {
			t.Run(b.name+", "+kind, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					limiter, store := faulttest.New(t, never)
					var log log
					var began time.Time
					option := connect.WithInterceptors(connectlimit.New(limiter, alice, log.option()))
					procedure := func(name string) *connect.Client[text, text] {
						return connect.NewClient[text, text](&http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
							store.Break(b.fault)
							began = time.Now()
							_ = r.Body.Close()
							return nil, errors.New("no route")
						})}, "http://nobody/"+name, option)
					}
					s := &service{unary: procedure("Unary"), client: procedure("Client"), server: procedure("Server"), bidi: procedure("Bidi")}
					_, err := call(t.Context(), s, "a")
					if code(err) != connect.CodeUnavailable || !strings.Contains(err.Error(), "no route") {
						t.Errorf("the call = %v, want the error of the network", err)
					}
					if waited := time.Since(began); waited != b.takes || log.lines() != b.logged {
						t.Errorf("the error is held back for %v, want %v; the log is %q, want %d lines", waited, b.takes, &log.text, b.logged)
					}
					store.Break(nil)
					if got, want := left(t, limiter, "alice"), map[bool]int64{true: 10, false: 9}[b.written]; got != want {
						t.Errorf("%d left, want %d", got, want)
					}
				})
			})
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestMessagesInOutages breaks the store in the middle of streams that acquire for each message: the next message is refused
// as unavailable, within the time of a call, and the stream ends at both sides.
func TestMessagesInOutages(t *testing.T) {
	for _, b := range []breakage{breakages[2], breakages[3], breakages[5]} {
		for _, side := range []string{"handler", "client"} {
			t.Run(b.name+", "+side, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					limiter, store := faulttest.New(t, never)
					option := connect.WithInterceptors(connectlimit.New(limiter, alice, connectlimit.PerMessage()))
					var s *service
					if side == "handler" {
						s = newService(t, echo, []connect.HandlerOption{option})
					} else {
						s = newService(t, echo, nil, option)
					}
					stream := s.bidi.CallBidiStream(t.Context())
					if err := stream.Send(wrapperspb.String("a")); err != nil {
						t.Fatal(err)
					}
					if _, err := stream.Receive(); err != nil {
						t.Fatal(err)
					}
					store.Break(b.fault)
					began := time.Now()
					_ = stream.Send(wrapperspb.String("b"))
					if _, err := stream.Receive(); code(err) != connect.CodeUnavailable {
						t.Errorf("the stream ends with %v, want unavailable", err)
					}
					if err := <-s.ended; err == nil {
						t.Error("the server takes the messages before for all")
					}
					if waited := time.Since(began); waited != b.takes {
						t.Errorf("the stream is held back for %v, want %v", waited, b.takes)
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
			limiter, _ := faulttest.New(t, never)
			var log log
			s := newService(t, func(ctx context.Context, _ string) error {
				return errors.Join(connectlimit.Lease(ctx).Adjust(zlimit.Amounts{"rpm": more}), limiter.Close())
			}, []connect.HandlerOption{connect.WithInterceptors(connectlimit.New(limiter, alice, log.option()))})
			if n, err := call(t.Context(), s, "a"); n == 0 || err != nil || log.lines() != logged {
				t.Errorf("%s: %d answers, %v, and the log is %q, want %d lines", kind, n, err, &log.text, logged)
			}
		}
	}
}
