package llm_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/faulttest"
	"github.com/zlimit/zlimit-go/llm"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/zlimittest"
)

// TestSlotsOfACall holds a slot for each call of a model, until its stream is over or left. It is given back once, whatever the call is
// charged: also where the answer has an error status, and if there is none.
func TestSlotsOfACall(t *testing.T) {
	const stream = "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}]}\n\n"
	header := http.Header{"Content-Type": {"text/event-stream"}}
	end := "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4}}\n\ndata: [DONE]\n\n"
	for name, test := range map[string]struct {
		status int // 0 for no answer
		leave  func(cancel func(), body io.ReadCloser, rest *io.PipeWriter)
	}{
		"read to the end": {http.StatusOK, func(_ func(), body io.ReadCloser, rest *io.PipeWriter) {
			go func() {
				_, _ = io.WriteString(rest, end)
				_ = rest.Close()
			}()
			_, _ = io.Copy(io.Discard, body)
		}},
		"closed": {http.StatusOK, func(_ func(), body io.ReadCloser, _ *io.PipeWriter) { _ = body.Close() }},
		"left":   {http.StatusOK, func(cancel func(), _ io.ReadCloser, _ *io.PipeWriter) { cancel() }},
		"broken": {http.StatusOK, func(_ func(), body io.ReadCloser, rest *io.PipeWriter) {
			_ = rest.CloseWithError(errors.New("broken"))
			_, _ = io.Copy(io.Discard, body)
		}},
		"an error": {http.StatusInternalServerError, func(_ func(), body io.ReadCloser, rest *io.PipeWriter) {
			_ = rest.Close()
			_, _ = io.Copy(io.Discard, body)
		}},
		"no answer": {},
	} {
		t.Run(name, func(t *testing.T) {
			limiter, _ := zlimittest.New(t, zlimit.Slots("calls", 2), zlimit.PerMinute("tpm", 100_000))
			body, rest := io.Pipe()
			base := respond(test.status, header, body)
			if test.status == 0 {
				base = func(*http.Request) (*http.Response, error) { return nil, errors.New("no answer") }
			}
			transport, reports := newTransport(t, limiter, base, llm.WithLimit("calls", llm.PerRequest), llm.WithLimit("tpm", llm.PerToken))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r := newRequest(t, chatPath, `{"model":"m","stream":true,"max_tokens":50}`).WithContext(ctx)
			response, err := transport.RoundTrip(r)
			if test.status == 0 {
				if err == nil {
					_ = response.Body.Close()
					t.Error("no error")
				}
				faulttest.CheckSlots(t, limiter, 0, 1)
				return
			}
			check.Fatal(t, "RoundTrip()", err)
			defer func() { _ = response.Body.Close() }()
			go func() { _, _ = io.Copy(rest, strings.NewReader(stream)) }()
			if _, err := io.ReadFull(response.Body, make([]byte, len(stream))); err != nil {
				t.Fatalf("io.ReadFull() = %v", err)
			}
			faulttest.CheckSlots(t, limiter, 1, 1)
			test.leave(cancel, response.Body, rest)
			check.Fatal(t, "Wait()", transport.Wait(t.Context()))
			faulttest.CheckSlots(t, limiter, 0, 1)
			if report := reports.one(t); report.Err != nil {
				t.Errorf("the call could not be settled: %v", report.Err)
			}
		})
	}
}
