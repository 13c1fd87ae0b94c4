package llm_test

import (
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
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

// A row is a line of a file of testdata/month, by the names of its columns.
type row map[string]string

func rows(t *testing.T, file string) (all []row) {
	t.Helper()
	f := check.Call(os.Open(filepath.Join("testdata", "month", file))).Must(t, "os.Open()")
	defer f.Close()
	lines := check.Call(csv.NewReader(f).ReadAll()).Must(t, "ReadAll()")
	for _, line := range lines[1:] {
		r := row{}
		for i, name := range lines[0] {
			r[name] = line[i]
		}
		all = append(all, r)
	}
	return all
}

// sum adds up columns of numbers.
func (r row) sum(names ...string) (sum int64) {
	for _, name := range names {
		n, err := strconv.ParseInt(r[name], 10, 64)
		if err != nil {
			panic(err) // which the program that made the files would have to be blamed for
		}
		sum += n
	}
	return sum
}

// exchange returns the request of a row, and the answer as its provider reports the usage.
func (r row) exchange(t *testing.T) (host, path, request, contentType, answer string) {
	stream := r["stream"] == "true"
	prompt := r.sum("input", "cache_read", "cache_write", "cache_write_hour", "audio_input", "audio_cache_read", "image_input",
		"image_cache_read", "cache_write_12_hours", "video_input")
	output := r.sum("output", "reasoning", "audio_output", "image_output", "video_output")
	request = fmt.Sprintf(`{"model":%q,"max_tokens":50,"stream":%t,"stream_options":{"include_usage":true},"messages":[]}`, r["model"], stream)
	contentType = "application/json"
	events := func(all ...string) string { // the events of a stream
		contentType = "text/event-stream"
		return "data: " + strings.Join(all, "\n\ndata: ") + "\n\n"
	}
	switch r["provider"] {
	case "openai-chat", "deepseek", "mistral":
		details := fmt.Sprintf(`"prompt_tokens_details":{"cached_tokens":%s,"audio_tokens":%s},"completion_tokens_details":{"reasoning_tokens":%s,"audio_tokens":%s}`, r["cache_read"], r["audio_input"], r["reasoning"], r["audio_output"])
		if r["provider"] == "deepseek" {
			details = fmt.Sprintf(`"prompt_cache_hit_tokens":%s,"prompt_cache_miss_tokens":%s,"completion_tokens_details":{"reasoning_tokens":%s}`, r["cache_read"], r["input"], r["reasoning"])
		}
		usage := fmt.Sprintf(`"service_tier":%q,"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d,%s}`, r["service"], prompt, output, prompt+output, details)
		answer = fmt.Sprintf(`{"model":%q,"choices":[{"message":{"content":"Hi"},"finish_reason":"stop"}],%s}`, r["model"], usage)
		if stream {
			answer = events(fmt.Sprintf(`{"model":%q,"choices":[{"delta":{"content":"Hi"},"finish_reason":null}],"usage":null}`, r["model"]),
				`{"choices":[{"delta":{},"finish_reason":"stop"}]}`, fmt.Sprintf(`{"model":%q,"choices":[],%s}`, r["model"], usage), "[DONE]")
		}
		path = "/v1/chat/completions"
	case "openai-responses":
		path = "/v1/responses"
		response := fmt.Sprintf(`{"object":"response","model":%q,"status":"completed","service_tier":%q,"output":[{"type":"message","content":[{"type":"output_text","text":"Hi"}]}],"tool_usage":{"web_search":{"num_requests":%s}},`+
			`"usage":{"input_tokens":%d,"input_tokens_details":{"cached_tokens":%s,"cache_write_tokens":%d,"cache_write_tokens_details":{"ttl_12h_tokens":%s,"ttl_30m_tokens":%s}},`+
			`"output_tokens":%d,"output_tokens_details":{"reasoning_tokens":%s},"total_tokens":%d}}`,
			r["model"], r["service"], r["searches"], prompt, r["cache_read"], r.sum("cache_write", "cache_write_12_hours"), r["cache_write_12_hours"], r["cache_write"], output, r["reasoning"], prompt+output)
		if answer = response; stream {
			answer = events(`{"type":"response.output_text.delta","delta":"Hi"}`, `{"type":"response.completed","response":`+response+`}`)
		}
	case "anthropic":
		path = "/v1/messages"
		start := fmt.Sprintf(`"input_tokens":%s,"cache_read_input_tokens":%s,"cache_creation_input_tokens":%d,"cache_creation":{"ephemeral_5m_input_tokens":%s,"ephemeral_1h_input_tokens":%s},"service_tier":"standard","inference_geo":%q,"speed":%q`,
			r["input"], r["cache_read"], r.sum("cache_write", "cache_write_hour"), r["cache_write"], r["cache_write_hour"], r["region"], r["speed"])
		end := fmt.Sprintf(`"output_tokens":%d,"output_tokens_details":{"thinking_tokens":%s},"server_tool_use":{"web_search_requests":%s}`, output, r["reasoning"], r["searches"])
		answer = fmt.Sprintf(`{"type":"message","model":%q,"content":[{"type":"text","text":"Hi"}],"stop_reason":"end_turn","usage":{%s,%s}}`, r["model"], start, end)
		if stream {
			answer = events(fmt.Sprintf(`{"type":"message_start","message":{"model":%q,"usage":{%s,"output_tokens":1}}}`, r["model"], start),
				`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hi"}}`,
				fmt.Sprintf(`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"input_tokens":0,%s}}`, end), `{"type":"message_stop"}`)
		}
	case "gemini":
		path, request = "/v1beta/models/"+r["model"]+":generateContent", `{"generationConfig":{"maxOutputTokens":50}}`
		answer = fmt.Sprintf(`{"modelVersion":%q,"candidates":[{"content":{"parts":[{"text":"Hi"}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":%d,"cachedContentTokenCount":%d,"candidatesTokenCount":%d,"thoughtsTokenCount":%s,"totalTokenCount":%d,`+
			`"promptTokensDetails":[{"modality":"AUDIO","tokenCount":%d},{"modality":"IMAGE","tokenCount":%d},{"modality":"VIDEO","tokenCount":%s},{"modality":"TEXT","tokenCount":%d}],`+
			`"cacheTokensDetails":[{"modality":"AUDIO","tokenCount":%s},{"modality":"IMAGE","tokenCount":%s}],"candidatesTokensDetails":[{"modality":"IMAGE","tokenCount":%s},{"modality":"VIDEO","tokenCount":%s}]}}`,
			r["model"], prompt, r.sum("cache_read", "audio_cache_read", "image_cache_read"), r.sum("output", "image_output", "video_output"), r["reasoning"], prompt+output,
			r.sum("audio_input", "audio_cache_read"), r.sum("image_input", "image_cache_read"), r["video_input"], r.sum("input", "cache_read"),
			r["audio_cache_read"], r["image_cache_read"], r["image_output"], r["video_output"])
		if stream {
			path, answer = "/v1beta/models/"+r["model"]+":streamGenerateContent", events(`{"candidates":[{"content":{"parts":[{"text":"Hi"}]}}]}`, answer)
		}
	case "bedrock":
		path, request = "/model/"+r["model"]+"/converse", `{"inferenceConfig":{"maxTokens":50}}`
		usage := fmt.Sprintf(`"usage":{"inputTokens":%s,"cacheReadInputTokens":%s,"cacheWriteInputTokens":%s,"outputTokens":%d,"totalTokens":%d}`, r["input"], r["cache_read"], r["cache_write"], output, prompt+output)
		answer = `{"output":{"message":{"content":[{"text":"Hi"}]}},"stopReason":"end_turn",` + usage + `}`
		if stream {
			path, contentType = path+"-stream", "application/vnd.amazon.eventstream"
			answer = string(amazon(t, "contentBlockDelta {\"delta\":{\"text\":\"Hi\"}}\nmessageStop {\"stopReason\":\"end_turn\"}\nmetadata {"+usage+"}\n"))
		}
	default:
		t.Fatalf("no provider %s", r["provider"])
	}
	host = "https://api.example.com"
	if region := r["region"]; region != "" && strings.HasPrefix(r["provider"], "openai") {
		host = "https://" + region + ".api.openai.com"
	}
	return host, path, request, contentType, answer
}

// TestMonth sends a month of made-up calls of six providers, with the prices of a list in the form of LiteLLM's. Each call, and the
// budget of each team at the end, is charged what the program bill.py has reckoned, which shares nothing with this package: to the
// billionth of a dollar.
func TestMonth(t *testing.T) {
	text := check.Call(os.ReadFile(filepath.Join("testdata", "month", "prices.json"))).Must(t, "os.ReadFile()")
	list, err := price.ReadLiteLLM(strings.NewReader(string(text)))
	if err != nil || len(list.Skipped) > 0 {
		t.Fatalf("the list: %v, skipped are %v", err, list.Skipped)
	}
	table := check.Call(price.NewTable(list.Models)).Must(t, "price.NewTable()")
	limiter, clock := zlimittest.New(t)
	const budget = 1000 * int64(price.Dollar)
	var current row
	base := faulttest.RoundTripper(func(r *http.Request) (*http.Response, error) {
		_, _, _, contentType, answer := current.exchange(t)
		return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {contentType}}, Body: io.NopCloser(strings.NewReader(answer)), Request: r}, nil
	})
	var got llm.Report
	transport, err := llm.NewTransport(limiter, llm.FromContext, llm.WithBase(base), llm.WithPrices("usd", table), llm.WithClock(clock.Now),
		llm.WithModels(llm.Rule{Pattern: "*", Resource: "models"}), llm.WithObserver(func(_ context.Context, r llm.Report) { got = r }))
	check.Fatal(t, "llm.NewTransport()", err)
	teams := map[string]bool{}
	for n, r := range rows(t, "calls.csv") {
		at := check.Call(time.Parse(time.RFC3339, r["time"])).Must(t, "time.Parse()")
		clock.Advance(at.Sub(clock.Now()))
		if !teams[r["team"]] {
			teams[r["team"]] = true
			level := zlimit.Level{Entity: r["team"], Resource: "models"}
			check.Fatal(t, "Limits.Set()", limiter.Limits.Set(t.Context(), level, zlimit.Config{Limits: []zlimit.Limit{zlimit.USD("usd", 1000, zlimit.PerMonth)}}))
		}
		current = r
		host, path, request, _, _ := r.exchange(t)
		q, err := http.NewRequestWithContext(llm.ContextWithEntity(t.Context(), r["team"]), http.MethodPost, host+path, strings.NewReader(request))
		check.Fatal(t, "http.NewRequestWithContext()", err)
		q.Header.Set("Content-Type", "application/json")
		response, err := transport.RoundTrip(q)
		if err != nil {
			t.Fatalf("call %d: %v", n, err)
		}
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		if got.Charged["usd"] != r.sum("nano_dollars") || !got.Usage.Complete || got.Err != nil {
			t.Fatalf("call %d, %v, is charged %d, want %s: %+v", n, r, got.Charged["usd"], r["nano_dollars"], got)
		}
	}
	for _, r := range rows(t, "bill.csv") {
		if r["model"] != "all" || r["team"] == "all" {
			continue
		}
		want, ok := new(big.Rat).SetString(r["dollars"])
		if !ok {
			t.Fatal(r)
		}
		statuses, err := limiter.Available(t.Context(), zlimit.AvailableQuery{Entity: r["team"], Resource: "models"})
		check.Fatal(t, "Available()", err)
		s, _ := statuses.Limit("usd")
		if got := big.NewRat(budget-s.Available, int64(price.Dollar)); got.Cmp(want) != 0 {
			t.Errorf("team %s has spent %s dollars, want %s", r["team"], got.FloatString(9), r["dollars"])
		}
	}
}
