package httplimit_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/zlimit/zlimit-go/httplimit"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/zlimittest"
)

// TestCanceledRequestsAreNoSuccess ends the contexts of requests whose clients go on to read. The context is that of
// a server that shuts down, or of middleware around the limit. The handler does not run, so the answer is no success.
func TestCanceledRequestsAreNoSuccess(t *testing.T) {
	limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 10))
	limited := httplimit.New(limiter, byKey)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the handler runs") }))
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	for name, server := range map[string]*http.Server{
		"a shutdown": {Handler: limited, BaseContext: func(net.Listener) context.Context { return canceled }},
		"outer middleware": {Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithCancel(r.Context())
			cancel()
			limited.ServeHTTP(w, r.WithContext(ctx))
		})},
	} {
		s := httptest.NewUnstartedServer(nil)
		s.Config = server
		s.Start()
		r := check.Call(http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL, http.NoBody)).Must(t, "http.NewRequestWithContext()")
		r.Header.Set("X-API-Key", "alice")
		response := check.Call(s.Client().Do(r)).Must(t, "Do()")
		_ = response.Body.Close()
		if response.StatusCode != http.StatusServiceUnavailable || response.ContentLength <= 0 {
			t.Errorf("%s: status %d with %d bytes, want 503 with a problem", name, response.StatusCode, response.ContentLength)
		}
		s.Close()
	}
}
