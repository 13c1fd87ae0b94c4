package llm_test

import (
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/faulttest"
	"github.com/zlimit/zlimit-go/llm"
	"github.com/zlimit/zlimit-go/price"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/zlimittest"
)

// prices returns made-up prices of two models.
func prices(t *testing.T) *price.Table {
	t.Helper()
	table, err := price.NewTable(map[string]price.Model{
		"small": {
			Rates:    price.Rates{price.Input: price.PerMillion("1"), price.Output: price.PerMillion("4"), price.CacheRead: price.PerMillion("0.1")},
			Services: map[string]price.Service{"flex": {Factor: big.NewRat(1, 2)}},
		},
		"large": {Rates: price.Rates{
			price.Input: price.PerMillion("10"), price.Output: price.PerMillion("50"), price.Search: big.NewRat(1, 100),
			price.CacheWrite: price.PerMillion("12.5"), price.CacheWriteHour: price.PerMillion("20"), price.AudioInput: price.PerMillion("40"),
		}},
	})
	check.Fatal(t, "price.NewTable()", err)
	return table
}

// call sends one request whose answer is a document.
func call(t *testing.T, l *zlimit.RateLimiter, path, request, answer string, opts ...llm.Option) (llm.Report, error) {
	t.Helper()
	header := http.Header{"Content-Type": {"application/json"}}
	transport, reports := newTransport(t, l, respond(200, header, io.NopCloser(strings.NewReader(answer))), opts...)
	response, err := transport.RoundTrip(newRequest(t, path, request))
	if err != nil {
		return llm.Report{}, err
	}
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		t.Fatalf("io.Copy() = %v", err)
	}
	_ = response.Body.Close()
	return reports.one(t), nil
}

// TestPrices charges calls of several models, through one transport, by what they cost.
func TestPrices(t *testing.T) {
	for name, test := range map[string]struct {
		path, request, answer string
		want                  string // dollars
	}{
		"a chat":                        {chatPath, `{"model":"small"}`, `{"model":"small","choices":[{"finish_reason":"stop"}],"usage":{"prompt_tokens":100,"completion_tokens":10}}`, "0.00014"},
		"cached":                        {chatPath, `{"model":"small"}`, `{"model":"small","usage":{"prompt_tokens":100,"completion_tokens":10,"prompt_tokens_details":{"cached_tokens":50}}}`, "0.000095"},
		"a cheaper service":             {chatPath, `{"model":"small"}`, `{"model":"small","service_tier":"flex","usage":{"prompt_tokens":100,"completion_tokens":10}}`, "0.00007"},
		"another model answers":         {chatPath, `{"model":"small"}`, `{"model":"large","usage":{"prompt_tokens":100,"completion_tokens":10}}`, "0.0015"},
		"the name of a version answers": {chatPath, `{"model":"large"}`, `{"model":"large-2026-01-01","usage":{"prompt_tokens":100,"completion_tokens":10}}`, "0.0015"},
		"sound":                         {chatPath, `{"model":"large"}`, `{"model":"large","usage":{"prompt_tokens":100,"completion_tokens":10,"prompt_tokens_details":{"audio_tokens":50}}}`, "0.003"},
		"caches and searches": {
			"/v1/messages", `{"model":"large","max_tokens":5}`,
			`{"model":"large","stop_reason":"end_turn","usage":{"input_tokens":10,"output_tokens":2,"cache_creation_input_tokens":100,"cache_creation":{"ephemeral_1h_input_tokens":40},"server_tool_use":{"web_search_requests":2},"service_tier":"standard"}}`, "0.02175",
		},
		"an error": {chatPath, `{"model":"small"}`, `{"error":{"message":"no"}}`, "0"},
	} {
		limiter, _ := zlimittest.New(t, zlimit.PerDay("usd", 25*int64(price.Dollar)))
		report, err := call(t, limiter, test.path, test.request, test.answer, llm.WithPrices("usd", prices(t)))
		if err != nil || report.Err != nil {
			t.Errorf("%s: %v, %v", name, err, report.Err)
			continue
		}
		if got := price.NanoDollars(report.Charged["usd"]); got.String() != test.want {
			t.Errorf("%s: charged %s dollars, want %s", name, got, test.want)
		}
		if got := 25*int64(price.Dollar) - left(t, limiter, report.Resource)["usd"]; got != report.Charged["usd"] {
			t.Errorf("%s: the bucket lacks %d, and the report says %d", name, got, report.Charged["usd"])
		}
	}
}

// TestPricesMultiply charges calls whose prices depend on service, length, speed, region and hour at once.
func TestPricesMultiply(t *testing.T) {
	list, err := price.ReadLiteLLM(strings.NewReader(`{"claude": {
		"input_cost_per_token": 1e-06, "output_cost_per_token": 5e-06, "input_cost_per_token_above_200k_tokens": 2e-06, "output_cost_per_token_above_200k_tokens": 8e-06,
		"input_cost_per_token_priority": 3e-06, "output_cost_per_token_priority": 15e-06, "provider_specific_entry": {"fast": 6, "us": 1.1}
	}, "gpt": {"input_cost_per_token": 1e-06, "output_cost_per_token": 5e-06, "regional_processing_uplift_multiplier_eu": 1.1
	}, "gemini": {"input_cost_per_token": 1e-06, "output_cost_per_token": 5e-06, "regional_endpoint_uplift_multiplier": 1.1
	}, "night": {"input_cost_per_token": 1e-06, "output_cost_per_token": 5e-06, "off_peak_pricing": {"hours_utc": "16:30-00:30", "input_cost_per_token": 5e-07}}}`))
	if err != nil || len(list.Skipped) > 0 {
		t.Fatal(err, list.Skipped)
	}
	table := check.Call(price.NewTable(list.Models)).Must(t, "price.NewTable()")
	const claude, gemini = "/v1/messages", "/v1/projects/p/locations/%s/publishers/google/models/gemini:generateContent"
	answerOf := func(input int, more string) string {
		return fmt.Sprintf(`{"model":"claude","stop_reason":"end_turn","usage":{"input_tokens":%d,"output_tokens":1000%s}}`, input, more)
	}
	const counted = `{"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":1000,"candidatesTokenCount":1000,"totalTokenCount":2000}}`
	const chatted = `{"model":"%s","choices":[{"finish_reason":"stop"}],"usage":{"prompt_tokens":1000,"completion_tokens":1000}}`
	for name, test := range map[string]struct {
		host, path, request, answer string
		hour                        int
		want                        string // dollars
	}{
		"usual":                           {"", claude, `{"model":"claude","max_tokens":5}`, answerOf(1000, ""), 12, "0.006"},
		"fast":                            {"", claude, `{"model":"claude","max_tokens":5}`, answerOf(1000, `,"speed":"fast","service_tier":"standard"`), 12, "0.036"},
		"in the US":                       {"", claude, `{"model":"claude","max_tokens":5}`, answerOf(1000, `,"inference_geo":"us"`), 12, "0.0066"},
		"anywhere":                        {"", claude, `{"model":"claude","max_tokens":5}`, answerOf(1000, `,"inference_geo":"not_available"`), 12, "0.006"},
		"long":                            {"", claude, `{"model":"claude","max_tokens":5}`, answerOf(300_000, ""), 12, "0.608"},
		"fast, long, priority, in the US": {"", claude, `{"model":"claude","max_tokens":5}`, answerOf(300_000, `,"speed":"fast","inference_geo":"us","service_tier":"priority"`), 12, "12.0384"},
		"from the EU's host":              {"eu.api.openai.com", chatPath, `{"model":"gpt"}`, fmt.Sprintf(chatted, "gpt"), 12, "0.0066"},
		"from the usual host":             {"api.openai.com", chatPath, `{"model":"gpt"}`, fmt.Sprintf(chatted, "gpt"), 12, "0.006"},
		"in a region of Vertex AI":        {"", fmt.Sprintf(gemini, "europe-west4"), `{}`, counted, 12, "0.0066"},
		"anywhere on Vertex AI":           {"", fmt.Sprintf(gemini, "global"), `{}`, counted, 12, "0.006"},
		"by day":                          {"", chatPath, `{"model":"night"}`, fmt.Sprintf(chatted, "night"), 12, "0.006"},
		"by night":                        {"", chatPath, `{"model":"night"}`, fmt.Sprintf(chatted, "night"), 17, "0.0055"},
	} {
		limiter, _ := zlimittest.New(t, zlimit.PerDay("usd", 25*int64(price.Dollar)))
		clock := llm.WithClock(func() time.Time { return time.Date(2026, 2, 20, test.hour, 0, 0, 0, time.UTC) })
		transport, reports := newTransport(t, limiter, respond(200, http.Header{"Content-Type": {"application/json"}}, io.NopCloser(strings.NewReader(test.answer))), llm.WithPrices("usd", table), clock)
		r := newRequest(t, test.path, test.request)
		if test.host != "" {
			r.URL.Host = test.host
		}
		response, err := transport.RoundTrip(r)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		report := reports.one(t)
		if got := price.NanoDollars(report.Charged["usd"]); got.String() != test.want || report.Err != nil {
			t.Errorf("%s: charged %s dollars, %v, want %s", name, got, report.Err, test.want)
		}
	}
}

// TestFieldsOfMoney announces amounts of money in their unit.
func TestFieldsOfMoney(t *testing.T) {
	limiter, _ := zlimittest.New(t, zlimit.PerDay("usd", int64(price.Dollar)), zlimit.PerDay("budget", int64(price.Dollar)), zlimit.PerDay("cents", 100))
	answer := respond(200, http.Header{"Content-Type": {"application/json"}}, io.NopCloser(strings.NewReader(`{"usage":{"prompt_tokens":1,"completion_tokens":1}}`)))
	cents := llm.WithCharge("cents", func(string, llm.Usage) (int64, error) { return 1, nil })
	transport, _ := newTransport(t, limiter, answer, llm.WithFields(), llm.WithPrices("usd", prices(t)), llm.WithPrices("budget", prices(t)), cents)
	response := check.Call(transport.RoundTrip(newRequest(t, chatPath, `{"model":"small","max_tokens":10}`))).Must(t, "RoundTrip()")
	_ = response.Body.Close()
	const want = `"budget";q=1000000000;qu="nano-usd";w=86400, "cents";q=100;qu="tokens";w=86400, "usd";q=1000000000;qu="nano-usd";w=86400`
	if got := response.Header.Get("RateLimit-Policy"); got != want {
		t.Errorf("RateLimit-Policy = %s, want %s", got, want)
	}
}

// TestPricesRefuse asks for a model without a price, and for more than is left: nothing is sent.
func TestPricesRefuse(t *testing.T) {
	limiter, _ := zlimittest.New(t, zlimit.PerDay("usd", int64(price.Dollar)/1000))
	var invalid *zlimit.ValidationError
	if _, err := call(t, limiter, chatPath, `{"model":"other"}`, "", llm.WithPrices("usd", prices(t))); !errors.As(err, &invalid) || invalid.Value != "other" {
		t.Errorf("a model without a price = %v", err)
	}
	answer := `{"model":"large","usage":{"prompt_tokens":200,"completion_tokens":0}}`
	if _, err := call(t, limiter, chatPath, `{"model":"large","max_tokens":1}`, answer, llm.WithPrices("usd", prices(t))); err != nil {
		t.Fatalf("call() = %v", err)
	}
	if _, err := call(t, limiter, chatPath, `{"model":"large","max_tokens":1}`, answer, llm.WithPrices("usd", prices(t))); !errors.As(err, new(*zlimit.ExceededError)) {
		t.Errorf("a call beyond the budget = %v", err)
	}
	for _, opt := range []llm.Option{llm.WithPrices("usd", nil), llm.WithCharge("usd", nil)} {
		if _, err := llm.NewTransport(limiter, llm.For("alice"), opt); !errors.As(err, &invalid) {
			t.Errorf("NewTransport() without prices = %v", err)
		}
	}
}

// TestCharge charges by a function, and keeps the estimate where that has no answer for the usage.
func TestCharge(t *testing.T) {
	limiter, _ := zlimittest.New(t, zlimit.PerDay("units", 1000))
	units := llm.WithCharge("units", func(asked string, u llm.Usage) (int64, error) {
		if u.Output == 13 {
			return 0, errors.New("unlucky")
		}
		return u.Output * map[string]int64{"small": 1, "large": 5}[asked], nil
	})
	for _, test := range []struct {
		model        string
		output, want int64
		fails        bool
	}{{"small", 7, 7, false}, {"large", 7, 35, false}, {"large", 13, 50, true}} {
		request := fmt.Sprintf(`{"model":%q,"max_tokens":10}`, test.model)
		answer := fmt.Sprintf(`{"model":"x","usage":{"prompt_tokens":1,"completion_tokens":%d}}`, test.output)
		report, err := call(t, limiter, chatPath, request, answer, units)
		if err != nil || report.Charged["units"] != test.want || (report.Err != nil) != test.fails {
			t.Errorf("%s with %d tokens: %v, charged %d with error %v, want %d", test.model, test.output, err, report.Charged["units"], report.Err, test.want)
		}
	}
	if got := left(t, limiter, "large")["units"]; got != 1000-35-50 {
		t.Errorf("%d left, want %d", got, 1000-35-50)
	}
}

// In TestOwnEstimates, callers estimate their calls. What is no estimate is refused.
func TestOwnEstimates(t *testing.T) {
	limiter, _ := zlimittest.New(t, zlimit.PerDay("tpm", 1000))
	var taken int64
	base := respond(200, http.Header{"Content-Type": {"application/json"}}, io.NopCloser(strings.NewReader(`{}`)))
	for _, test := range []struct {
		input, output, want int64
	}{{3, 4, 7}, {0, 0, 0}, {-1, 0, -1}, {0, -1, -1}} {
		transport, _ := newTransport(t, limiter, base, llm.WithLimit("tpm", llm.PerToken), llm.WithEstimate(func(r *http.Request, c llm.Call) llm.Call {
			if c.Model != "m" || r.URL.Path != chatPath {
				t.Errorf("asked for an estimate of %+v", c)
			}
			return llm.Call{Model: "other", Input: test.input, Output: test.output}
		}))
		before := left(t, limiter, "m")["tpm"]
		response, err := transport.RoundTrip(newRequest(t, chatPath, `{"model":"m","max_tokens":500}`))
		taken = before - left(t, limiter, "m")["tpm"]
		if err == nil {
			_ = response.Body.Close()
		}
		if test.want < 0 && err == nil || test.want >= 0 && (err != nil || taken != test.want) {
			t.Errorf("an estimate of %d and %d: %v, took %d", test.input, test.output, err, taken)
		}
	}
}

// TestLearnedOutput sends calls with a generous bound. After some answers a call takes what most of them needed.
func TestLearnedOutput(t *testing.T) {
	const whole = 1_000_000
	limiter, _ := zlimittest.New(t, zlimit.PerDay("otpm", whole))
	var used, length, took int64
	base := faulttest.RoundTripper(func(r *http.Request) (*http.Response, error) {
		_, _ = io.Copy(io.Discard, r.Body)
		took = whole - used - left(t, limiter, "m")["otpm"]
		answer := fmt.Sprintf(`{"model":"m","usage":{"prompt_tokens":0,"completion_tokens":%d}}`, length)
		return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(answer)), Request: r}, nil
	})
	transport, _ := newTransport(t, limiter, base, llm.WithLimit("otpm", llm.PerOutput), llm.WithLearnedOutput(0.9))
	ask := func(tokens, most int64) (estimate int64) {
		length = tokens
		response, err := transport.RoundTrip(newRequest(t, chatPath, fmt.Sprintf(`{"model":"m","max_tokens":%d}`, most)))
		check.Fatal(t, "RoundTrip()", err)
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		if used += tokens; whole-left(t, limiter, "m")["otpm"] != used {
			t.Fatalf("%d charged in all, want the %d that were used", whole-left(t, limiter, "m")["otpm"], used)
		}
		return took
	}
	for i := range int64(16) {
		if got := ask(100+i, 5000); got != 5000 {
			t.Fatalf("the estimate of call %d is %d, want the bound", i, got)
		}
	}
	if got := ask(90, 5000); got != 114 { // of 100 to 115, nine in ten are at most that
		t.Errorf("the estimate is %d, want 114", got)
	}
	if got := ask(20, 50); got != 50 {
		t.Errorf("the estimate is %d, above the bound of 50", got)
	}
	for range 200 {
		ask(7, 5000)
	}
	if got := ask(7, 5000); got != 7 {
		t.Errorf("the estimate is %d, want 7 after 200 answers of 7", got)
	}
	for _, part := range []float64{0, 1, -1, math.NaN()} {
		if _, err := llm.NewTransport(limiter, llm.For("alice"), llm.WithLearnedOutput(part)); err == nil {
			t.Errorf("WithLearnedOutput(%v) is taken", part)
		}
	}
}

// TestAcceptEncoding sends what a client accepts: the provider is asked for an encoding that both understand.
func TestAcceptEncoding(t *testing.T) {
	limiter, _ := zlimittest.New(t, zlimit.PerDay("rpm", 100))
	var asked []string
	base := faulttest.RoundTripper(func(r *http.Request) (*http.Response, error) {
		asked = r.Header.Values("Accept-Encoding")
		return nil, errors.New("no answer")
	})
	transport, _ := newTransport(t, limiter, base, llm.WithLimit("rpm", llm.PerRequest))
	for accepted, want := range map[string]string{
		"": "", "gzip": "gzip", "br": "identity", "deflate, br": "identity", "gzip;q=0": "identity", "br, gzip;q=0.5": "gzip", "identity": "identity",
		"*": "gzip", "identity;q=1, *;q=0": "identity", "GZIP ; Q=1": "gzip", "*, gzip;q=0": "identity", "x-gzip": "gzip", "gzip;q=nonsense": "identity",
	} {
		r := newRequest(t, chatPath, `{"model":"m"}`)
		if accepted != "" {
			r.Header.Set("Accept-Encoding", accepted)
		}
		_, _ = transport.RoundTrip(r)
		if got := strings.Join(asked, "|"); got != want {
			t.Errorf("Accept-Encoding: %s is sent as %q, want %q", accepted, got, want)
		}
	}
}

// TestFields reports what is left of the limits of tokens, with answers and with refusals.
func TestFields(t *testing.T) {
	limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 2), zlimit.PerMinute("tpm", 60_000))
	answer := func(r *http.Request) (*http.Response, error) {
		header := http.Header{"Ratelimit": {`"theirs";r=5`}, "Content-Type": {"application/json"}}
		return respond(200, header, io.NopCloser(strings.NewReader(`{"usage":{"prompt_tokens":1,"completion_tokens":1}}`)))(r)
	}
	transport, _ := newTransport(t, limiter, faulttest.RoundTripper(answer), llm.WithFields(), llm.WithResponses())
	for _, want := range []string{`"rpm";r=1;t=30, "tpm";r=59000;t=1`, `"rpm";r=0;t=30, "tpm";r=58998;t=2`, `"rpm";r=0;t=30, "tpm";r=59996`} {
		response := check.Call(transport.RoundTrip(newRequest(t, chatPath, `{"model":"m","max_tokens":1000}`))).Must(t, "RoundTrip()")
		if got := response.Header.Get("RateLimit"); got != want {
			t.Errorf("RateLimit = %s, want %s", got, want)
		}
		if got, want := response.Header.Get("RateLimit-Policy"), `"rpm";q=2;w=60, "tpm";q=60000;qu="tokens";w=60`; got != want {
			t.Errorf("RateLimit-Policy = %s, want %s", got, want)
		}
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
	}
}

// TestCheck refuses a call for a reason of the application's, and takes nothing for it.
func TestCheck(t *testing.T) {
	limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 5))
	forbidden := errors.New("not for this key")
	check := llm.WithCheck(func(r *http.Request, c llm.Call) error {
		if c.Model == "large" && r.Header.Get("X-Team") == "" {
			return forbidden
		}
		return nil
	})
	answer := `{"usage":{"prompt_tokens":1,"completion_tokens":1}}`
	if _, err := call(t, limiter, chatPath, `{"model":"large"}`, answer, check, llm.WithLimit("rpm", llm.PerRequest)); !errors.Is(err, forbidden) {
		t.Errorf("a call that is forbidden = %v", err)
	}
	if _, err := call(t, limiter, chatPath, `{"model":"small"}`, answer, check, llm.WithLimit("rpm", llm.PerRequest)); err != nil {
		t.Errorf("a call that is not = %v", err)
	}
	if got := left(t, limiter, "large")["rpm"]; got != 5 {
		t.Errorf("%d left, want all 5", got)
	}
}

// TestHugeBounds: an estimate beyond what an amount can hold is cut to the capacity, as every one above it, by tokens and by price. The
// answer settles it, and one without a usage leaves the cut estimate.
func TestHugeBounds(t *testing.T) {
	const answered = `{"model":"small","choices":[{"finish_reason":"stop"}],"usage":{"prompt_tokens":100,"completion_tokens":10}}`
	own := func(asked string, u llm.Usage) (int64, error) { // by an application
		cost, err := prices(t).Cost(asked, "", price.Usage{price.Input: u.Input, price.Output: u.Output})
		return int64(cost), err
	}
	for _, members := range []string{
		`"max_tokens":100000000000000`, `"max_tokens":1e15`, `"max_tokens":"1e15"`, `"max_tokens":9223372036854775807`, `"max_tokens":1e300`,
		`"max_tokens":1000,"n":1e12`, `"max_tokens":1000,"n":1000000000000000000`, `"max_tokens":1e12,"n":1e12`,
		`"max_completion_tokens":1e15,"service_tier":"flex"`, `"n":1e15`,
	} {
		for answer, want := range map[string]int64{answered: 140_000, `{}`: 25 * int64(price.Dollar)} {
			for _, opts := range [][]llm.Option{
				{llm.WithPrices("usd", prices(t))}, {llm.WithPrices("usd", prices(t)), llm.WithResponses()}, {llm.WithCharge("usd", own)},
			} {
				opts = append(opts, llm.WithLimit("tpm", llm.PerToken))
				limiter, _ := zlimittest.New(t, zlimit.PerDay("usd", 25*int64(price.Dollar)), zlimit.PerDay("tpm", 1_000_000))
				report, err := call(t, limiter, chatPath, `{"model":"small",`+members+`}`, answer, opts...)
				if err != nil || report.Status != http.StatusOK || report.Err != nil {
					t.Errorf("%s: %v, status %d, %v", members, err, report.Status, report.Err)
					continue
				}
				if got := report.Charged["usd"]; got != want {
					t.Errorf("%s, answer %s: charged %d, want %d", members, answer, got, want)
				}
				if most := left(t, limiter, report.Resource)["tpm"]; most < 0 {
					t.Errorf("%s, answer %s: a debt of %d tokens", members, answer, -most)
				}
			}
		}
	}
}

// TestBoundsWithinWindows: within a window a quota holds twice as much, but resets outside of it, to a capacity that it can never exceed. A bound
// above that takes the whole quota, as one above the capacity of any limit does.
func TestBoundsWithinWindows(t *testing.T) {
	const answered = `{"model":"small","choices":[{"finish_reason":"stop"}],"usage":{"prompt_tokens":100,"completion_tokens":10}}`
	nine := time.Date(2026, 3, 10, 9, 0, 0, 0, time.UTC)
	limiter, clock := zlimittest.New(t, zlimit.Daily("tpm", 1000, "UTC").When("* 9 * * *", "x2"))
	clock.Advance(nine.Sub(clock.Now()))
	report, err := call(t, limiter, chatPath, `{"model":"small","max_tokens":90000}`, answered, llm.WithLimit("tpm", llm.PerToken))
	if err != nil || report.Status != http.StatusOK || report.Charged["tpm"] != 110 {
		t.Errorf("the call is charged %d, status %d, %v; want 110", report.Charged["tpm"], report.Status, err)
	}
}
