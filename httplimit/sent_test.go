package httplimit_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/httplimit"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/faulttest"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/zlimittest"
)

// TestTransportChargesWhatWasSent sends 40 requests to servers that do not answer them. A limit of five lets five through,
// since a server has served what it has taken.
func TestTransportChargesWhatWasSent(t *testing.T) {
	for name, handle := range map[string]func(r *http.Request, giveUp context.CancelFunc){
		"a server that is too slow": func(r *http.Request, giveUp context.CancelFunc) { giveUp(); <-r.Context().Done() },
		"a connection that breaks":  func(*http.Request, context.CancelFunc) { panic(http.ErrAbortHandler) },
	} {
		for _, two := range []bool{false, true} {
			limiter, _ := zlimittest.New(t, zlimit.PerHour("rpm", 5))
			var served, refused atomic.Int64
			var giveUp atomic.Value // of the request under way
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				served.Add(1)
				_, _ = io.Copy(io.Discard, r.Body) // net/http looks for the end of the client afterwards
				handle(r, giveUp.Load().(context.CancelFunc))
			}))
			server.EnableHTTP2 = two
			server.StartTLS()
			client := &http.Client{Transport: &httplimit.Transport{Limiter: limiter, Request: byKey, Base: server.Client().Transport}}
			for range 40 {
				ctx, cancel := context.WithCancel(t.Context())
				giveUp.Store(cancel)
				r, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, strings.NewReader("body"))
				check.Fatal(t, "http.NewRequestWithContext()", err)
				r.Header.Set("X-API-Key", "alice")
				response, err := client.Do(r)
				if err == nil {
					_ = response.Body.Close()
				}
				cancel()
				if errors.As(err, new(*zlimit.ExceededError)) {
					refused.Add(1)
				}
			}
			server.Close()
			if served.Load() != 5 || refused.Load() != 35 {
				t.Errorf("%s, HTTP/2 %v: the server took %d of 40 requests, %d were refused; want 5 and 35", name, two, served.Load(), refused.Load())
			}
		}
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestTransportGivesBackWhatWasNeverSent fails requests before they have a connection. One of a transport that does not
// say whether it had one is charged.
func TestTransportGivesBackWhatWasNeverSent(t *testing.T) {
	nowhere := func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("nowhere") }
	ended := make(chan struct{})
	defer close(ended) // the transport goes on to connect after its request has ended
	never := func(context.Context, string, string) (net.Conn, error) {
		<-ended
		return nil, errors.New("never")
	}
	for name, test := range map[string]struct {
		base http.RoundTripper
		left int64
	}{
		"no server":                    {&http.Transport{DialContext: nowhere}, 5},
		"a server that never connects": {&http.Transport{DialContext: never}, 5},
		"a transport without a trace":  {roundTrip(func(*http.Request) (*http.Response, error) { return nil, errors.New("broken") }), 4},
	} {
		limiter, _ := zlimittest.New(t, zlimit.PerHour("rpm", 5))
		client := &http.Client{Transport: &httplimit.Transport{Limiter: limiter, Request: byKey, Base: test.base}, Timeout: 30 * time.Millisecond}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://nowhere.test", http.NoBody)
		check.Fatal(t, "http.NewRequestWithContext()", err)
		r.Header.Set("X-API-Key", "alice")
		if response, err := client.Do(r); err == nil {
			_ = response.Body.Close()
			t.Errorf("%s: status %d, want an error", name, response.StatusCode)
		}
		if got := faulttest.Left(t, limiter, "alice"); got != test.left {
			t.Errorf("%s: %d left of 5, want %d", name, got, test.left)
		}
	}
}

// TestTransportWaits checks that requests wait for their tokens before they are sent.
func TestTransportWaits(t *testing.T) {
	limiter, clock := zlimittest.New(t, zlimit.PerMinute("rpm", 1))
	transport := &httplimit.Transport{
		Limiter: limiter, Request: httplimit.Requests("api", "rpm", func(*http.Request) (string, error) { return "alice", nil }), MaxWait: time.Minute,
		Base: faulttest.RoundTripper(func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
		}),
	}
	call := func() error {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/", http.NoBody)
		if err != nil {
			return err
		}
		response, err := transport.RoundTrip(r)
		if err != nil {
			return err
		}
		return response.Body.Close()
	}
	faulttest.CheckWaits(t, clock, call)
	transport.MaxWait = -1
	if err := call(); !errors.As(err, new(*zlimit.ValidationError)) {
		t.Errorf("a call with a negative wait: %v", err)
	}
}
