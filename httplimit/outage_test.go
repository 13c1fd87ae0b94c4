package httplimit_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/zlimit/zlimit-go/httplimit"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/faulttest"
	"github.com/zlimit/zlimit-go/zlimit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// notSettled is logged of a lease that is given up.
const notSettled = "httplimit: a lease could not be settled"

// TestHandlersSettleInOutages breaks the store while a handler runs. Its request ends as ever, and its lease is settled once,
// or given up once.
func TestHandlersSettleInOutages(t *testing.T) {
	ends := faulttest.Pairs([]string{"returns", "panics"}, []string{"in time", "cancelled", "too late"})
	faulttest.InOutages(t, notSettled, ends, handleInOutage)
}

func handleInOutage(t *testing.T, x *faulttest.Trial, end [2]string) (left int64) {
	panics := end[0] == "panics"
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	h := httplimit.New(x.Limiter, byKey, httplimit.WithLogger(x.Log.Logger()), httplimit.RefundPanics())(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		check.Error(t, "Adjust()", httplimit.Lease(r.Context()).Adjust(zlimit.Amounts{"rpm": 2}))
		_, _ = io.WriteString(w, "hello")
		switch end[1] {
		case "cancelled":
			cancel()
		case "too late":
			time.Sleep(2 * time.Minute)
		}
		x.Begin()
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
	if w.Body.String() != "hello" {
		t.Errorf("the body is %q", w.Body)
	}
	if panics {
		return 10
	}
	return 7
}

// In TestLeasesThatCannotBeSettledAreALineAMinute, the store goes away beneath each of many handlers, and of many answers.
func TestLeasesThatCannotBeSettledAreALineAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, store := faulttest.New(t, faulttest.Never())
		var log, sent faulttest.Log
		h := httplimit.New(limiter, byKey, httplimit.WithLogger(log.Logger()))(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			check.Error(t, "Adjust()", httplimit.Lease(r.Context()).Adjust(zlimit.Amounts{"rpm": 2}))
			store.Break(faulttest.Down)
		}))
		transport := &httplimit.Transport{Limiter: limiter, Request: byKey, Logger: sent.Logger(), Base: faulttest.RoundTripper(
			func(r *http.Request) (*http.Response, error) {
				check.Error(t, "Adjust()", httplimit.Lease(r.Context()).Adjust(zlimit.Amounts{"rpm": 2}))
				store.Break(faulttest.Down)
				return nil, errors.New("broken")
			})}
		for range 3 {
			h.ServeHTTP(httptest.NewRecorder(), keyed(t))
			store.Break(nil)
			_, _ = transport.RoundTrip(keyed(t)) //nolint:bodyclose // there is none
			store.Break(nil)
		}
		time.Sleep(time.Minute)
		h.ServeHTTP(httptest.NewRecorder(), keyed(t))
		store.Break(nil)
		if log.Count(notSettled) != 2 || log.Count("left_out=2") != 1 || sent.Count(notSettled) != 1 {
			t.Errorf("of four handlers the log is %q, and of three calls %q", &log, &sent)
		}
	})
}

// TestClosedWhileAHandlerRuns closes the limiter. A lease without a correction has nothing left to write.
func TestClosedWhileAHandlerRuns(t *testing.T) {
	for more, logged := range map[int64]int{0: 0, 2: 1} {
		limiter, _ := faulttest.New(t, faulttest.Never())
		var log faulttest.Log
		h := httplimit.New(limiter, byKey, httplimit.WithLogger(log.Logger()))(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			check.Error(t, "Adjust()", httplimit.Lease(r.Context()).Adjust(zlimit.Amounts{"rpm": more}))
			check.Error(t, "Close()", limiter.Close())
		}))
		h.ServeHTTP(httptest.NewRecorder(), keyed(t))
		if log.Count(notSettled) != logged {
			t.Errorf("with %d tokens to write the log is %q, want %d lines", more, &log, logged)
		}
	}
}

// TestTransportSettlesInOutages breaks the store while an answer is read. Its bytes come immediately. Its end, or Close, comes
// when the lease is settled or given up.
func TestTransportSettlesInOutages(t *testing.T) {
	faulttest.InOutages(t, notSettled, []string{"read", "closed", "cancelled", "too late"}, readInOutage)
}

func readInOutage(t *testing.T, x *faulttest.Trial, end string) (left int64) {
	body := &faulttest.Body{Rest: "hello"}
	transport := &httplimit.Transport{
		Limiter: x.Limiter, Request: byKey, Logger: x.Log.Logger(),
		Base: faulttest.RoundTripper(func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: body, Request: r}, nil
		}),
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	response := check.Call(transport.RoundTrip(keyed(t).WithContext(ctx))).Must(t, "RoundTrip()")
	check.Fatal(t, "Adjust()", httplimit.Lease(response.Request.Context()).Adjust(zlimit.Amounts{"rpm": 2}))
	switch end {
	case "cancelled":
		cancel()
	case "too late":
		time.Sleep(2 * time.Minute)
	}
	x.Begin()
	got := make([]byte, 5)
	if n, err := io.ReadFull(response.Body, got); err != nil || string(got) != "hello" {
		t.Errorf("the bytes are %q, %v", got[:n], err)
	}
	if waited := time.Since(x.Settling.Began); waited != 0 {
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
	if got := body.Closed.Load(); got != 2 {
		t.Errorf("the body is closed %d times, want twice", got)
	}
	return 7
}

// TestUnsentInOutages breaks the store before a request that cannot be sent. Its error is that of the base.
func TestUnsentInOutages(t *testing.T) {
	unsent := errors.New("no route")
	faulttest.InOutages(t, notSettled, []string{"no connection"}, func(t *testing.T, x *faulttest.Trial, _ string) (left int64) {
		transport := &httplimit.Transport{
			Limiter: x.Limiter, Request: byKey, Logger: x.Log.Logger(),
			Base: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
				x.Begin()
				return nil, unsent
			}},
		}
		if _, err := transport.RoundTrip(absolute(t)); !errors.Is(err, unsent) {
			t.Errorf("RoundTrip() = %v, want the error of the base", err)
		}
		return 10
	})
}

// absolute is a request of a client.
func absolute(t *testing.T) *http.Request {
	t.Helper()
	r := keyed(t)
	r.URL.Scheme, r.URL.Host = "http", "nobody.test"
	return r
}
