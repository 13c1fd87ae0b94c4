package llm_test

import (
	"io"
	"math/big"
	"net/http"
	"strings"
	"testing"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/faulttest"
	"github.com/zlimit/zlimit-go/llm"
	"github.com/zlimit/zlimit-go/price"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/zlimittest"
)

// TestServiceInEstimates asks for classes of service and speeds. An estimate takes the dearer of that and of the usual one, and a stream
// that breaks off is charged so; the answer decides where it says the class.
func TestServiceInEstimates(t *testing.T) {
	table, err := price.NewTable(map[string]price.Model{"m": {
		Rates:    price.Rates{price.Input: price.PerMillion("1000"), price.Output: price.PerMillion("1000")},
		Services: map[string]price.Service{"flex": {Factor: big.NewRat(1, 2)}, "priority": {Factor: big.NewRat(2, 1)}, "decisions": {Factor: big.NewRat(3, 1)}},
		Speeds:   map[string]*big.Rat{"fast": big.NewRat(6, 1), "optimized": big.NewRat(3, 1)},
	}})
	check.Fatal(t, "price.NewTable()", err)
	const gemini, converse, messages = "/v1/models/m:generateContent", "/model/m/converse", "/v1/messages"
	const chatted, fast = `{"model":"m","choices":[{"finish_reason":"stop"}],"usage":{"prompt_tokens":0,"completion_tokens":10}}`, `{"model":"m","stop_reason":"end_turn","usage":{"input_tokens":0,"output_tokens":10,"speed":"standard","service_tier":"standard"}}`
	for _, test := range []struct {
		name, path, request, answer string
		estimate, charge            int64 // thousandths of a dollar, as a token costs one
	}{
		{"none", chatPath, `{"model":"m","max_tokens":100}`, chatted, 100, 10},
		{"priority", chatPath, `{"model":"m","max_tokens":100,"service_tier":"priority"}`, chatted, 200, 10},
		{"priority, as fast", chatPath, `{"model":"m","max_tokens":100,"service_tier":"fast"}`, strings.Replace(chatted, "{", `{"service_tier":"fast",`, 1), 200, 20},
		{"priority, in other letters", chatPath, `{"model":"m","max_tokens":100,"service_tier":"PRIORITY"}`, chatted, 200, 10},
		{"twice", chatPath, `{"model":"m","max_tokens":100,"service_tier":"priority","service_tier":null}`, chatted, 200, 10},
		{"flex, which a server may not know", chatPath, `{"model":"m","max_tokens":100,"service_tier":"flex"}`, chatted, 100, 10},
		{"no class at all", chatPath, `{"model":"m","max_tokens":100,"service_tier":7,"speed":1.5}`, chatted, 100, 10},
		{"fast", messages, `{"model":"m","max_tokens":100,"speed":"fast"}`, fast, 600, 10},
		{"Converse", converse, `{"inferenceConfig":{"maxTokens":100},"serviceTier":{"type":"priority"}}`, `{"usage":{"inputTokens":0,"outputTokens":10},"stopReason":"end_turn","serviceTier":{"type":"priority"}}`, 200, 20},
		{"Converse, optimized", converse, `{"inferenceConfig":{"maxTokens":100},"performanceConfig":{"latency":"optimized"}}`, `{"usage":{"inputTokens":0,"outputTokens":10},"stopReason":"end_turn"}`, 300, 10},
		{"Gemini", gemini, `{"generationConfig":{"maxOutputTokens":100},"serviceTier":"priority"}`, `{"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":0,"candidatesTokenCount":10}}`, 200, 10},
		{"decisions, which are a class", "/v1/decisions", `{"model":"m"}`, `{"model":"m","usage":{"input_tokens":0,"output_tokens":10}}`, 3 * 1024, 30},
		{"a stream that breaks off", chatPath, `{"model":"m","max_tokens":100,"service_tier":"priority","stream":true}`, `{"model":"m","choices":[{"delta":{"content":"` + strings.Repeat("word", 10) + `"}}]}`, 200, 20},
	} {
		limiter, _ := zlimittest.New(t, zlimit.PerDay("usd", 1000*int64(price.Dollar)))
		of := func() int64 { return 1_000_000 - left(t, limiter, "m")["usd"]/int64(price.Dollar/1000) }
		taken := int64(0)
		base := faulttest.RoundTripper(func(r *http.Request) (*http.Response, error) {
			taken = of()
			return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(test.answer)), Request: r}, nil
		})
		estimate := func(_ *http.Request, c llm.Call) llm.Call { // of no prompt
			c.Input = 0
			return c
		}
		transport, _ := newTransport(t, limiter, base, llm.WithPrices("usd", table), llm.WithEstimate(estimate))
		response, err := transport.RoundTrip(newRequest(t, test.path, test.request))
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		if charged := of(); taken != test.estimate || charged != test.charge {
			t.Errorf("%s: the estimate takes %d and the call %d, want %d and %d", test.name, taken, charged, test.estimate, test.charge)
		}
	}
}

// TestBetasOfBodies reads the beta features that bodies turn on.
func TestBetasOfBodies(t *testing.T) {
	const invoke = "/model/us.anthropic.claude-sonnet-4-5-20250929-v1:0/invoke"
	for _, test := range []struct {
		path, body string
		want       []string
		refused    string
	}{
		{invoke, `{"anthropic_version":"bedrock-2023-05-31","max_tokens":9,"anthropic_beta":["a-1","b-2","a-1"]}`, []string{"a-1", "b-2"}, ""},
		{invoke, `{"anthropic_beta":"a-1, b-2"}`, []string{"a-1", "b-2"}, ""},
		{invoke, `{"Anthropic-Beta":["a-1"]}`, []string{"a-1"}, ""},
		{invoke, `{"anthropic_beta":["\u0061-1"],"anthropic_beta":["b-2"]}`, []string{"a-1", "b-2"}, ""},
		{invoke, `{"anthropic_beta":null,"messages":[{"content":{"anthropic_beta":"said"}}],"metadata":{"betas":["mine"]}}`, nil, ""},
		{invoke, `{"anthropic_beta":[1]}`, nil, "anthropic_beta"},
		{invoke, `{"anthropic_beta":["` + strings.Repeat("a", 10_000) + `"]}`, nil, "anthropic_beta"},
		{"/model/m/converse", `{"additionalModelRequestFields":{"anthropic_beta":["a-1"]}}`, []string{"a-1"}, ""},
		{"/v1/messages", `{"model":"m","betas":["a-1"]}`, []string{"a-1"}, ""},
		{"/v1/projects/p/locations/l/publishers/anthropic/models/claude:rawPredict", `{"anthropic_beta":["a-1"]}`, []string{"a-1"}, ""},
	} {
		c, err := llm.Inspect(newRequest(t, test.path, test.body))
		if test.refused != "" {
			if err == nil || !strings.Contains(err.Error(), test.refused) {
				t.Errorf("Inspect(%.80s) = %v, want it refused", test.body, err)
			}
			continue
		}
		if err != nil || strings.Join(c.Betas, " ") != strings.Join(test.want, " ") {
			t.Errorf("Inspect(%.80s) = %q, %v, want %q", test.body, c.Betas, err, test.want)
		}
	}
}

// In TestRefusalsInMoney, a budget refuses a call. The test reads the text that the caller gets.
func TestRefusalsInMoney(t *testing.T) {
	limiter, _ := zlimittest.New(t, zlimit.USD("usd", 25, zlimit.PerMonth))
	transport, _ := newTransport(t, limiter, respond(200, http.Header{}, http.NoBody), llm.WithResponses(),
		llm.WithCharge("usd", func(string, llm.Usage) (int64, error) { return 20_500_000_000, nil }))
	for want := range 2 {
		response := check.Call(transport.RoundTrip(newRequest(t, chatPath, `{"model":"m"}`))).Must(t, "RoundTrip()")
		body, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if want == 1 && (response.StatusCode != 429 || !strings.Contains(string(body), "usd (requested $20.5, available $4.5 of $25)")) {
			t.Errorf("the call beyond the budget is answered by %d %s", response.StatusCode, body)
		}
	}
}
