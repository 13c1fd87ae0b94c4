package httplimit_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/httplimit"
	"github.com/zlimit/zlimit-go/internal/proof/faulttest"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/zlimittest"
)

// In TestRequestsWait, a server's requests wait for their tokens. A request whose wait would be too long is answered immediately. A request
// whose client leaves gives its tokens back.
func TestRequestsWait(t *testing.T) {
	limiter, clock := zlimittest.New(t, zlimit.PerMinute("rpm", 1))
	server := httptest.NewServer(httplimit.New(limiter, byKey, httplimit.WithMaxWait(time.Minute))(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	defer server.Close()
	call := func(ctx context.Context) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, http.NoBody)
		if err != nil {
			return err
		}
		r.Header.Set("X-API-Key", "alice")
		response, err := server.Client().Do(r)
		if err != nil {
			return err
		}
		defer func() { _ = response.Body.Close() }()
		switch response.StatusCode {
		case http.StatusOK:
			return nil
		case http.StatusTooManyRequests:
			return &zlimit.ExceededError{}
		default:
			return errors.New(response.Status)
		}
	}
	faulttest.CheckWaits(t, clock, func() error { return call(t.Context()) })
	faulttest.CheckLeavers(t, limiter, clock, false, call)
}

// TestMaxWaitMustBePositive gives the option a time for which no one waits.
func TestMaxWaitMustBePositive(t *testing.T) {
	defer func() {
		if got, want := recover(), "httplimit: the longest wait is 0s; it must be positive"; got != want {
			t.Errorf("New() panics with %v, want %q", got, want)
		}
	}()
	limiter, _ := zlimittest.New(t)
	httplimit.New(limiter, byKey, httplimit.WithMaxWait(0))
}
