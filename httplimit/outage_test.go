package httplimit_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/zlimit/zlimit-go/httplimit"
	"github.com/zlimit/zlimit-go/internal/faulttest"
	"github.com/zlimit/zlimit-go/zlimit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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

func (l *log) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// lines returns how many lines say that a lease could not be settled.
func (l *log) lines() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), "httplimit: a lease could not be settled")
}

// left returns what is left of a limit of ten.
func left(t *testing.T, l *zlimit.RateLimiter) int64 {
	t.Helper()
	statuses, err := l.Available(context.Background(), "alice", "api")
	if err != nil {
		t.Fatal(err)
	}
	return statuses[0].Available
}

// never is a limit that does not refill during a test.
var never = []zlimit.Limit{zlimit.PerDay("rpm", 10)}

// A breakage is a fault while a lease is settled that took one token of ten, with what becomes of it.
type breakage struct {
	name      string
	fault     faulttest.Fault
	corrected int64 // left after two tokens more
	returned  int64 // left after a rollback
	takes     time.Duration
	logged    int
}

var breakages = []breakage{
	{"none", nil, 7, 10, 0, 0},
	{"slow", faulttest.Slow(time.Second), 7, 10, time.Second, 0},
	{"too slow", faulttest.Slow(3 * time.Second), 9, 9, 2 * time.Second, 1},
	{"down", faulttest.Down, 9, 9, 0, 1},
	{"a lost reply", faulttest.Lost, 7, 10, 0, 1},
	{"no reply", faulttest.Hang, 7, 10, 2 * time.Second, 1},
}

// TestHandlersSettleInOutages breaks the store while a handler runs. Its request ends as ever, and its lease is settled once,
// or given up once.
func TestHandlersSettleInOutages(t *testing.T) {
	for _, b := range breakages {
		for _, panics := range []bool{false, true} {
			for _, end := range []string{"", "cancelled", "too late"} {
				name := b.name
				if panics {
					name += ", panics"
				}
				t.Run(name+", "+end, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { handleInOutage(t, b, panics, end) })
				})
			}
		}
	}
}

func handleInOutage(t *testing.T, b breakage, panics bool, end string) {
	limiter, store := faulttest.New(t, never)
	var log log
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var ended time.Time
	var before int64
	h := httplimit.New(limiter, byKey, httplimit.WithLogger(log.logger()))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := httplimit.Lease(r.Context()).Adjust(zlimit.Amounts{"rpm": 2}); err != nil {
			t.Error(err)
		}
		_, _ = io.WriteString(w, "hello")
		switch end {
		case "cancelled":
			cancel()
		case "too late":
			time.Sleep(2 * time.Minute)
		}
		store.Break(b.fault)
		ended, before = time.Now(), store.Writes()
		if panics {
			panic("broken")
		}
	}))
	w := httptest.NewRecorder()
	func() {
		defer func() {
			if got := recover(); (got == "broken") != panics {
				t.Errorf("the panic is %v", got)
			}
		}()
		h.ServeHTTP(w, keyed(t).WithContext(ctx))
	}()
	if got := time.Since(ended); got != b.takes {
		t.Errorf("the response is held back for %v, want %v", got, b.takes)
	}
	if got := store.Writes() - before; got != 1 {
		t.Errorf("%d writes settle the lease, want 1", got)
	}
	if w.Body.String() != "hello" || log.lines() != b.logged {
		t.Errorf("the body is %q, and the log %q, want %d lines", w.Body, &log.text, b.logged)
	}
	store.Break(nil)
	want := b.corrected
	if panics {
		want = b.returned
	}
	if got := left(t, limiter); got != want {
		t.Errorf("%d left, want %d", got, want)
	}
}

// TestClosedWhileAHandlerRuns closes the limiter. A lease without a correction has nothing left to write.
func TestClosedWhileAHandlerRuns(t *testing.T) {
	for more, logged := range map[int64]int{0: 0, 2: 1} {
		limiter, _ := faulttest.New(t, never)
		var log log
		h := httplimit.New(limiter, byKey, httplimit.WithLogger(log.logger()))(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if err := httplimit.Lease(r.Context()).Adjust(zlimit.Amounts{"rpm": more}); err != nil {
				t.Error(err)
			}
			if err := limiter.Close(); err != nil {
				t.Error(err)
			}
		}))
		h.ServeHTTP(httptest.NewRecorder(), keyed(t))
		if log.lines() != logged {
			t.Errorf("with %d tokens to write the log is %q, want %d lines", more, &log.text, logged)
		}
	}
}

// An atOnce body returns its end with its last bytes, as those of net/http do that have a length.
type atOnce struct {
	rest   string
	closed int
}

func (b *atOnce) Read(p []byte) (int, error) {
	n := copy(p, b.rest)
	if b.rest = b.rest[n:]; b.rest == "" {
		return n, io.EOF
	}
	return n, nil
}

func (b *atOnce) Close() error {
	b.closed++
	return nil
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestTransportSettlesInOutages breaks the store while an answer is read. Its bytes come at once. Its end, or Close, comes when
// the lease is settled or given up.
func TestTransportSettlesInOutages(t *testing.T) {
	for _, b := range breakages {
		for _, end := range []string{"read", "closed", "cancelled", "too late"} {
			t.Run(b.name+", "+end, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { readInOutage(t, b, end) })
			})
		}
	}
}

func readInOutage(t *testing.T, b breakage, end string) {
	limiter, store := faulttest.New(t, never)
	var log log
	body := &atOnce{rest: "hello"}
	transport := &httplimit.Transport{
		Limiter: limiter, Request: byKey, Logger: log.logger(),
		Base: roundTripper(func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: body, Request: r}, nil
		}),
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	response, err := transport.RoundTrip(keyed(t).WithContext(ctx))
	if err != nil {
		t.Fatal(err)
	}
	if err := httplimit.Lease(response.Request.Context()).Adjust(zlimit.Amounts{"rpm": 2}); err != nil {
		t.Fatal(err)
	}
	switch end {
	case "cancelled":
		cancel()
	case "too late":
		time.Sleep(2 * time.Minute)
	}
	store.Break(b.fault)
	began, before := time.Now(), store.Writes()
	got := make([]byte, 5)
	if n, err := io.ReadFull(response.Body, got); err != nil || string(got) != "hello" {
		t.Errorf("the bytes are %q, %v", got[:n], err)
	}
	if waited := time.Since(began); waited != 0 {
		t.Errorf("the last bytes are held back for %v", waited)
	}
	if end != "closed" {
		if n, err := response.Body.Read(got); n != 0 || !errors.Is(err, io.EOF) {
			t.Errorf("Read() at the end = %d, %v", n, err)
		}
	}
	for range 2 {
		_ = response.Body.Close()
	}
	if waited := time.Since(began); waited != b.takes {
		t.Errorf("the end is held back for %v, want %v", waited, b.takes)
	}
	if got := store.Writes() - before; got != 1 || log.lines() != b.logged || body.closed != 2 {
		t.Errorf("%d writes, want 1; the log is %q, want %d lines; %d times closed, want twice", got, &log.text, b.logged, body.closed)
	}
	store.Break(nil)
	if got := left(t, limiter); got != b.corrected {
		t.Errorf("%d left, want %d", got, b.corrected)
	}
}

// TestUnsentInOutages breaks the store before a request that cannot be sent. Its error is that of the base.
func TestUnsentInOutages(t *testing.T) {
	unsent := errors.New("no route")
	for _, b := range breakages {
		t.Run(b.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limiter, store := faulttest.New(t, never)
				var log log
				var began time.Time
				transport := &httplimit.Transport{
					Limiter: limiter, Request: byKey, Logger: log.logger(),
					Base: roundTripper(func(*http.Request) (*http.Response, error) {
						store.Break(b.fault)
						began = time.Now()
						return nil, unsent
					}),
				}
				if _, err := transport.RoundTrip(keyed(t)); !errors.Is(err, unsent) || time.Since(began) != b.takes || log.lines() != b.logged {
					t.Errorf("RoundTrip() = %v after %v, want the error of the base after %v; the log is %q, want %d lines", err, time.Since(began), b.takes, &log.text, b.logged)
				}
				store.Break(nil)
				if got := left(t, limiter); got != b.returned {
					t.Errorf("%d left, want %d", got, b.returned)
				}
			})
		})
	}
}
