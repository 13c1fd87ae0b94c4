package connectlimit_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/zlimit/zlimit-go/connectlimit"
	"github.com/zlimit/zlimit-go/internal/proof/faulttest"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/zlimittest"
)

func newClientPeer(client *http.Client, url string, opts ...connect.ClientOption) *peer {
	return &peer{
		connect.NewClient[text, text](client, url+"/test.Echo/Once", opts...),
		connect.NewClient[text, text](client, url+"/test.Echo/Many", opts...), "alice",
	}
}

// TestClientsChargeWhatWasSent makes 40 calls and streams that fail after a server took them. A limit of five lets five
// through.
func TestClientsChargeWhatWasSent(t *testing.T) {
	request := connectlimit.Requests("api", "rpm", connectlimit.For("alice"))
	unavailable := connect.NewErrorWriter()
	var leave atomic.Pointer[context.CancelFunc] // ends the call from its client's side
	for name, handle := range map[string]http.HandlerFunc{
		"unavailable": func(w http.ResponseWriter, r *http.Request) {
			_ = unavailable.Write(w, r, connect.NewError(connect.CodeUnavailable, errors.New("busy")))
		},
		"a handler that is too slow": func(_ http.ResponseWriter, r *http.Request) {
			(*leave.Load())()
			<-r.Context().Done()
		},
		"a connection that breaks": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		for kind, call := range map[string]func(context.Context, *peer) error{
			"call": func(ctx context.Context, p *peer) error { return p.call(ctx, "hello") },
			"stream": func(ctx context.Context, p *peer) error {
				_, err := p.stream(ctx, "hello")
				return err
			},
		} {
			limiter, _ := zlimittest.New(t, zlimit.PerHour("rpm", 5))
			var served atomic.Int64
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				served.Add(1)
				_, _ = io.Copy(io.Discard, r.Body) // net/http looks for the end of the client afterwards
				handle(w, r)
			}))
			p := newClientPeer(server.Client(), server.URL, connect.WithInterceptors(connectlimit.New(limiter, request)))
			refused := 0
			for range 40 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				leave.Store(&cancel)
				if err := call(ctx, p); err == nil {
					t.Errorf("%s: a %s has no error", name, kind)
				} else if errors.As(err, new(*zlimit.ExceededError)) {
					refused++
				}
				cancel()
			}
			server.Close()
			if served.Load() > 5 || refused != 35 {
				t.Errorf("%s: the server took %d of 40 %ss, %d were refused; want 5 at most, and 35", name, served.Load(), kind, refused)
			}
		}
	}
}

// TestClientsGiveBackWhatWasNeverSent calls a server that is not there.
func TestClientsGiveBackWhatWasNeverSent(t *testing.T) {
	request := connectlimit.Requests("api", "rpm", connectlimit.For("alice"))
	limiter, _ := zlimittest.New(t, zlimit.PerHour("rpm", 5))
	nobody := &http.Client{Transport: &http.Transport{
		DialContext: func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("nobody") },
	}}
	p := newClientPeer(nobody, "http://nobody.test", connect.WithInterceptors(connectlimit.New(limiter, request)))
	if err := p.call(t.Context(), "hello"); connect.CodeOf(err) != connect.CodeUnavailable || faulttest.Left(t, limiter, "alice") != 5 {
		t.Errorf("a call to nobody: %v, %d left of 5", err, faulttest.Left(t, limiter, "alice"))
	}
	if _, err := p.stream(t.Context(), "hello"); connect.CodeOf(err) != connect.CodeUnavailable || faulttest.Left(t, limiter, "alice") != 5 {
		t.Errorf("a stream to nobody: %v, %d left of 5", err, faulttest.Left(t, limiter, "alice"))
	}
}

// TestClientsWait checks that calls wait for their tokens before they are sent.
func TestClientsWait(t *testing.T) {
	limiter, clock := zlimittest.New(t, zlimit.PerMinute("rpm", 1))
	waits := connectlimit.New(limiter, connectlimit.Requests("api", "rpm", connectlimit.For("alice")), connectlimit.WithMaxWait(time.Minute))
	p := newPeer(t, nil, connect.WithInterceptors(waits))
	faulttest.CheckWaits(t, clock, func() error { return p.call(t.Context(), "hello") })
}

// TestHandlersWait checks that calls wait at the server.
func TestHandlersWait(t *testing.T) {
	limiter, clock := zlimittest.New(t, zlimit.PerMinute("rpm", 1))
	waits := connectlimit.New(limiter, connectlimit.Requests("api", "rpm", connectlimit.For("alice")), connectlimit.WithMaxWait(time.Minute))
	p := newPeer(t, []connect.HandlerOption{connect.WithInterceptors(waits)})
	call := func(ctx context.Context) error {
		err := p.call(ctx, "hello")
		if connect.CodeOf(err) == connect.CodeResourceExhausted {
			return &zlimit.ExceededError{}
		}
		return err
	}
	faulttest.CheckWaits(t, clock, func() error { return call(t.Context()) })
	faulttest.CheckLeavers(t, limiter, clock, true, call)
}
