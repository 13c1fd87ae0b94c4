package llm_test

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/faulttest"
	"github.com/zlimit/zlimit-go/llm"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/zlimittest"
)

// TestUnknown sends requests that no format is for, in each of the ways to deal with them.
func TestUnknown(t *testing.T) {
	upgrade := newRequest(t, "/v1/realtime", "")
	upgrade.Method = http.MethodGet
	upgrade.Header.Set("Upgrade", "websocket")
	put := newRequest(t, chatPath, `{"model":"m"}`)
	put.Method = http.MethodPut
	for _, test := range []struct {
		name    string
		unknown []llm.Option
		request *http.Request
		sent    bool
		reports int
		want    zlimit.Amounts
	}{
		{"refused", nil, newRequest(t, "/v1/organization/admin_api_keys", `{"model":"m"}`), false, 1, zlimit.Amounts{}},
		{"refused, a method", nil, put, false, 1, zlimit.Amounts{}},
		{"refused, an upgrade", nil, upgrade, false, 1, zlimit.Amounts{}},
		{"refused, without a body", nil, newRequest(t, "/v1/organization/admin_api_keys", ""), false, 1, zlimit.Amounts{}},
		{"observed", []llm.Option{llm.WithUnknown(llm.UnknownObserve)}, newRequest(t, "/v2/chat", `{"model":"m"}`), true, 1, zlimit.Amounts{}},
		{"estimated", []llm.Option{llm.WithUnknown(llm.UnknownEstimate)}, newRequest(t, "/v2/chat", `{"model":"m","text":"12345678","max_tokens":5}`), true, 1, zlimit.Amounts{"rpm": 1, "tpm": 7}},
		{"estimated, without a model", []llm.Option{llm.WithUnknown(llm.UnknownEstimate)}, newRequest(t, "/v2/chat", `hi, there`), true, 1, zlimit.Amounts{"rpm": 1, "tpm": 3 + 1024}},
		{"estimated, an upgrade", []llm.Option{llm.WithUnknown(llm.UnknownEstimate)}, upgrade, false, 1, zlimit.Amounts{}},
		{"passed", []llm.Option{llm.WithUnknown(llm.UnknownPass)}, newRequest(t, "/v2/chat", `{"model":"m"}`), true, 0, nil},
	} {
		for _, respond := range []bool{false, true} {
			limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 10), zlimit.PerMinute("tpm", 10_000))
			sent := false
			opts := test.unknown
			if respond {
				opts = append(opts[:len(opts):len(opts)], llm.WithResponses())
			}
			transport, reports := newTransport(t, limiter, faulttest.RoundTripper(func(*http.Request) (*http.Response, error) {
				sent = true
				return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader(`{}`))}, nil
			}), opts...)
			request := test.request.Clone(t.Context())
			if test.request.GetBody != nil {
				request.Body, _ = test.request.GetBody()
			}
			response, err := transport.RoundTrip(request)
			var invalid *zlimit.ValidationError
			switch {
			case test.sent || respond:
				if err != nil {
					t.Fatalf("%s: RoundTrip() = %v", test.name, err)
				}
			case !errors.As(err, &invalid) || invalid.Field != "request" || invalid.Value != request.Method+" "+request.URL.Path:
				t.Errorf("%s: RoundTrip() = %v, want a refusal", test.name, err)
			}
			if response != nil {
				body, _ := io.ReadAll(response.Body)
				_ = response.Body.Close()
				var answer struct {
					Error struct{ Type, Code, Message string }
				}
				if json.Unmarshal(body, &answer) != nil || !test.sent && (response.StatusCode != 403 || answer.Error.Type != "permission_error" ||
					answer.Error.Code != "unknown_call" || answer.Error.Message == "") {
					t.Errorf("%s: the response is %d %s", test.name, response.StatusCode, body)
				}
			}
			if sent != test.sent || transport.Unknown() != 1 || len(reports.all) != test.reports {
				t.Errorf("%s: sent %v, %d unknown, %d reports, want %v, 1, %d", test.name, sent, transport.Unknown(), len(reports.all), test.sent, test.reports)
			}
			if test.reports == 1 {
				got := reports.one(t)
				if got.Unknown != request.Method+" "+request.URL.Path || got.Call.API != llm.APIUnknown || !maps.Equal(got.Charged, test.want) || (got.Err != nil) == test.sent {
					t.Errorf("%s: Report = %+v, want %v charged", test.name, got, test.want)
				}
			}
		}
	}
}

// TestFormats calls the APIs that are known, and one that is added.
func TestFormats(t *testing.T) {
	const answer = "application/json"
	chunk := func(payloads ...string) string {
		var b strings.Builder
		for _, p := range payloads {
			payload, _ := json.Marshal(map[string]any{"bytes": []byte(p), "p": "abc"})
			m := eventstream.Message{Payload: payload}
			m.Headers.Set(":event-type", eventstream.StringValue("chunk"))
			check.Fatal(t, "Encode()", eventstream.NewEncoder().Encode(&b, m))
		}
		return b.String()
	}
	cohere := llm.Format{
		API: "cohere chat", Paths: []string{"/v2/chat"}, Text: []string{"message.content.text", "delta.message.*"}, Finish: []string{"finish_reason"},
		Usage: map[string]llm.Count{"usage.tokens.input_tokens": llm.CountInput, "usage.tokens.output_tokens": llm.CountOutput},
	}
	for _, test := range []struct {
		name, path, request, contentType, answer string
		api                                      llm.API
		want                                     llm.Usage
	}{
		{
			"interactions", "/v1beta/interactions", `{"model":"m","input":"hi"}`, answer, `{"model":"m","status":"completed","steps":[{"type":"model_output","content":[{"type":"text","text":"hello"}]}],"usage":{"total_tokens":359,"total_input_tokens":21,"total_cached_tokens":10,"total_output_tokens":90,"total_tool_use_tokens":3,"total_thought_tokens":245}}`,
			llm.APIGeminiInteractions,
			llm.Usage{Model: "m", Input: 14, CacheRead: 10, Output: 335, Reasoning: 245, Complete: true},
		},
		{
			"interactions, streamed", "/v1beta/interactions", `{"model":"m","stream":true}`, "text/event-stream", "event: step.delta\n" + `data: {"index":1,"delta":{"text":"1, 2, 3","type":"text"},"event_type":"step.delta"}` + "\n\n" +
				`data: {"interaction":{"status":"completed","usage":{"total_input_tokens":11,"total_output_tokens":90,"total_thought_tokens":245},"model":"m"},"event_type":"interaction.completed"}` + "\n\nevent: done\ndata: [DONE]\n\n",
			llm.APIGeminiInteractions,
			llm.Usage{Model: "m", Input: 11, Output: 335, Reasoning: 245, Complete: true},
		},
		{
			"Claude on Bedrock", "/model/anthropic.claude/invoke", `{"max_tokens":5,"messages":[]}`, answer, `{"model":"claude","content":[{"text":"hi"}],"stop_reason":"end_turn","usage":{"input_tokens":12,"cache_read_input_tokens":5,"output_tokens":6}}`,
			llm.APIBedrockInvoke,
			llm.Usage{Model: "claude", Input: 12, CacheRead: 5, Output: 6, Complete: true},
		},
		{
			"Mistral on Bedrock, with headers", "/model/mistral.large/invoke", `{"prompt":"hi"}`, answer, `{"outputs":[{"text":"hello"}]}`,
			llm.APIBedrockInvoke,
			llm.Usage{Model: "mistral.large", Input: 7, Output: 8},
		},
		{
			"Claude on Bedrock, streamed", "/model/anthropic.claude/invoke-with-response-stream", `{"max_tokens":5}`, "application/vnd.amazon.eventstream",
			chunk(`{"type":"message_start","message":{"model":"claude","usage":{"input_tokens":9,"output_tokens":1}}}`, `{"type":"content_block_delta","delta":{"text":"hello there"}}`,
				`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":30}}`, `{"type":"message_stop","amazon-bedrock-invocationMetrics":{"inputTokenCount":9,"outputTokenCount":31}}`),
			llm.APIBedrockInvoke,
			llm.Usage{Model: "claude", Input: 9, Output: 31, Complete: true},
		},
		{
			"Claude on Vertex AI", "/v1/projects/p/locations/l/publishers/anthropic/models/claude:streamRawPredict", `{"max_tokens":5}`, "text/event-stream", string(read(t, "anthropic.sse")),
			llm.APIVertexRaw,
			llm.Usage{Model: "claude-sonnet-4-5-20250929", Input: 480, CacheRead: 1000, CacheWrite: 200, Output: 120, Searches: 1, Service: "standard", Region: "l", Complete: true},
		},
		{"a tuned endpoint", "/v1/projects/p/locations/l/endpoints/1234:generateContent", `{}`, answer, `{"usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":4}}`, llm.APIGeminiContent, llm.Usage{Model: "1234", Input: 3, Output: 4, Region: "l", Complete: true}},
		{"a tuned model", "/v1beta/tunedModels/x:generateContent", `{}`, answer, `{"usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":4}}`, llm.APIGeminiContent, llm.Usage{Model: "x", Input: 3, Output: 4, Complete: true}},
		{"completions", "/v1/completions", `{"model":"m","prompt":"hi"}`, answer, `{"model":"m","usage":{"prompt_tokens":5,"completion_tokens":6}}`, llm.APIOpenAICompletions, llm.Usage{Model: "m", Input: 5, Output: 6, Complete: true}},
		{"embeddings", "/v1/embeddings", `{"model":"m","input":"hi"}`, answer, `{"model":"m","data":[{"embedding":[0.5]}],"usage":{"prompt_tokens":5,"total_tokens":5}}`, llm.APIOpenAIEmbeddings, llm.Usage{Model: "m", Input: 5, Complete: true}},
		{"embeddings of Gemini", "/v1beta/models/m:batchEmbedContents", `{"requests":[{"text":"12345678"}]}`, answer, `{"embeddings":[]}`, llm.APIGeminiEmbeddings, llm.Usage{Model: "m", Input: 2}},
		{"images", "/v1/images/generations", `{"model":"m","prompt":"hi"}`, answer, `{"data":[],"usage":{"input_tokens":5,"output_tokens":4000}}`, llm.APIOpenAIImages, llm.Usage{Model: "m", Input: 5, Output: 4000, ImageOutput: 4000, Complete: true}},
		{"speech", "/v1/audio/speech", `{"model":"m","input":"12345678"}`, "audio/mpeg", "\xff\xf3", llm.APIOpenAIAudio, llm.Usage{Model: "m", Input: 2, Output: 1, AudioOutput: 1}},
		{"batches", "/v1/messages/batches", `{"requests":[{"params":{"model":"x","text":"1234567"}}]}`, answer, `{}`, llm.APIBatches, llm.Usage{Model: "batches", Input: 2}},
		{"images of Vertex AI", "/v1/publishers/google/models/imagen:predict", `{"instances":[{"prompt":"12345678"}]}`, answer, `{"predictions":[]}`, llm.APIVertexPredict, llm.Usage{Model: "imagen", Input: 2}},
		{"Ollama, streamed", "/api/chat", `{"model":"m","options":{"num_predict":5}}`, "application/x-ndjson", `{"model":"m","message":{"content":"hello"},"done":false}` + "\n" + `{"model":"m","message":{"content":""},"done":true,"done_reason":"stop","prompt_eval_count":26,"eval_count":9}` + "\n", llm.APIOllamaChat, llm.Usage{Model: "m", Input: 26, Output: 9, Complete: true}},
		{"embeddings of Ollama", "/api/embed", `{"model":"m","input":"hi"}`, answer, `{"model":"m","embeddings":[[0.5]],"prompt_eval_count":8}`, llm.APIOllamaEmbeddings, llm.Usage{Model: "m", Input: 8, Complete: true}},
		{"one that is added", "/v2/chat", `{"model":"m"}`, answer, `{"finish_reason":"x","usage":{"tokens":{"input_tokens":3,"output_tokens":4}}}`, "cohere chat", llm.Usage{Model: "m", Input: 3, Output: 4, Complete: true}},
		{"one that is added, without usage", "/v2/chat", `{"model":"m"}`, answer, `{"delta":{"message":{"content":[{"text":"12345678"}]}}}`, "cohere chat", llm.Usage{Model: "m", Output: 2}},
	} {
		limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 10), zlimit.PerMinute("tpm", 100_000))
		header := http.Header{"Content-Type": {test.contentType}}
		if strings.Contains(test.name, "with headers") {
			header.Set("X-Amzn-Bedrock-Input-Token-Count", "7")
			header.Set("X-Amzn-Bedrock-Output-Token-Count", "8")
			test.want.Complete = true
		}
		transport, reports := newTransport(t, limiter, respond(200, header, io.NopCloser(strings.NewReader(test.answer))),
			llm.WithModels(llm.Rule{Pattern: "*", Resource: "m"}), llm.WithFormats(cohere))
		response, err := transport.RoundTrip(newRequest(t, test.path, test.request))
		if err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		got := reports.one(t)
		if got.Usage != test.want || got.Call.API != test.api || got.Unknown != "" || got.Charged["rpm"] != 1 || got.Charged["tpm"] != test.want.Total() {
			t.Errorf("%s: Report = %+v, want %+v", test.name, got, test.want)
		}
	}
}

func TestBadFormats(t *testing.T) {
	limiter, _ := zlimittest.New(t)
	for _, test := range []struct {
		format llm.Format
		want   string
	}{
		{llm.Format{Paths: []string{"/x"}}, `zlimit: invalid format 1: API "": must not be empty`},
		{llm.Format{API: "x"}, `zlimit: invalid format 1: Paths "": must not be empty`},
		{llm.Format{API: "x", Paths: []string{"chat"}}, `zlimit: invalid format 1: path "chat": must begin with a slash and not end with one`},
		{llm.Format{API: "x", Streams: []string{"/chat/"}}, `zlimit: invalid format 1: path "/chat/": must begin with a slash and not end with one`},
		{llm.Format{API: "x", Paths: []string{"/*/{model}"}}, `zlimit: invalid format 1: path "/*/{model}": must have one {model} or * at most`},
		{llm.Format{API: "x", Paths: []string{"/x"}, Usage: map[string]llm.Count{"a": 99}}, `zlimit: invalid format 1: usage[a] "99": must be a Count of this package`},
	} {
		if _, err := llm.NewTransport(limiter, llm.For("alice"), llm.WithFormats(test.format)); err == nil || err.Error() != test.want {
			t.Errorf("NewTransport() = %v, want %s", err, test.want)
		}
	}
	const want = `zlimit: invalid unknown "4": must be Refuse, Observe, Estimate or Pass`
	if _, err := llm.NewTransport(limiter, llm.For("alice"), llm.WithUnknown(4)); err == nil || err.Error() != want {
		t.Errorf("NewTransport() = %v, want %s", err, want)
	}
	for i, f := range llm.Formats() {
		if _, err := llm.NewTransport(limiter, llm.For("alice"), llm.WithFormats(f)); err != nil {
			t.Errorf("format %d is invalid: %v", i+1, err)
		}
	}
}

// TestTextWithoutUsage reads streams without usage, whose text is in each of the fields that servers have.
func TestTextWithoutUsage(t *testing.T) {
	text := strings.Repeat("four", 10_000)
	for _, test := range []struct {
		api    llm.API
		answer string
		want   llm.Usage
	}{
		{llm.APIOpenAIChat, `{"choices":[{"delta":{"content":"TEXT"}}]}`, llm.Usage{Input: 3, Output: 10_000}},
		{llm.APIOpenAIChat, `{"choices":[{"delta":{"reasoning":"TEXT"}}]}`, llm.Usage{Input: 3, Output: 10_000}},
		{llm.APIOpenAIChat, `{"choices":[{"delta":{"function_call":{"arguments":"TEXT"}}}]}`, llm.Usage{Input: 3, Output: 10_000}},
		{llm.APIOpenAIChat, `{"choices":[{"delta":{"tool_calls":[{"custom":{"input":"TEXT"}}]}}]}`, llm.Usage{Input: 3, Output: 10_000}},
		{llm.APIGeminiContent, `{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","args":{"x":{"y":["TEXT",5]}}}}]}}]}`, llm.Usage{Input: 3, Output: 10_000}},
		{llm.APIOpenAIChat, `{"choices":[{"delta":{}}],"x_groq":{"usage":{"prompt_tokens":20000,"completion_tokens":30000}}}`, llm.Usage{Input: 20_000, Output: 30_000, Complete: true}},
		{llm.APIOpenAIChat, `{"error":{"code":402,"message":"no credits"}}`, llm.Usage{}},
		{llm.APIOpenAIChat, `{"error":"overloaded"}`, llm.Usage{}},
		{llm.APIOpenAIChat, `{"error":null,"choices":[{"message":{"content":"TEXT"}}]}`, llm.Usage{Input: 3, Output: 10_000}},
		{llm.APIOpenAIChat, `{"choices":[{"delta":{"content":"TEXT"}}],"error":{"code":502}}`, llm.Usage{Input: 3, Output: 10_000}},
	} {
		body := "data: " + strings.ReplaceAll(test.answer, "TEXT", text) + "\n\n"
		a := answer{test.answer, "text/event-stream", llm.Call{API: test.api, Input: 3, Output: 20_000}, nil, llm.Usage{}}
		if got := metered(t, a, "", &pieces{rest: []byte(body), lengths: func(left int) int { return left }}); got != test.want {
			t.Errorf("%s: Usage() = %+v, want %+v", test.answer, got, test.want)
		}
	}
}
