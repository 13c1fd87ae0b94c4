package llm_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/faulttest"
	"github.com/zlimit/zlimit-go/llm"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/zlimittest"
)

// BenchmarkStream reads streams of chat completions to their end: from the base alone, without a request for usage,
// and with one. With the request, the last chunk is taken out. The benchmark reports what the transport takes for
// an event. It also reports the time of the last stream as a multiple of the second. Each figure is the shortest of
// all.
func BenchmarkStream(b *testing.B) {
	const chunk = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"m","choices":[{"index":0,"delta":{"content":" word"},"finish_reason":null}],"usage":null}` + "\n\n"
	const events = 1000
	stream := strings.Repeat(chunk, events) +
		`data: {"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":1000}}` + "\n\n" + "data: [DONE]\n\n"
	limiter, _ := zlimittest.New(b, zlimit.PerSecond("rpm", 1_000_000_000), zlimit.PerSecond("tpm", 1_000_000_000_000))
	base := faulttest.RoundTripper(func(r *http.Request) (*http.Response, error) {
		_, _ = io.Copy(io.Discard, r.Body)
		return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(strings.NewReader(stream))}, nil
	})
	plain, _ := newTransport(b, limiter, base)
	filtered, _ := newTransport(b, limiter, base, llm.WithIncludeUsage())
	least := [3]time.Duration{time.Hour, time.Hour, time.Hour}
	b.ReportAllocs()
	for b.Loop() {
		for i, tripper := range []http.RoundTripper{base, plain, filtered} {
			r := newRequest(b, chatPath, `{"model":"m","stream":true}`)
			start := time.Now()
			response := check.Call(tripper.RoundTrip(r)).Must(b, "RoundTrip()")
			if _, err := io.Copy(struct{ io.Writer }{io.Discard}, response.Body); err != nil {
				b.Fatalf("io.Copy() = %v", err)
			}
			_ = response.Body.Close()
			least[i] = min(least[i], time.Since(start))
		}
	}
	b.ReportMetric(0, "ns/op") // of all together: means nothing
	b.ReportMetric(float64((least[1]-least[0]).Nanoseconds())/events, "event-ns")
	b.ReportMetric(float64(least[2])/float64(least[1]), "×plain")
}

// BenchmarkPhoto sends a photo of 15 MB before the model. It reports the time until the base gets the request, in
// which the body is scanned. The unit is the time in which a server on the same machine reads the body. Both are the
// shortest of all.
func BenchmarkPhoto(b *testing.B) {
	body := `{"messages":[{"content":[{"image_url":{"url":"data:image/png;base64,` + strings.Repeat("QUJD", 15<<18) + `"}}]}],"model":"m"}`
	limiter, _ := zlimittest.New(b, zlimit.PerSecond("rpm", 1_000_000_000), zlimit.PerSecond("tpm", 1_000_000_000_000))
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	defer server.Close()
	for _, test := range []struct {
		name  string
		again bool
	}{{"read again", true}, {"in a file", false}} {
		b.Run(test.name, func(b *testing.B) {
			scan, send := time.Hour, time.Hour
			var start time.Time
			transport, _ := newTransport(b, limiter, faulttest.RoundTripper(func(r *http.Request) (*http.Response, error) {
				sent := time.Now()
				scan = min(scan, sent.Sub(start))
				response, err := http.DefaultTransport.RoundTrip(r)
				send = min(send, time.Since(sent))
				return response, err
			}))
			for b.Loop() {
				r := newRequest(b, "", body)
				r.URL.Host, r.URL.Path = server.Listener.Addr().String(), chatPath
				if !test.again {
					r.GetBody = nil
				}
				start = time.Now()
				response := check.Call(transport.RoundTrip(r)).Must(b, "RoundTrip()")
				_, _ = io.Copy(io.Discard, response.Body)
				_ = response.Body.Close()
			}
			b.ReportMetric(float64(scan)/float64(send), "×send")
			b.ReportMetric(float64(scan.Microseconds()), "scan-µs")
		})
	}
}

// BenchmarkTotal reads answers of the same length through a transport, with and without the provider's own total. The reports of an answer
// with one are compared with it. The benchmark reports the time with a total as a multiple of that without one. Both are the shortest of
// all.
func BenchmarkTotal(b *testing.B) {
	limiter, _ := zlimittest.New(b, zlimit.PerSecond("rpm", 1_000_000_000), zlimit.PerSecond("tpm", 1_000_000_000_000))
	const usage = `"prompt_tokens":10,"completion_tokens":20,"prompt_tokens_details":{"cached_tokens":4},"completion_tokens_details":{"reasoning_tokens":5}`
	answer := func(total string) []byte {
		return []byte(`{"model":"m","choices":[{"index":0,"message":{"content":"` + strings.Repeat("word ", 200) + `"},"finish_reason":"stop"}],"usage":{` + usage + `,"` + total + `":30}}`)
	}
	answers := [2][]byte{answer("total_bytes!"), answer("total_tokens")}
	least := [2]time.Duration{time.Hour, time.Hour}
	var transports [2]http.RoundTripper
	for i := range answers {
		transports[i], _ = newTransport(b, limiter, faulttest.RoundTripper(func(r *http.Request) (*http.Response, error) {
			_, _ = io.Copy(io.Discard, r.Body)
			return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(answers[i]))}, nil
		}))
	}
	for b.Loop() {
		for i, tripper := range transports {
			r := newRequest(b, chatPath, `{"model":"m"}`)
			start := time.Now()
			response := check.Call(tripper.RoundTrip(r)).Must(b, "RoundTrip()")
			_, _ = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
			least[i] = min(least[i], time.Since(start))
		}
	}
	b.ReportMetric(0, "ns/op") // of both together: means nothing
	b.ReportMetric(float64(least[1])/float64(least[0]), "×without")
}
