package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/zlimit/zlimit-go/httplimit"
	"github.com/zlimit/zlimit-go/internal/proof/faulttest"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/zlimittest"
)

// TestSkip sends requests without a key: those that are skipped reach the handler, others do not.
func TestSkip(t *testing.T) {
	limiter, _ := zlimittest.New(t, zlimit.PerHour("rpm", 10))
	health := func(r *http.Request) bool { return r.URL.Path == "/healthz" }
	h := httplimit.New(limiter, byKey, httplimit.Skip(httplimit.IsPreflight), httplimit.Skip(health))(ok)
	preflight := http.Header{"Origin": {"https://a.test"}, "Access-Control-Request-Method": {"POST"}}
	for _, test := range []struct {
		method, path string
		header       http.Header
		status       int
	}{
		{http.MethodOptions, "/", preflight, 200},
		{http.MethodOptions, "/", nil, 401},
		{http.MethodPost, "/", preflight, 401},
		{http.MethodGet, "/healthz", nil, 200},
		{http.MethodGet, "/", nil, 401},
	} {
		r := httptest.NewRequestWithContext(t.Context(), test.method, test.path, http.NoBody)
		if test.header != nil {
			r.Header = test.header
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != test.status || w.Code == 200 && len(w.Header()) > 0 {
			t.Errorf("%s %s %v is answered %d %v, want %d", test.method, test.path, test.header, w.Code, w.Header(), test.status)
		}
	}
	if got := limiter.Stats().Admitted; got != 0 {
		t.Errorf("%d requests were limited, want none", got)
	}
}

// TestPanicsAreCharged sends 50 requests to a handler that panics. It runs as often as the limit says, unless panics are
// given back.
func TestPanicsAreCharged(t *testing.T) {
	for _, test := range []struct {
		opts []httplimit.Option
		ran  int
	}{{nil, 3}, {[]httplimit.Option{httplimit.RefundPanics()}, 50}} {
		limiter, _ := zlimittest.New(t, zlimit.PerHour("rpm", 3))
		ran := 0
		h := httplimit.New(limiter, byKey, test.opts...)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			ran++
			panic("broken")
		}))
		for range 50 {
			func() {
				defer func() { _ = recover() }()
				get(t, h, "alice")
			}()
		}
		if ran != test.ran {
			t.Errorf("with %d options the handler ran %d times, want %d", len(test.opts), ran, test.ran)
		}
	}
}

// TestInnerRejections sends requests through three limits, of which the innermost rejects. The others give back. An inner
// error that is no rejection is charged.
func TestInnerRejections(t *testing.T) {
	outer, _ := zlimittest.New(t, zlimit.PerHour("rpm", 10))
	middle, _ := zlimittest.New(t, zlimit.PerHour("rpm", 10))
	inner, _ := zlimittest.New(t, zlimit.PerHour("rpm", 2))
	everybody := httplimit.Requests("api", "rpm", func(*http.Request) (string, error) { return "all", nil })
	h := httplimit.New(outer, everybody)(httplimit.New(middle, everybody)(httplimit.New(inner, byKey)(ok)))
	for i, want := range []struct {
		key    string
		status int
		left   int64
	}{{"alice", 200, 9}, {"alice", 200, 8}, {"alice", 429, 8}, {"alice", 429, 8}, {"", 401, 7}} {
		got := get(t, h, want.key).StatusCode
		for name, l := range map[string]*zlimit.RateLimiter{"outer": outer, "middle": middle} {
			if left := faulttest.Left(t, l, "all"); got != want.status || left != want.left {
				t.Errorf("request %d: %d, %d left of the %s limit, want %d and %d", i, got, left, name, want.status, want.left)
			}
		}
	}
}
