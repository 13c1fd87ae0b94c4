package llm_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/faulttest"
	"github.com/zlimit/zlimit-go/llm"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/zlimittest"
)

// A desk is a provider that makes responses in the background.
type desk struct {
	mu      sync.Mutex
	answers map[string]string // by method and path; one that begins with "data:" is a stream
	broken  bool              // no request is answered
}

func (d *desk) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		_, _ = io.Copy(io.Discard, r.Body)
		_ = r.Body.Close()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.broken {
		return nil, errors.New("the connection breaks")
	}
	status, body, kind := 200, d.answers[r.Method+" "+r.URL.Path], "application/json"
	if strings.HasPrefix(body, "data:") {
		kind = "text/event-stream"
	}
	if body == "" {
		status, body = 404, `{"error":{"message":"no such response"}}`
	}
	return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {kind}}, Body: io.NopCloser(strings.NewReader(body)), ContentLength: -1, Request: r}, nil
}

func (d *desk) set(request, answer string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.answers[request] = answer
}

// count returns how many calls are settled.
func (r *reports) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.all)
}

// fetch sends a request and reads its answer, or the first bytes of it where some are given.
func fetch(t *testing.T, transport http.RoundTripper, method, path, body string, first int64) string {
	t.Helper()
	r := newRequest(t, path, body)
	r.Method = method
	response, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer response.Body.Close()
	from := io.Reader(response.Body)
	if first > 0 {
		from = io.LimitReader(from, first)
	}
	got, err := io.ReadAll(from)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return string(got)
}

// The responses of a desk, and what a call of it is charged: at its bound the prompt of two tokens and 500 of the answer.
const (
	inBackground = `{"model":"m","background":true,"input":"12345678","max_output_tokens":500}`
	queued       = `{"id":"resp_1","object":"response","status":"queued","model":"m","output":[],"usage":null,"error":null}`
	underWay     = `{"id":"resp_1","object":"response","status":"in_progress","model":"m","output":[],"usage":null,"error":null}`
	completed    = `{"id":"resp_1","object":"response","status":"completed","model":"m","output":[{"status":"completed","content":[{"text":"Blue."}]}],"usage":{"input_tokens":7,"output_tokens":41}}`
	cancelled    = `{"id":"resp_1","object":"response","status":"cancelled","model":"m","output":[],"usage":null}`
	begun        = `data: {"type":"response.created","response":{"id":"resp_1","status":"in_progress","usage":null}}` + "\n\n" + `data: {"type":"response.output_text.delta","delta":"Blue"}` + "\n\n"
	ended        = `data: {"type":"response.completed","response":{"id":"resp_1","status":"completed","usage":{"input_tokens":7,"output_tokens":41}}}` + "\n\n"
)

// TestResponsesInTheBackground follows calls whose responses are made after the answer. Each is settled once: by the request that shows
// the response at its end, or at its bound.
func TestResponsesInTheBackground(t *testing.T) {
	const create, poll, cancel = "POST /v1/responses", "GET /v1/responses/resp_1", "POST /v1/responses/resp_1/cancel"
	usage := zlimit.Amounts{"rpm": 1, "tpm": 48}
	bound := zlimit.Amounts{"rpm": 1, "tpm": 502}
	ask := func(t *testing.T, d *desk, transport http.RoundTripper, request, answer string) {
		t.Helper()
		d.set(request, answer)
		method, path, _ := strings.Cut(request, " ")
		if got := fetch(t, transport, method, path, "", 0); answer != "" && got != answer {
			t.Errorf("%s: the answer is %q, want %q", request, got, answer)
		}
	}
	for _, test := range []struct {
		name, body, answer string
		act                func(t *testing.T, d *desk, transport *llm.Transport)
		open               bool // it is held until the transport ends
		want               zlimit.Amounts
	}{
		{"polled until it is there", inBackground, queued, func(t *testing.T, d *desk, transport *llm.Transport) {
			ask(t, d, transport, poll, queued)
			ask(t, d, transport, poll, underWay)
			ask(t, d, transport, poll, completed)
		}, false, usage},
		{"polled again", inBackground, queued, func(t *testing.T, d *desk, transport *llm.Transport) {
			ask(t, d, transport, poll, completed)
			ask(t, d, transport, poll, completed)
		}, false, usage},
		{"polled by many at once", inBackground, queued, func(t *testing.T, d *desk, transport *llm.Transport) {
			d.set(poll, completed)
			var group sync.WaitGroup
			for range 20 {
				group.Go(func() { fetch(t, transport, http.MethodGet, "/v1/responses/resp_1", "", 0) })
			}
			group.Wait()
		}, false, usage},
		{"polled, and the poll is left", inBackground, queued, func(t *testing.T, d *desk, transport *llm.Transport) {
			d.set(poll, completed)
			fetch(t, transport, http.MethodGet, "/v1/responses/resp_1", "", 120)
		}, true, bound},
		{"polled as a stream", inBackground, queued, func(t *testing.T, d *desk, transport *llm.Transport) {
			ask(t, d, transport, poll, begun+ended)
		}, false, usage},
		{"a stream that is left, and read on", inBackground, begun, func(t *testing.T, d *desk, transport *llm.Transport) {
			ask(t, d, transport, poll, ended)
		}, false, usage},
		{"a stream that is left for good", inBackground, begun, func(*testing.T, *desk, *llm.Transport) {}, true, bound},
		{"a stream to its end", inBackground, begun + ended, func(*testing.T, *desk, *llm.Transport) {}, false, usage},
		{"never polled", inBackground, queued, func(*testing.T, *desk, *llm.Transport) {}, true, bound},
		{"the time is over", inBackground, queued, func(t *testing.T, d *desk, transport *llm.Transport) {
			time.Sleep(time.Hour)
			synctest.Wait()
			ask(t, d, transport, poll, completed)
		}, false, bound},
		{"polled just in time", inBackground, queued, func(t *testing.T, d *desk, transport *llm.Transport) {
			time.Sleep(time.Hour - time.Second)
			ask(t, d, transport, poll, completed)
			time.Sleep(time.Hour)
		}, false, usage},
		{"cancelled", inBackground, queued, func(t *testing.T, d *desk, transport *llm.Transport) {
			ask(t, d, transport, cancel, cancelled)
			ask(t, d, transport, poll, cancelled)
		}, false, bound},
		{"cancelled, in an answer that is not read behind its object", inBackground, queued, func(t *testing.T, d *desk, transport *llm.Transport) {
			d.set(cancel, cancelled)
			fetch(t, transport, http.MethodPost, "/v1/responses/resp_1/cancel", "", int64(len(cancelled)))
		}, false, bound},
		{"cancelled too late", inBackground, queued, func(t *testing.T, d *desk, transport *llm.Transport) {
			ask(t, d, transport, cancel, completed)
		}, false, usage},
		{"failed", inBackground, queued, func(t *testing.T, d *desk, transport *llm.Transport) {
			ask(t, d, transport, poll, `{"id":"resp_1","status":"failed","error":{"code":"server_error"},"usage":null}`)
		}, false, zlimit.Amounts{"rpm": 1, "tpm": 0}},
		{"a poll that fails", inBackground, queued, func(t *testing.T, d *desk, transport *llm.Transport) {
			ask(t, d, transport, poll, "")
		}, true, bound},
		{"an answer about another response", inBackground, queued, func(t *testing.T, d *desk, transport *llm.Transport) {
			ask(t, d, transport, poll, `{"id":"resp_2","status":"completed","usage":{"input_tokens":0,"output_tokens":0}}`)
		}, true, bound},
		{"another path", inBackground, queued, func(t *testing.T, d *desk, transport *llm.Transport) {
			ask(t, d, transport, poll+"/input_items", `{"id":"resp_1","status":"completed","usage":{"input_tokens":0,"output_tokens":0}}`)
		}, true, bound},
		{"there at once", inBackground, completed, func(*testing.T, *desk, *llm.Transport) {}, false, usage},
		{"a server that knows no background", inBackground, `{"model":"m","usage":{"input_tokens":7,"output_tokens":41}}`, func(*testing.T, *desk, *llm.Transport) {}, false, usage},
		{"an error of status 200", inBackground, `{"error":{"message":"no"}}`, func(*testing.T, *desk, *llm.Transport) {}, false, zlimit.Amounts{"rpm": 1, "tpm": 0}},
		{"an answer that is not understood", inBackground, `{"id":`, func(*testing.T, *desk, *llm.Transport) {}, false, bound},
		{"not in the background", strings.Replace(inBackground, "true", "false", 1), begun, func(*testing.T, *desk, *llm.Transport) {}, false, zlimit.Amounts{"rpm": 1, "tpm": 3}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 10), zlimit.PerMinute("tpm", 1000))
				d := &desk{answers: map[string]string{create: test.answer}}
				transport, reports := newTransport(t, limiter, d)
				if got := fetch(t, transport, http.MethodPost, "/v1/responses", test.body, 0); got != test.answer {
					t.Errorf("the answer is %q", got)
				}
				if held := test.body == inBackground && (test.answer == queued || test.answer == begun); held {
					if reports.count() > 0 || left(t, limiter, "m")["tpm"] != 1000-502 {
						t.Errorf("%v are left, and %d calls settled, while the response is made", left(t, limiter, "m"), reports.count())
					}
				}
				test.act(t, d, transport)
				if settled := reports.count() == 1; settled == test.open {
					t.Errorf("settled before the transport ends: %t", settled)
				}
				check.Error(t, "Wait()", transport.Wait(t.Context()))
				if got := reports.one(t); !maps.Equal(got.Charged, test.want) || got.Err != nil || got.Status != 200 || got.Entity != "alice" || got.Host != "localhost" {
					t.Errorf("Report = %+v, want charged %v", got, test.want)
				}
			})
		})
	}
}

// In TestBackgroundCallsWithoutAnswer, the answers of calls are lost. The provider may make their responses all the same.
func TestBackgroundCallsWithoutAnswer(t *testing.T) {
	limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 10), zlimit.PerMinute("tpm", 5000))
	transport, reports := newTransport(t, limiter, &desk{broken: true})
	if _, err := transport.RoundTrip(newRequest(t, "/v1/responses", inBackground)); err == nil { //nolint:bodyclose // there is none
		t.Error("a connection that breaks is no error")
	}
	if got := reports.one(t).Charged["tpm"]; got != 502 {
		t.Errorf("%d tokens are charged after a connection that broke, want 502", got)
	}
	transport, reports = newTransport(t, limiter, faulttest.RoundTripper((&desk{answers: map[string]string{"POST /v1/responses": queued}}).RoundTrip))
	ctx, cancel := context.WithCancel(t.Context())
	response := check.Call(transport.RoundTrip(newRequest(t, "/v1/responses", inBackground).WithContext(ctx))).Must(t, "RoundTrip()")
	cancel()
	_ = response.Body.Close()
	check.Error(t, "Wait()", transport.Wait(t.Context()))
	if got := reports.one(t).Charged["tpm"]; got != 502 {
		t.Errorf("%d tokens are charged after an answer that was not read, want 502", got)
	}
}

// TestBackgroundOfGemini polls an interaction.
func TestBackgroundOfGemini(t *testing.T) {
	limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 10), zlimit.PerMinute("tpm", 5000))
	d := &desk{answers: map[string]string{
		"POST /v1beta/interactions":   `{"id":"i1","status":"in_progress","model":"m"}`,
		"GET /v1beta/interactions/i1": `{"id":"i1","status":"completed","model":"m","usage":{"total_input_tokens":7,"total_output_tokens":41}}`,
	}}
	transport, reports := newTransport(t, limiter, d)
	fetch(t, transport, http.MethodPost, "/v1beta/interactions", `{"model":"m","background":true,"input":"Why?"}`, 0)
	fetch(t, transport, http.MethodGet, "/v1beta/interactions/i1", "", 0)
	if got := reports.one(t); got.Charged["tpm"] != 48 || !got.Usage.Complete {
		t.Errorf("Report = %+v", got)
	}
}

// TestHeldCallsAreBounded opens more responses than a transport holds: the oldest are settled at their bound, as are those of one name.
func TestHeldCallsAreBounded(t *testing.T) {
	limiter, _ := zlimittest.New(t, zlimit.PerHour("rpm", 1e6), zlimit.PerHour("tpm", 1e9))
	d := &desk{answers: map[string]string{}}
	transport, reports := newTransport(t, limiter, d)
	const held, more = 1024, 3
	for i := range held + more {
		d.set("POST /v1/responses", fmt.Sprintf(`{"id":"r%d","status":"queued"}`, i))
		fetch(t, transport, http.MethodPost, "/v1/responses", inBackground, 0)
	}
	for range 1000 {
		if reports.count() == more {
			break
		}
		time.Sleep(time.Millisecond)
	}
	for i := range held + more {
		path := fmt.Sprintf("/v1/responses/r%d", i)
		d.set("GET "+path, fmt.Sprintf(`{"id":"r%d","status":"completed","usage":{"input_tokens":1,"output_tokens":1}}`, i))
		fetch(t, transport, http.MethodGet, path, "", 0)
	}
	for range 2 { // the same response
		fetch(t, transport, http.MethodPost, "/v1/responses", inBackground, 0)
	}
	check.Error(t, "Wait()", transport.Wait(t.Context()))
	bound, usage := 0, 0
	for _, r := range reports.all {
		switch r.Charged["tpm"] {
		case 502:
			bound++
		case 2:
			usage++
		}
	}
	if bound != more+2 || usage != held || len(reports.all) != held+more+2 {
		t.Errorf("%d calls are settled: %d at their bound and %d by a poll, want %d and %d", len(reports.all), bound, usage, more+2, held)
	}
}
