package llm_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/faulttest"
	"github.com/zlimit/zlimit-go/llm"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/zlimittest"
)

// BenchmarkStream reads streams of chat completions to their end: one that was not asked for its usage, and one that was, whose last chunk
// is taken out. The second one tells its time as a multiple of the first.
func BenchmarkStream(b *testing.B) {
	const chunk = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"m","choices":[{"index":0,"delta":{"content":" word"},"finish_reason":null}],"usage":null}` + "\n\n"
	stream := strings.Repeat(chunk, 1000) +
		`data: {"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":1000}}` + "\n\n" + "data: [DONE]\n\n"
	limiter, _ := zlimittest.New(b, zlimit.PerSecond("rpm", 1_000_000_000), zlimit.PerSecond("tpm", 1_000_000_000_000))
	base := faulttest.RoundTripper(func(r *http.Request) (*http.Response, error) {
		_, _ = io.Copy(io.Discard, r.Body)
		return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(strings.NewReader(stream))}, nil
	})
	read := func(b *testing.B, opts ...llm.Option) time.Duration {
		transport, _ := newTransport(b, limiter, base, opts...)
		b.SetBytes(int64(len(stream)))
		b.ReportAllocs()
		for b.Loop() {
			response, err := transport.RoundTrip(newRequest(b, chatPath, `{"model":"m","stream":true}`))
			if err != nil {
				b.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, response.Body); err != nil {
				b.Fatal(err)
			}
			_ = response.Body.Close()
		}
		return b.Elapsed() / time.Duration(b.N)
	}
	var plain time.Duration
	b.Run("as it comes", func(b *testing.B) { plain = read(b) })
	b.Run("without its usage", func(b *testing.B) {
		filtered := read(b, llm.WithIncludeUsage())
		b.ReportMetric(float64(filtered)/float64(plain), "×plain")
	})
}
