package llm_test

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"reflect"
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

// In TestBoundsUnderAnyName, requests have several bounds, or bounds written as lenient servers read them. The greatest one is
// estimated, and one that is not of the API makes no estimate smaller.
func TestBoundsUnderAnyName(t *testing.T) {
	const gemini, converse = "/v1beta/models/m:generateContent", "/model/m/converse"
	for _, test := range []struct {
		path, body string
		want       int64
	}{
		{chatPath, `"max_tokens":1,"max_completion_tokens":30000`, 30_000},
		{chatPath, `"max_completion_tokens":1,"max_tokens":30000`, 30_000},
		{chatPath, `"max_tokens":30000,"max_tokens":1`, 30_000},
		{chatPath, `"max_tokens":1,"max_tokens":30000`, 30_000},
		{chatPath, `"max_tokens":3e4`, 30_000},
		{chatPath, `"max_tokens":3.0E+4`, 30_000},
		{chatPath, `"max_tokens":30000.0`, 30_000},
		{chatPath, `"max_tokens":29999.5`, 30_000},
		{chatPath, `"max_tokens":"30000"`, 30_000},
		{chatPath, `"max_tokens":" 30_000 "`, 30_000},
		{chatPath, `"max_tokens":"3e4"`, 30_000},
		{chatPath, `"max_tokens":"\u0033e4"`, 30_000},
		{chatPath, `"max_tokens":"+30000"`, 30_000},
		{chatPath, `"max_tokens":[30000]`, 30_000},
		{chatPath, `"max_tokens":10,"Max_Tokens":30000`, 30_000},
		{chatPath, `"max_tokens":10,"max-new-tokens":30000`, 30_000},
		{chatPath, `"max_tokens":10,"options":{"num_predict":30000}`, 30_000},
		{chatPath, `"max_tokens":10,"extra_body":{"maxTokens":30000}`, 30_000},
		{chatPath, `"max_tokens":10,"options":{"num_predict":-1}`, 1024},
		{chatPath, `"max_tokens":10,"max_completion_tokens":null`, 10},
		{chatPath, `"max_tokens":10,"max_tokens":null`, 10},
		{chatPath, `"max_output_tokens":1`, 1024},
		{chatPath, `"options":{"num_predict":1}`, 1024},
		{chatPath, `"MAX_TOKENS":1`, 1024},
		{chatPath, `"max_tokens":10,"tools":[{"function":{"parameters":{"properties":{"max_tokens":{"default":30000}}}}}]`, 10},
		{chatPath, `"max_tokens":10,"metadata":{"max_tokens":"many"}`, 10},
		{chatPath, `"max_tokens":10,"n":1,"n":"3","N":2.0`, 30},
		{chatPath, `"max_tokens":1e999`, 1_000_000},
		{"/v1/completions", `"max_tokens":10,"best_of":20,"n":2`, 200},
		{"/v1/completions", `"max_tokens":10,"prompt":["a","b","c"],"n":2`, 61},
		{"/v1/completions", `"max_tokens":10,"prompt":[[1,2],[3]]`, 20},
		{"/v1/completions", `"max_tokens":10,"prompt":"abcd"`, 11},
		{"/v1/messages", `"max_tokens":10,"thinking":{"budget_tokens":30000}`, 30_000},
		{"/v1/messages", `"max_tokens":10,"fallbacks":[{"model":"m","max_tokens":30000}]`, 30_000},
		{"/v1/messages", `"max_tokens":10,"system":"12345678","context_management":{"edits":[{"type":"compact_20260112"}]}`, 14},
		{gemini, `"generationConfig":{"maxOutputTokens":10},"generation_config":{"max_output_tokens":"3e4"}`, 30_000},
		{gemini, `"generationConfig":{"maxOutputTokens":10,"candidateCount":2},"generation_config":{"candidate_count":3}`, 30},
		{converse, `"inferenceConfig":{"maxTokens":10},"additionalModelRequestFields":{"max_tokens":30000}`, 30_000},
		{"/model/m/invoke", `"max_gen_len":10`, 10},
		{"/model/m/invoke", `"textGenerationConfig":{"maxTokenCount":10}`, 10},
	} {
		call, err := llm.Inspect(newRequest(t, test.path, `{"model":"m",`+test.body+`}`))
		if got := min(call.Input+call.Output, 1_000_000); err != nil || got < test.want || got > test.want+8 { // a few tokens of text
			t.Errorf("%s %s: Inspect() = %d tokens, %v, want %d", test.path, test.body, got, err, test.want)
		}
	}
}

// TestBoundsThatCannotBeRead covers bounds that some server may read. The request is refused, and nothing is sent.
func TestBoundsThatCannotBeRead(t *testing.T) {
	for _, body := range []string{
		`"max_tokens":"0x7530"`, `"max_tokens":true`, `"max_tokens":"many"`, `"max_tokens":{"value":30000}`, `"max_tokens":"Infinity"`, `"max_tokens":"1 000"`, `"n":"x"`,
		`"max_tokens":` + strings.Repeat("0", 300) + `30000`, `"max_tokens":30000.` + strings.Repeat("0", 300), `"max_tokens":"` + strings.Repeat(" ", 300) + `30000"`,
	} {
		var invalid *zlimit.ValidationError
		if call, err := llm.Inspect(newRequest(t, chatPath, `{"model":"m",`+body+`}`)); !errors.As(err, &invalid) || invalid.Field != "max_tokens" && invalid.Field != "n" {
			t.Errorf("%.40s: Inspect() = %+v, %v, want it refused", body, call, err)
		}
	}
}

// TestBoundsHold sends fifty requests at the same time whose estimate fits into the limit three times, however the bound is
// written.
func TestBoundsHold(t *testing.T) {
	for _, body := range []string{
		`{"model":"m","max_tokens":30000}`, `{"model":"m","max_completion_tokens":1,"max_tokens":30000}`, `{"model":"m","max_tokens":3e4}`, `{"model":"m","max_tokens":"30000"}`,
	} {
		limiter, _ := zlimittest.New(t, zlimit.PerMinute("tpm", 100_000))
		var all sync.WaitGroup
		answer, served := make(chan struct{}), make(chan bool)
		transport, _ := newTransport(t, limiter, faulttest.RoundTripper(func(r *http.Request) (*http.Response, error) {
			served <- true
			<-answer
			return respond(200, http.Header{}, io.NopCloser(strings.NewReader(`{"usage":{"prompt_tokens":5,"completion_tokens":30000}}`)))(r)
		}), llm.WithLimit("tpm", llm.PerToken))
		for range 50 {
			all.Go(func() {
				response, err := transport.RoundTrip(newRequest(t, chatPath, body))
				if err != nil {
					served <- false
					return
				}
				_, _ = io.Copy(io.Discard, response.Body)
				_ = response.Body.Close()
			})
		}
		count := 0
		for range 50 {
			if <-served {
				count++
			}
		}
		close(answer)
		if all.Wait(); count != 3 {
			t.Errorf("%s: %d of 50 are served at once, want 3", body, count)
		}
	}
}

// TestAllModelsOfARequest finds the models that requests name besides the first one.
func TestAllModelsOfARequest(t *testing.T) {
	for _, test := range []struct {
		path, body string
		want       []string
	}{
		{"/v1/messages", `{"model":"small","tools":[{"type":"advisor_20260301","model":"big"}]}`, []string{"small", "big"}},
		{"/v1/messages", `{"tools":[{"type":"advisor_20260301","model":"big"}],"model":"small"}`, []string{"small", "big"}},
		{"/v1/messages", `{"model":"small","fallbacks":[{"model":"big"},{"model":"small"}]}`, []string{"small", "big"}},
		{"/v1/messages", `{"model":"small","tools":[{"Model":"big"}]}`, []string{"small", "big"}},
		{"/v1/messages", `{"model":"small","tools":[{"mod\u0065l":"b\u0069g"}]}`, []string{"small", "big"}},
		{"/v1/messages", `{"model":"small","advice":{"judge_model":"big"}}`, []string{"small", "big"}},
		{"/v1/messages", `{"model":"small","messages":[{"tools":[{"model":"big"}]}]}`, []string{"small", "big"}},
		{"/v1/responses", `{"model":"small","tools":[{"type":"image_generation","model":"picture"}]}`, []string{"small", "picture"}},
		{chatPath, `{"model":"small","models":["big","other"]}`, []string{"small", "big", "other"}},
		{chatPath, `{"models":["big","other"]}`, []string{"big", "other"}},
		{chatPath, `{"model":"small","plugins":[{"id":"x","modelId":"big"}]}`, []string{"small", "big"}},
		{chatPath, `{"model":"small","fallbacks":["big"]}`, []string{"small", "big"}},
		{chatPath, `{"model":"small","fallbacks":[{"small":["big"]}]}`, []string{"small", "big"}},
		{chatPath, `{"model":"small","extra_body":{"fallback_models":["big"]}}`, []string{"small", "big"}},
		{chatPath, `{"model":"small,big"}`, []string{"small,big", "small", "big"}},
		{chatPath, `{"model":"small","tools":[{"function":{"parameters":{"properties":{"model":{"type":"string","default":"x"}}}}}]}`, []string{"small"}},
		{chatPath, `{"model":"small","messages":[{"content":[{"type":"tool_use","input":{"model":"T"}}]}],"metadata":{"model":"x"}}`, []string{"small"}},
		{"/openai/deployments/mine/chat/completions", `{"model":"other","models":["big"]}`, []string{"mine", "big"}},
		{"/v1beta/models/small:batchEmbedContents", `{"requests":[{"model":"models/small"},{"model":"models/big"}]}`, []string{"small", "big"}},
		{"/model/small/converse", `{"additionalModelRequestFields":{"tools":[{"model":"big"}]}}`, []string{"small", "big"}},
	} {
		call, err := llm.Inspect(newRequest(t, test.path, test.body))
		if err != nil || !reflect.DeepEqual(call.Models, test.want) || call.Model != test.want[0] {
			t.Errorf("%s: Inspect() = %+v, %v, want the models %q", test.body, call, err, test.want)
		}
	}
	for _, body := range []string{
		`{"model":"small","tools":[{"model":"` + strings.Repeat("x", 300) + `"}]}`,
		`{"model":"small","models":[` + strings.TrimSuffix(strings.Repeat(`"a","b","c","d","e","f","g","h","i","j","k","l","m","n","o","p","q",`, 1), ",") + `]}`,
	} {
		if call, err := llm.Inspect(newRequest(t, chatPath, body)); !errors.As(err, new(*zlimit.ValidationError)) {
			t.Errorf("%.60s: Inspect() = %+v, %v, want it refused", body, call, err)
		}
	}
}

// TestSecondModels asks for models beside the first one: each is checked, has a rule, and what it takes is of its own limit.
func TestSecondModels(t *testing.T) {
	forbidden := errors.New("not for big models")
	limit := []zlimit.Limit{zlimit.PerMinute("rpm", 10), zlimit.PerMinute("tpm", 100_000)}
	for _, test := range []struct {
		name, body, answer string
		opts               []llm.Option
		err                error
		small, big         map[string]int64 // what is left
	}{
		{
			"a check", `{"model":"small","max_tokens":50,"tools":[{"model":"big"}]}`, "",
			[]llm.Option{llm.WithCheck(func(_ *http.Request, c llm.Call) error {
				if c.Model == "big" {
					return forbidden
				}
				return nil
			})},
			forbidden, nil, nil,
		},
		{
			"a rule", `{"model":"small","max_tokens":50,"fallbacks":[{"model":"unheard"}]}`, "",
			[]llm.Option{llm.WithModels(llm.Rule{Pattern: "small"}, llm.Rule{Pattern: "big"})},
			&zlimit.ValidationError{}, nil, nil,
		},
		{
			"a model that stands in", `{"model":"small","max_tokens":50,"fallbacks":[{"model":"big"}]}`,
			`{"model":"big-20260101","stop_reason":"end_turn","usage":{"input_tokens":100,"output_tokens":7}}`, nil, nil,
			map[string]int64{"rpm": 10, "tpm": 100_000},
			map[string]int64{"rpm": 9, "tpm": 100_000 - 107},
		},
		{
			"one that need not", `{"model":"small","max_tokens":50,"fallbacks":[{"model":"big"}]}`,
			`{"model":"small","stop_reason":"end_turn","usage":{"input_tokens":100,"output_tokens":7}}`, nil, nil,
			map[string]int64{"rpm": 9, "tpm": 100_000 - 107},
			map[string]int64{"rpm": 10, "tpm": 100_000},
		},
		{
			"an advisor", `{"model":"small","max_tokens":50,"tools":[{"model":"big"}]}`,
			`{"model":"small","stop_reason":"end_turn","usage":{"input_tokens":100,"output_tokens":7,"iterations":[{"type":"message","input_tokens":100,"output_tokens":7},` +
				`{"type":"advisor_message","model":"big","input_tokens":9000,"output_tokens":1200},{"type":"compaction","input_tokens":500,"output_tokens":20}]}}`, nil, nil,
			map[string]int64{"rpm": 9, "tpm": 100_000 - 627},
			map[string]int64{"rpm": 10, "tpm": 100_000 - 10_200},
		},
	} {
		limiter, _ := zlimittest.New(t, limit...)
		transport, reports := newTransport(t, limiter, respond(200, http.Header{}, io.NopCloser(strings.NewReader(test.answer))), test.opts...)
		response, err := transport.RoundTrip(newRequest(t, "/v1/messages", test.body))
		if test.err != nil {
			var invalid *zlimit.ValidationError
			if !errors.Is(err, test.err) && (!errors.As(test.err, &invalid) || !errors.As(err, &invalid)) || limiter.Stats().Admitted != 0 {
				t.Errorf("%s: RoundTrip() = %v, want %v", test.name, err, test.err)
			}
			continue
		}
		check.Fatal(t, "RoundTrip()", err)
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		if small, big := left(t, limiter, "small"), left(t, limiter, "big"); !maps.Equal(small, test.small) || !maps.Equal(big, test.big) {
			t.Errorf("%s: left are %v of small and %v of big, want %v and %v", test.name, small, big, test.small, test.big)
		}
		if got := reports.one(t); got.Charged["rpm"] != 1 || got.Charged["tpm"] != 200_000-test.small["tpm"]-test.big["tpm"] || got.Err != nil {
			t.Errorf("%s: Report = %+v", test.name, got)
		}
	}
}

// TestPricesOfSecondModels holds the dearest of the models of a call, and charges each model what it took.
func TestPricesOfSecondModels(t *testing.T) {
	const body = `{"model":"small","max_tokens":1000,"tools":[{"model":"large"}]}`
	for _, test := range []struct {
		name, body, answer string
		held, want         string // dollars
	}{
		{"an advisor", body, `{"model":"small","stop_reason":"end_turn","usage":{"input_tokens":1000,"output_tokens":100,"iterations":[` +
			`{"type":"advisor_message","model":"large","input_tokens":2000,"output_tokens":500},{"type":"compaction","input_tokens":3000,"output_tokens":50}]}}`, "0.05", "0.0496"},
		{"one that stands in", body, `{"model":"large","stop_reason":"end_turn","usage":{"input_tokens":1000,"output_tokens":100}}`, "0.05", "0.015"},
		{"one that no list has", body, `{"model":"unheard","stop_reason":"end_turn","usage":{"input_tokens":1000,"output_tokens":100}}`, "0.05", "0.015"},
		{"none but the first", `{"model":"small","max_tokens":1000}`, `{"model":"unheard","stop_reason":"end_turn","usage":{"input_tokens":1000,"output_tokens":100}}`, "0.004", "0.0014"},
	} {
		limiter, _ := zlimittest.New(t, zlimit.PerDay("usd", int64(price.Dollar)))
		held := ""
		transport, reports := newTransport(t, limiter, faulttest.RoundTripper(func(r *http.Request) (*http.Response, error) {
			held = (price.Dollar - price.NanoDollars(left(t, limiter, "all")["usd"])).String()
			return respond(200, http.Header{}, io.NopCloser(strings.NewReader(test.answer)))(r)
		}), llm.WithPrices("usd", prices(t)), llm.WithModels(llm.Rule{Pattern: "*", Resource: "all"}))
		response := check.Call(transport.RoundTrip(newRequest(t, "/v1/messages", test.body))).Must(t, "RoundTrip()")
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		got := reports.one(t)
		if charged := price.NanoDollars(got.Charged["usd"]).String(); got.Err != nil || charged != test.want || !strings.HasPrefix(held, test.held) {
			t.Errorf("%s: held %s, charged %s, %v, want %s and %s", test.name, held, charged, got.Err, test.held, test.want)
		}
	}
}

// TestPricesByModel charges what an answer reports by model at the prices of the models, and a model without a price at that of the call.
func TestPricesByModel(t *testing.T) {
	const (
		small  = `{"model":"small","usage":{"prompt_tokens":1000,"prompt_tokens_details":{"cached_tokens":400},"completion_tokens":100}}`
		large  = `{"model":"large","usage":{"prompt_tokens":2000,"completion_tokens":500}}`
		odd    = `{"model":"unheard","usage":{"prompt_tokens":500,"completion_tokens":10}}`
		events = "text/event-stream"
	)
	usage := func(prompt, cached, completion int) string {
		return fmt.Sprintf(`"usage":{"prompt_tokens":%d,"prompt_tokens_details":{"cached_tokens":%d},"completion_tokens":%d,"total_tokens":%d}`, prompt, cached, completion, prompt+completion)
	}
	const svg = `"svg_usage":{"input_tokens":2000,"model":"large","output_tokens":500,"reasoning_tokens":100,"total_tokens":2500}`
	for _, test := range []struct{ name, kind, answer, want string }{
		{"the writer of a picture", "/v1/images/generations", `{"data":[],` + svg + `,"usage":{"input_tokens":1000,"output_tokens":100,"total_tokens":1100}}`, "0.0464"},
		{"the writer of a picture of a response", "/v1/responses", `{"model":"small","output":[{"type":"image_generation_call",` + svg + `}],"usage":{"input_tokens":1000,"output_tokens":100,"total_tokens":1100}}`, "0.0464"},
		{"two models", "", `{"model":"small","choices":[{"finish_reason":"stop"}],` + usage(3000, 400, 600) + `,"usage_breakdown":{"models":[` + small + `,` + large + `]}}`, "0.04604"},
		{"the breakdown first", "", `{"usage_breakdown":{"models":[` + large + `,` + small + `]},"model":"small","choices":[{"finish_reason":"stop"}],` + usage(3000, 400, 600) + `}`, "0.04604"},
		{"a model without a price", "", `{"model":"small","choices":[{"finish_reason":"stop"}],` + usage(2500, 0, 510) + `,"usage_breakdown":{"models":[` + large + `,` + odd + `]}}`, "0.04554"},
		{"more than the models took", "", `{"model":"small","choices":[{"finish_reason":"stop"}],` + usage(2100, 0, 520) + `,"usage_breakdown":{"models":[` + large + `]}}`, "0.04518"},
		{"no sum", "", `{"model":"small","choices":[{"finish_reason":"stop"}],"usage_breakdown":{"models":[` + small + `,` + large + `]}}`, "0.04604"},
		{"a stream", events, `data: {"model":"small","choices":[{"delta":{},"finish_reason":"stop"}],"x_groq":{"id":"r",` + usage(3000, 400, 600) +
			`,"usage_breakdown":{"models":[` + small + `,` + large + `]}}}` + "\n\ndata: [DONE]\n\n", "0.04604"},
	} {
		limiter, _ := zlimittest.New(t, zlimit.PerDay("usd", int64(price.Dollar)))
		path, kind := chatPath, test.kind
		if strings.HasPrefix(kind, "/") { // the path of a call whose answer is a body
			path, kind = kind, ""
		}
		transport, reports := newTransport(t, limiter, respond(200, http.Header{"Content-Type": {kind}}, io.NopCloser(strings.NewReader(test.answer))),
			llm.WithPrices("usd", prices(t)))
		response := check.Call(transport.RoundTrip(newRequest(t, path, `{"model":"small","max_tokens":1000}`))).Must(t, "RoundTrip()")
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		got := reports.one(t)
		if charged := price.NanoDollars(got.Charged["usd"]).String(); got.Err != nil || charged != test.want || !got.Usage.Complete {
			t.Errorf("%s: charged %s, %v, want %s: %+v", test.name, charged, got.Err, test.want, got.Usage)
		}
	}
}

// In TestLimitsWithinAnswers, providers report a rate limit in an answer of status 200. It teaches as a status 429 does.
func TestLimitsWithinAnswers(t *testing.T) {
	for _, test := range []struct {
		name, path, kind, answer string
		wait                     int64 // seconds
	}{
		{"a response that failed", "/v1/responses", "text/event-stream", `data: {"type":"response.failed","response":{"status":"failed","error":{"code":"rate_limit_exceeded","message":"Please try again in 3s."}}}` + "\n\n", 3},
		{"an error event", "/v1/responses", "text/event-stream", `data: {"type":"error","code":"rate_limit_exceeded","message":"Rate limit reached. Please try again in 1m0.5s."}` + "\n\n", 60},
		{"an error of a choice", chatPath, "application/json", `{"choices":[{"error":{"code":429,"message":"busy, retry after 20 seconds"}}]}`, 20},
		{"Gemini", "/v1beta/models/m:streamGenerateContent", "application/json", `[{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","details":[{"retryDelay":"7s"}]}}]`, 7},
		{"Gemini behind the chat", chatPath, "application/json", `[{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","details":[{"retryDelay":"7s"}]}}]`, 7},
		{"another error", "/v1/responses", "text/event-stream", `data: {"type":"error","code":"server_error","message":"try again in 3s"}` + "\n\n", 0},
	} {
		limiter, _ := zlimittest.New(t, zlimit.PerMinute("tpm", 60_000))
		transport, _ := newTransport(t, limiter, respond(200, http.Header{"Content-Type": {test.kind}}, io.NopCloser(strings.NewReader(test.answer))),
			llm.WithLimit("tpm", llm.PerToken), llm.WithLearning("alice"))
		response, err := transport.RoundTrip(newRequest(t, test.path, `{"model":"m","stream":true,"max_output_tokens":100}`))
		check.Fatal(t, "RoundTrip()", err)
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		check.Fatal(t, "Wait()", transport.Wait(t.Context()))
		want := int64(60_000)
		if test.wait > 0 {
			want = -1000 * test.wait // which flows in until then
		}
		if got := left(t, limiter, "m")["tpm"]; got < want-1000 || got > want {
			t.Errorf("%s: %d tokens are left, want %d", test.name, got, want)
		}
	}
}
