package llm_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/llm"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/zlimittest"
)

// TestCutOff reads streams of ten thousand tokens that are limited to a thousand, in pieces of several sizes. Each ends behind a whole
// event, with an error in the form of its provider, and is charged what came.
func TestCutOff(t *testing.T) {
	const events, text = 1000, "forty letters are ten tokens of the text"
	sse, lines, amazonStream := "text/event-stream", "application/x-ndjson", "application/vnd.amazon.eventstream"
	stream := func(event string) string { return strings.Repeat(strings.ReplaceAll(event, "TEXT", text), events) }
	for _, test := range []struct {
		name, path, kind, stream string
		end                      string // that the answer has
		event                    func(t *testing.T, answer []byte) int
	}{
		{"chat", chatPath, sse, stream(`data: {"choices":[{"delta":{"content":"TEXT"}}]}` + "\n\n"), `"code":"rate_limit_exceeded"`, eventsOf},
		{"chat, as plain text", chatPath, "text/plain", stream(`data: {"choices":[{"delta":{"content":"TEXT"}}]}` + "\n\n"), `"code":"rate_limit_exceeded"`, eventsOf},
		{"chat, other ends of lines", chatPath, sse, stream(`data: {"choices":[{"delta":{"content":"TEXT"}}]}` + "\r\n\r\n"), `"code":"rate_limit_exceeded"`, eventsOf},
		{"responses", "/v1/responses", sse, stream(`event: response.output_text.delta` + "\n" + `data: {"type":"response.output_text.delta","delta":"TEXT"}` + "\n\n"), "event: error\n" + `data: {"code":"rate_limit_exceeded"`, eventsOf},
		{"messages", "/v1/messages", sse, stream(`event: content_block_delta` + "\n" + `data: {"delta":{"text":"TEXT"}}` + "\n\n"), "event: error\n" + `data: {"error":{"message":`, eventsOf},
		{"Gemini", "/v1beta/models/m:streamGenerateContent", sse, stream(`data: {"candidates":[{"content":{"parts":[{"text":"TEXT"}]}}]}` + "\n\n"), `"status":"RESOURCE_EXHAUSTED"`, eventsOf},
		{"Gemini, as an array", "/v1beta/models/m:streamGenerateContent", "application/json", "[" + strings.TrimSuffix(stream(`{"candidates":[{"content":{"parts":[{"text":"TEXT"}]}}]},`), ",") + "]", `"status":"RESOURCE_EXHAUSTED"`, func(t *testing.T, answer []byte) int {
			var all []json.RawMessage
			if err := json.Unmarshal(answer, &all); err != nil {
				t.Errorf("the answer ends with %q, %v", answer[max(0, len(answer)-300):], err)
			}
			return len(all)
		}},
		{"Ollama", "/api/chat", lines, stream(`{"message":{"content":"TEXT"},"done":false}` + "\n"), `{"error":"the rate limit`, func(t *testing.T, answer []byte) (n int) {
			for line := range bytes.Lines(answer) {
				if n++; !json.Valid(line) {
					t.Errorf("a line is %q", line)
				}
			}
			return n
		}},
		{"Converse", "/model/m/converse-stream", amazonStream, string(amazonEvents(t, stream(`contentBlockDelta {"delta":{"text":"TEXT"}}`+"\n"))), "throttlingException", func(t *testing.T, answer []byte) (n int) {
			reader, decoder := bytes.NewReader(answer), eventstream.NewDecoder()
			for {
				if _, err := decoder.Decode(reader, nil); err != nil {
					if !errors.Is(err, io.EOF) {
						t.Errorf("message %d: %v", n, err)
					}
					return n
				}
				n++
			}
		}},
	} {
		for _, size := range []int{1, 7, 100, 1000} {
			if test.kind == "application/json" && size > 1 {
				size = 1 // a provider flushes each element
			}
			limiter, _ := zlimittest.New(t, zlimit.PerDay("rpm", 10), zlimit.PerDay("tpm", 1000))
			body := &pieces{rest: []byte(test.stream), lengths: func(int) int { return size }}
			transport, reports := newTransport(t, limiter, respond(200, http.Header{"Content-Type": {test.kind}}, body), llm.WithDefaultOutput(10), llm.WithCutOff(100))
			response := check.Call(transport.RoundTrip(newRequest(t, test.path, `{"model":"m","stream":true}`))).Must(t, "RoundTrip()")
			answer, err := io.ReadAll(response.Body)
			_ = response.Body.Close()
			got := reports.one(t)
			if n := test.event(t, answer); err != nil || n < 95 || n > 130 {
				t.Errorf("%s, %d bytes at once: %d events, %v, want about 100", test.name, size, n, err)
			}
			if tail := string(answer[max(0, len(answer)-300):]); !strings.Contains(tail, test.end) {
				t.Errorf("%s, %d bytes at once: the answer ends with %q, want %s", test.name, size, tail, test.end)
			}
			if n := got.Charged["tpm"]; !got.CutOff || got.Usage.Complete || n < 1000 || n > 1300 || left(t, limiter, "m")["tpm"] != 1000-n || len(body.rest) == 0 {
				t.Errorf("%s, %d bytes at once: Report = %+v", test.name, size, got)
			}
		}
	}
}

func amazonEvents(t *testing.T, lines string) []byte { return events(t, []byte(lines)) }

// eventsOf counts events whose data is JSON.
func eventsOf(t *testing.T, answer []byte) (n int) {
	text := strings.ReplaceAll(string(answer), "\r\n", "\n")
	for event := range strings.SplitSeq(strings.TrimSuffix(text, "\n\n"), "\n\n") {
		_, data, _ := strings.Cut(event, "data: ")
		if data != "[DONE]" && !json.Valid([]byte(data)) {
			t.Errorf("an event is %q", event)
		}
		n++
	}
	return n
}

// TestCutOffLeavesOthers covers answers that are not cut off: a stream within its limits, which takes more in steps, and one that comes whole.
func TestCutOffLeavesOthers(t *testing.T) {
	chunk := `data: {"choices":[{"delta":{"content":"forty letters are ten tokens of the text"}}]}` + "\n\n"
	for _, test := range []struct {
		name, kind, body string
		want             int64
	}{
		{"within the limits", "text/event-stream", strings.Repeat(chunk, 90) + `data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":900}}` + "\n\n", 905},
		{"whole", "application/json", `{"choices":[{"message":{"content":"x"},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":5000}}`, 5005},
	} {
		limiter, _ := zlimittest.New(t, zlimit.PerDay("rpm", 10), zlimit.PerDay("tpm", 1000))
		var most int64
		body := &pieces{rest: []byte(test.body), lengths: func(int) int {
			most = max(most, 1000-left(t, limiter, "m")["tpm"])
			return 200
		}}
		transport, reports := newTransport(t, limiter, respond(200, http.Header{"Content-Type": {test.kind}}, body), llm.WithDefaultOutput(10), llm.WithCutOff(100))
		response := check.Call(transport.RoundTrip(newRequest(t, chatPath, `{"model":"m"}`))).Must(t, "RoundTrip()")
		answer, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if got := reports.one(t); err != nil || string(answer) != test.body || got.CutOff || got.Charged["tpm"] != test.want || left(t, limiter, "m")["tpm"] != 1000-test.want {
			t.Errorf("%s: %d bytes, %v, Report = %+v", test.name, len(answer), err, got)
		}
		if test.kind == "text/event-stream" && (most < 900 || most > 1000) {
			t.Errorf("%s: at most %d tokens were taken while it went on, want 900 to 1000", test.name, most)
		}
	}
	limiter, _ := zlimittest.New(t, zlimit.PerDay("rpm", 10), zlimit.PerDay("tpm", 1000))
	for _, step := range []int64{0, -1, 2_000_000_000} {
		if _, err := llm.NewTransport(limiter, llm.For("alice"), llm.WithCutOff(step)); err == nil || !strings.Contains(err.Error(), fmt.Sprint(step)) {
			t.Errorf("NewTransport(WithCutOff(%d)) = %v", step, err)
		}
	}
}
