package llm_test

import (
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/llm"
)

// TestSound charges sound without a count: by its length where the format is one of samples, and at most the bound of the answer where the
// length is a guess.
func TestSound(t *testing.T) {
	const seconds, samples = 10, 48_000
	encoded := base64.StdEncoding.EncodeToString(make([]byte, seconds*samples))
	for _, test := range []struct {
		name, path, body, kind, answer string
		want                           int64
	}{
		{"samples", chatPath, `{"model":"m","stream":true,"max_tokens":5,"audio":{"format":"pcm16"}}`, "text/event-stream", `data: {"choices":[{"delta":{"audio":{"data":"` + encoded + `"}}}]}`, 25 * seconds},
		{"samples of no format", chatPath, `{"model":"m","stream":true}`, "text/event-stream", `data: {"choices":[{"delta":{"audio":{"data":"` + encoded + `"}}}]}`, 25 * seconds},
		{"G.711", chatPath, `{"model":"m","stream":true,"audio":{"format":"g711_ulaw"}}`, "text/event-stream", `data: {"choices":[{"delta":{"audio":{"data":"` + encoded + `"}}}]}`, 25 * seconds * 6},
		{"MP3", chatPath, `{"model":"m","max_tokens":50,"audio":{"format":"mp3"}}`, "application/json", `{"choices":[{"message":{"audio":{"data":"` + encoded, 50},
		{"MP3 within the bound", chatPath, `{"model":"m","max_tokens":9000,"audio":{"format":"mp3"}}`, "application/json", `{"choices":[{"message":{"audio":{"data":"` + encoded, 25 * seconds * 12},
		{"speech", "/v1/audio/speech", `{"model":"m","input":"` + strings.Repeat("word", 10) + `"}`, "audio/mpeg", strings.Repeat("x", seconds*samples), 100},
		{"speech of a text that is not known", "/v1/audio/speech", `{"model":"m"}`, "audio/mpeg", strings.Repeat("x", seconds*samples), 25 * seconds * 12},
		{"speech of samples", "/v1/audio/speech", `{"model":"m","response_format":"pcm"}`, "audio/pcm", strings.Repeat("x", seconds*samples), 25 * seconds},
		{"two formats", "/v1beta/models/m:streamGenerateContent", `{}`, "application/json", fmt.Sprintf(`[{"candidates":[{"content":{"parts":[{"inlineData":{"mimeType":"audio/pcm;rate=8000","data":%q}},{"inlineData":{"mimeType":"audio/L16","data":%[1]q}}]}}]}`, encoded), 25 * seconds * 2 * 3},
	} {
		call := check.Call(llm.Inspect(newRequest(t, test.path, test.body))).Must(t, "llm.Inspect()")
		m := llm.NewMeter(call, http.Header{"Content-Type": {test.kind}}, io.NopCloser(strings.NewReader(test.answer)))
		_, _ = io.Copy(io.Discard, m)
		if u := m.Usage(); u.Output != test.want || u.AudioOutput != test.want || u.Complete {
			t.Errorf("%s: Usage() = %+v, want %d tokens of sound", test.name, u, test.want)
		}
	}
}
