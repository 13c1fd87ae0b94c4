package httplimit_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/zlimit/zlimit-go/httplimit"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/faulttest"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/zlimittest"
)

// TestSlotsOfACall holds a slot from before a call is sent until its answer has been read to the end, or left. It gives the slot back once,
// whatever became of the call.
func TestSlotsOfACall(t *testing.T) {
	limiter, _ := zlimittest.New(t, zlimit.Slots("calls", 2), zlimit.PerMinute("rpm", 100))
	waiting := make(chan chan struct{}, 1) // of the call that goes on
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		faulttest.CheckSlots(t, limiter, 1, limiter.Stats().SlotsTaken)
		_, _ = io.WriteString(w, "first ")
		goOn := make(chan struct{})
		waiting <- goOn
		w.(http.Flusher).Flush()
		select {
		case <-goOn:
			_, _ = io.WriteString(w, "last")
		case <-r.Context().Done():
		}
	}))
	defer server.Close()
	consume := func(*http.Request) (zlimit.Request, error) {
		return zlimit.Request{Entity: "alice", Resource: "api", Consume: zlimit.Amounts{"calls": 1, "rpm": 1}}, nil
	}
	transport := &httplimit.Transport{Limiter: limiter, Request: consume}
	call := func(ctx context.Context) (*http.Response, error) {
		r := check.Call(http.NewRequestWithContext(ctx, http.MethodGet, server.URL, http.NoBody)).Must(t, "http.NewRequestWithContext()")
		return (&http.Client{Transport: transport}).Do(r)
	}
	taken := uint64(0)
	for name, end := range map[string]func(cancel func(), body io.ReadCloser, goOn chan struct{}){
		"read to the end": func(_ func(), body io.ReadCloser, goOn chan struct{}) {
			close(goOn)
			if rest, err := io.ReadAll(body); string(rest) != "last" || err != nil {
				t.Errorf("the rest is %q, %v", rest, err)
			}
		},
		"closed": func(_ func(), body io.ReadCloser, _ chan struct{}) { _ = body.Close() },
		"left": func(cancel func(), body io.ReadCloser, _ chan struct{}) {
			cancel()
			if _, err := io.ReadAll(body); !errors.Is(err, context.Canceled) {
				t.Errorf("an answer that was left ends with %v", err)
			}
		},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		response, err := call(ctx)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		taken++
		if first, err := bufio.NewReaderSize(response.Body, 16).ReadString(' '); first != "first " || err != nil {
			t.Fatalf("%s: %q, %v", name, first, err)
		}
		faulttest.CheckSlots(t, limiter, 1, taken)
		end(cancel, response.Body, <-waiting)
		_ = response.Body.Close()
		cancel()
		faulttest.CheckSlots(t, limiter, 0, taken)
	}
	nowhere := func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("nowhere") }
	for name, base := range map[string]http.RoundTripper{
		"never sent": &http.Transport{DialContext: nowhere},
		"broken":     roundTrip(func(*http.Request) (*http.Response, error) { return nil, errors.New("broken") }),
	} {
		transport.Base = base
		if response, err := call(t.Context()); err == nil {
			_ = response.Body.Close()
			t.Errorf("%s: no error", name)
		}
		taken++
		faulttest.CheckSlots(t, limiter, 0, taken)
	}
}
