package llm_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptrace"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/faulttest"
	"github.com/zlimit/zlimit-go/llm"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/zlimittest"
)

func TestCallsAreSettled(t *testing.T) {
	paths := map[llm.API]string{
		llm.APIOpenAIChat: chatPath, llm.APIOpenAIResponses: "/v1/responses", llm.APIAnthropicMessages: "/v1/messages",
		llm.APIGeminiContent: "/v1beta/models/m:streamGenerateContent", llm.APIBedrockConverse: "/model/MODEL/converse-stream",
	}
	for _, a := range answers(t) {
		limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 10), zlimit.PerMinute("tpm", 100_000), zlimit.PerMinute("out", 100_000))
		body := &pieces{rest: a.body, lengths: func(int) int { return 5 }}
		transport, reports := newTransport(t, limiter, respond(200, http.Header{"Content-Type": {a.contentType}}, body),
			llm.WithLimit("rpm", llm.PerRequest), llm.WithLimit("tpm", llm.PerBedrockToken), llm.WithLimit("out", llm.PerOutput),
			llm.WithModels(llm.Rule{Pattern: "*", Resource: "models"}))
		path := strings.ReplaceAll(paths[a.call.API], "MODEL", a.call.Model)
		response := check.Call(transport.RoundTrip(newRequest(t, path, `{"model":"m","max_tokens":500}`))).Must(t, "RoundTrip()")
		if got, err := io.ReadAll(response.Body); err != nil || !bytes.Equal(got, a.body) {
			t.Errorf("%s: the body is changed, or %v", a.name, err)
		}
		check.Fatal(t, "Body.Close()", response.Body.Close())
		if got := reports.one(t).Usage; got != a.want {
			t.Errorf("%s: Usage = %+v, want %+v", a.name, got, a.want)
		}
		want := map[string]int64{"rpm": 9, "tpm": 100_000 - a.want.Input - a.want.CacheWrite - 5*a.want.Output, "out": 100_000 - a.want.Output}
		if got := left(t, limiter, "models"); !maps.Equal(got, want) {
			t.Errorf("%s: left are %v, want %v", a.name, got, want)
		}
	}
}

// TestEstimates looks at the estimate while a call is under way.
func TestEstimates(t *testing.T) {
	picture := strings.Repeat("A", 100_000)
	for _, test := range []struct {
		name, path, body string
		want             int64
	}{
		{"a bound of the answer", chatPath, `{"model":"m","messages":[{"content":"12345678"}],"max_tokens":500}`, 2 + 500},
		{"the newer bound", chatPath, `{"max_completion_tokens":300,"model":"m","max_tokens":500}`, 500},
		{"the newer bound, last", chatPath, `{"max_tokens":500,"model":"m","max_completion_tokens":300}`, 500},
		{"several choices", chatPath, `{"model":"m","max_tokens":500,"n":3}`, 1500},
		{"no bound", chatPath, `{"model":"m"}`, 1024},
		{"a bound that is none", chatPath, `{"model":"m","max_tokens":-5}`, 1024},
		{"a picture", chatPath, `{"model":"m","messages":[{"content":[{"image_url":{"url":"data:` + picture + `"}}]}],"max_tokens":1}`, 1001},
		{"responses", "/v1/responses", `{"model":"m","input":"1234","max_output_tokens":7}`, 8},
		{"messages", "/v1/messages", `{"model":"m","max_tokens":7,"system":"1234"}`, 8},
		{"Gemini", "/v1beta/models/m:generateContent", `{"contents":[{"parts":[{"text":"1234"},{"inlineData":{"data":"` + picture + `"}}]}],"generationConfig":{"maxOutputTokens":7,"candidateCount":2}}`, 1015},
		{"Converse", "/model/m/converse", `{"inferenceConfig":{"maxTokens":7},"system":[{"text":"1234"}]}`, 8},
		{"a body that is no JSON", "/model/m/converse", `hello`, 2 + 1024},
		{"an estimate above the capacity", chatPath, `{"model":"m","max_tokens":10000000}`, 100_000},
		{"an absurd one", chatPath, `{"model":"m","max_tokens":9223372036854775807,"n":9}`, 100_000},
	} {
		limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 10), zlimit.PerMinute("tpm", 100_000))
		var taken int64
		transport, _ := newTransport(t, limiter, faulttest.RoundTripper(func(r *http.Request) (*http.Response, error) {
			taken = 100_000 - left(t, limiter, "m")["tpm"]
			if got, err := io.ReadAll(r.Body); err != nil || string(got) != test.body {
				t.Errorf("%s: the request is changed: %q, %v", test.name, got, err)
			}
			httptrace.ContextClientTrace(r.Context()).GetConn("") // which it never gets
			return nil, errors.New("no connection")
		}))
		if _, err := transport.RoundTrip(newRequest(t, test.path, test.body)); err == nil {
			t.Errorf("%s: RoundTrip() = nil, want the error of the base", test.name)
		}
		if taken != test.want {
			t.Errorf("%s: %d tokens are taken, want %d", test.name, taken, test.want)
		}
		if got := left(t, limiter, "m"); got["tpm"] != 100_000 || got["rpm"] != 10 {
			t.Errorf("%s: left are %v, want all after a request that was not sent", test.name, got)
		}
	}
}

func TestEndings(t *testing.T) {
	const stream = `data: {"choices":[{"delta":{"content":"eight ch"}}]}` + "\n\n"
	sse := http.Header{"Content-Type": {"text/event-stream"}}
	long := "12345678901234567890123456789012345678901234567890" // a prompt of 13 tokens
	for _, test := range []struct {
		name   string
		status int
		act    func(t *testing.T, cancel context.CancelFunc, body io.ReadCloser)
		want   zlimit.Amounts
	}{
		{"closed before the first token", 200, func(*testing.T, context.CancelFunc, io.ReadCloser) {}, zlimit.Amounts{"rpm": 1, "tpm": 13}},
		{"closed after the first token", 200, func(t *testing.T, _ context.CancelFunc, body io.ReadCloser) {
			if _, err := io.ReadFull(body, make([]byte, len(stream))); err != nil {
				t.Errorf("io.ReadFull() = %v", err)
			}
		}, zlimit.Amounts{"rpm": 1, "tpm": 15}},
		{"cancelled after the first token", 200, func(t *testing.T, cancel context.CancelFunc, body io.ReadCloser) {
			if _, err := io.ReadFull(body, make([]byte, len(stream))); err != nil {
				t.Errorf("io.ReadFull() = %v", err)
			}
			cancel()
		}, zlimit.Amounts{"rpm": 1, "tpm": 15}},
		{"read to an end without usage", 200, func(t *testing.T, _ context.CancelFunc, body io.ReadCloser) {
			if _, err := io.ReadAll(body); err != nil {
				t.Errorf("io.ReadAll() = %v", err)
			}
		}, zlimit.Amounts{"rpm": 1, "tpm": 15}},
		{"an error of the provider", 500, func(t *testing.T, _ context.CancelFunc, body io.ReadCloser) {
			if _, err := io.ReadAll(body); err != nil {
				t.Errorf("io.ReadAll() = %v", err)
			}
		}, zlimit.Amounts{"rpm": 1, "tpm": 0}},
	} {
		t.Run(test.name, func(t *testing.T) {
			limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 10), zlimit.PerMinute("tpm", 1000))
			body := &pieces{rest: []byte(stream), lengths: func(left int) int { return left }}
			transport, reports := newTransport(t, limiter, respond(test.status, sse, body))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			request := newRequest(t, chatPath, `{"stream":true,"model":"m","messages":[{"content":"`+long+`"}],"max_tokens":500}`)
			response := check.Call(transport.RoundTrip(request.WithContext(ctx))).Must(t, "RoundTrip()")
			test.act(t, cancel, response.Body)
			for range 2 {
				check.Error(t, "Body.Close()", response.Body.Close())
			}
			if got := reports.one(t); !maps.Equal(got.Charged, test.want) || got.Err != nil || got.Usage.Complete {
				t.Errorf("Report = %+v, want charged %v", got, test.want)
			}
			if got := left(t, limiter, "m"); got["rpm"] != 9 || got["tpm"] != 1000-test.want["tpm"] {
				t.Errorf("left are %v", got)
			}
		})
	}
}

// TestForgotten drops an answer without reading or closing it: the end of the context settles it.
func TestForgotten(t *testing.T) {
	limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 10), zlimit.PerMinute("tpm", 1000))
	settled := make(chan llm.Report, 2)
	body := &pieces{rest: []byte("data: "), lengths: func(left int) int { return left }}
	transport, _ := newTransport(t, limiter, respond(200, http.Header{"Content-Type": {"text/event-stream"}}, body),
		llm.WithObserver(func(_ context.Context, r llm.Report) { settled <- r }))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if _, err := transport.RoundTrip(newRequest(t, chatPath, `{"model":"m","max_tokens":500}`).WithContext(ctx)); err != nil { //nolint:bodyclose // it is what is tested
		t.Fatalf("RoundTrip() = %v", err)
	}
	cancel()
	if got := <-settled; got.Err != nil || got.Charged["tpm"] != 0 {
		t.Errorf("Report = %+v, want one without tokens", got)
	}
}

func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := answers(t)[0]
		for _, test := range []struct {
			name  string
			leave func(cancel context.CancelFunc, body io.Closer)
			send  []byte
			hang  bool
			whole bool
		}{
			{"closed", func(_ context.CancelFunc, body io.Closer) { _ = body.Close() }, a.body, false, true},
			{"cancelled", func(cancel context.CancelFunc, _ io.Closer) { cancel() }, a.body, false, true},
			{"a provider that hangs", func(_ context.CancelFunc, body io.Closer) { _ = body.Close() }, a.body[:600], true, false},
			{"an answer that is too long", func(_ context.CancelFunc, body io.Closer) { _ = body.Close() }, append(bytes.Repeat([]byte(": comment\n"), 10_000), a.body...), false, false},
		} {
			limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 10), zlimit.PerMinute("tpm", 10_000))
			r, w := io.Pipe()
			var outbound context.Context
			transport, reports := newTransport(t, limiter, faulttest.RoundTripper(func(r2 *http.Request) (*http.Response, error) {
				outbound = r2.Context() //nolint:fatcontext // it is what the transport sends
				return respond(200, http.Header{"Content-Type": {"text/event-stream"}}, r)(r2)
			}), llm.WithDrain(50_000, time.Minute))
			ctx, cancel := context.WithCancel(t.Context())
			response, err := transport.RoundTrip(newRequest(t, chatPath, `{"model":"m","stream":true}`).WithContext(ctx))
			check.Fatal(t, "RoundTrip()", err)
			context.AfterFunc(outbound, func() { _ = w.CloseWithError(outbound.Err()) })
			go func() {
				_, _ = w.Write(test.send[:10])
				_, _ = w.Write(test.send[10:])
				if !test.hang {
					_ = w.Close()
				}
			}()
			if _, err := io.ReadFull(response.Body, make([]byte, 10)); err != nil {
				t.Fatalf("io.ReadFull() = %v", err)
			}
			test.leave(cancel, response.Body)
			synctest.Wait()
			if test.name == "cancelled" {
				if _, err := response.Body.Read(make([]byte, 10)); !errors.Is(err, context.Canceled) {
					t.Errorf("Read() after the end of the context = %v, want its error", err)
				}
			}
			check.Error(t, "Wait()", transport.Wait(t.Context()))
			if got := reports.one(t).Usage; got.Complete != test.whole || test.whole && got != a.want {
				t.Errorf("%s: Usage = %+v, want complete %v", test.name, got, test.whole)
			}
			_ = response.Body.Close()
			cancel()
		}
	})
}
