package llm_test

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/faulttest"
	"github.com/zlimit/zlimit-go/llm"
	"github.com/zlimit/zlimit-go/price"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/zlimittest"
)

// In TestOneKeyAgainstItsTeam, the holder of one key sends what might be served and not charged, or charged to others and not served. What
// a provider would take of each request is known here. Beyond one estimate, nothing is had for less, and a refused prompt costs its prompt.
func TestOneKeyAgainstItsTeam(t *testing.T) {
	table := check.Call(price.NewTable(map[string]price.Model{
		"small": {Rates: price.Rates{price.Input: price.PerMillion("1"), price.Output: price.PerMillion("1")}},
		"large": {Rates: price.Rates{price.Input: price.PerMillion("100"), price.Output: price.PerMillion("100")}},
	})).Must(t, "price.NewTable()")
	const messages = "/v1/messages"
	for _, test := range []struct {
		name, path, body, answer string
		least                    int64 // nano-dollars that the estimate takes; 0 for a request that is not sent
		most                     int64 // nano-dollars that the call may cost in the end
	}{
		{"a bound in another notation", chatPath, `{"model":"small","max_tokens":"3e4","max_tokens":1}`, `{}`, 30_000_000, 30_001_000},
		{"a bound with an exponent beyond all numbers", chatPath, `{"model":"small","max_tokens":1e999}`, `{"error":{"message":"no"}}`, 1_000_000_000, 0},
		{"a bound in digits of another script", chatPath, `{"model":"small","max_tokens":"３００"}`, ``, 0, 0},
		{"a bound in hexadecimal", chatPath, `{"model":"small","max_tokens":"0x7530"}`, ``, 0, 0},
		{"a bound that is an object", chatPath, `{"model":"small","max_tokens":{"$numberLong":"30000"}}`, ``, 0, 0},
		{"a bound behind an escape", chatPath, `{"model":"small","max\u005ftokens":30000,"max_tokens":1}`, `{}`, 30_000_000, 30_001_000},
		{"a bound of thinking", messages, `{"model":"small","max_tokens":1,"thinking":{"type":"enabled","budget_tokens":30000}}`, `{}`, 30_000_000, 30_001_000},
		{"many choices", chatPath, `{"model":"small","max_tokens":1000,"n":"30"}`, `{}`, 30_000_000, 30_001_000},
		{"a large model that stands in", chatPath, `{"model":"small","max_tokens":1000,"fallbacks":["large"]}`, `{}`, 100_000_000, 100_200_000},
		{"a large model, within another member", chatPath, `{"model":"small","max_tokens":1000,"extra_body":{"models":["large"]}}`, `{}`, 100_000_000, 100_200_000},
		{"a model in another case", chatPath, `{"model":"small","Model":"large","max_tokens":1000}`, ``, 0, 0},
		{"a model without a price", chatPath, `{"model":"small","fallbacks":[{"model":"free"}],"max_tokens":1000}`, ``, 0, 0},
		{
			"a blocked prompt with a large bound", "/v1beta/models/small:generateContent", `{"contents":[{"parts":[{"text":"12345678"}]}],"generationConfig":{"maxOutputTokens":65536}}`,
			`{"promptFeedback":{"blockReason":"SAFETY"},"usageMetadata":{"promptTokenCount":2,"totalTokenCount":2}}`, 65_536_000, 2000,
		},
		{
			"an error within status 200", "/v1/responses", `{"model":"small","max_output_tokens":50000,"stream":true}`,
			"event: response.failed\ndata: {\"type\":\"response.failed\",\"response\":{\"status\":\"failed\",\"error\":{\"code\":\"server_error\",\"message\":\"no\"}}}\n\n", 50_000_000, 0,
		},
		{
			"an answer that says that it took nothing", chatPath, `{"model":"small","max_tokens":1000}`,
			`{"choices":[{"message":{"content":"` + strings.Repeat("word", 500) + `"},"finish_reason":"stop"}],"usage":{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}}`, 1_000_000, 501_000,
		},
	} {
		limiter, _ := zlimittest.New(t, zlimit.PerDay("usd", 1000*int64(price.Dollar)))
		of := func() int64 { return 1000*int64(price.Dollar) - left(t, limiter, "models")["usd"] }
		taken, sent := int64(0), false
		base := faulttest.RoundTripper(func(r *http.Request) (*http.Response, error) {
			taken, sent = of(), true
			kind := "application/json"
			if strings.HasPrefix(test.answer, "event:") {
				kind = "text/event-stream"
			}
			return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {kind}}, Body: io.NopCloser(strings.NewReader(test.answer)), Request: r}, nil
		})
		transport, _ := newTransport(t, limiter, base, llm.WithPrices("usd", table), llm.WithModels(llm.Rule{Pattern: "*", Resource: "models"}))
		response, err := transport.RoundTrip(newRequest(t, test.path, test.body))
		if test.least == 0 {
			if err == nil || sent || of() != 0 {
				t.Errorf("%s: it is sent, or %d is taken: %v", test.name, of(), err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		if charged := of(); taken < test.least || charged > test.most {
			t.Errorf("%s: the estimate takes %d, at least %d expected; the call costs %d, at most %d expected", test.name, taken, test.least, charged, test.most)
		}
	}
}

// In TestLeavingEarly, a key leaves its streams at every place, fifty at the same time. Each is charged the text that came.
func TestLeavingEarly(t *testing.T) {
	const words = 40
	var stream strings.Builder
	for range words {
		stream.WriteString(`data: {"model":"m","choices":[{"delta":{"content":"word"},"finish_reason":null}]}` + "\n\n")
	}
	event := stream.Len() / words
	limiter, _ := zlimittest.New(t, zlimit.PerDay("tpm", 1_000_000))
	base := faulttest.RoundTripper(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(strings.NewReader(stream.String())), Request: r}, nil
	})
	transport, _ := newTransport(t, limiter, base, llm.WithLimit("tpm", llm.PerToken))
	var group sync.WaitGroup
	for i := range 50 {
		group.Go(func() {
			response, err := transport.RoundTrip(newRequest(t, chatPath, `{"model":"m","max_tokens":1000,"stream":true}`))
			if err != nil {
				t.Errorf("RoundTrip() = %v", err)
				return
			}
			_, _ = io.CopyN(io.Discard, response.Body, int64(event*(i%words)))
			_ = response.Body.Close()
		})
	}
	group.Wait()
	want := int64(0)
	for i := range 50 {
		want += int64(i % words)
	}
	if used := 1_000_000 - left(t, limiter, "m")["tpm"]; used < want || used > want+50*2 {
		t.Errorf("fifty streams that were left are charged %d, want %d for their text", used, want)
	}
}
