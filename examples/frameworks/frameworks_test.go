package frameworks

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/zlimittest"
)

func TestFrameworks(t *testing.T) {
	serve := func(h http.Handler) func(*http.Request) (*http.Response, error) {
		return func(r *http.Request) (*http.Response, error) {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			return w.Result(), nil
		}
	}
	for name, start := range map[string]func(*zlimit.RateLimiter) func(*http.Request) (*http.Response, error){
		"chi":  func(l *zlimit.RateLimiter) func(*http.Request) (*http.Response, error) { return serve(Chi(l)) },
		"echo": func(l *zlimit.RateLimiter) func(*http.Request) (*http.Response, error) { return serve(Echo(l)) },
		"gin":  func(l *zlimit.RateLimiter) func(*http.Request) (*http.Response, error) { return serve(Gin(l)) },
		"fiber": func(l *zlimit.RateLimiter) func(*http.Request) (*http.Response, error) {
			app := Fiber(l)
			return func(r *http.Request) (*http.Response, error) { return app.Test(r, -1) }
		},
	} {
		limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 1))
		do := start(limiter)
		for _, want := range []struct {
			status       int
			key, state   string
			body, resets string
		}{
			{200, "alice", `"rpm";r=0;t=60`, "hello", ""},
			{429, "alice", `"rpm";r=0;t=60`, "", "60"},
			{401, "", "", "", ""},
		} {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
			if want.key != "" {
				r.Header.Set("X-API-Key", want.key)
			}
			got, err := do(r)
			if err != nil {
				t.Fatalf("do() = %v", err)
			}
			body, err := io.ReadAll(got.Body)
			if err != nil {
				t.Fatalf("io.ReadAll() = %v", err)
			}
			if got.StatusCode != want.status || got.Header.Get("RateLimit") != want.state || got.Header.Get("Retry-After") != want.resets ||
				want.body != "" && string(body) != want.body || want.status != 200 && string(body) == "hello" {
				t.Errorf("%s: the answer is %d %v %s, want %+v", name, got.StatusCode, got.Header, body, want)
			}
		}
	}
}
