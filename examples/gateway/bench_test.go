package main

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

// BenchmarkGateway makes the same call through the gateway and through a bare proxy, in turns. The calls are a short
// answer, a stream of 200 events, and a photo of 15 MB. The benchmark reports the gateway's time as a part of the
// proxy's. It does so for the first byte of the answer and for its end, each the shortest of all.
func BenchmarkGateway(b *testing.B) {
	const event = `data: {"choices":[{"index":0,"delta":{"content":" word"},"finish_reason":null}],"usage":null}` + "\n\n"
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.Header.Get("Accept") == "application/json" {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"choices":[{"message":{"content":"word"}}],"usage":{"prompt_tokens":10,"completion_tokens":1}}`)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for range 200 {
			_, _ = io.WriteString(w, event)
			w.(http.Flusher).Flush()
		}
		_, _ = io.WriteString(w, `data: {"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":200}}`+"\n\ndata: [DONE]\n\n")
	}))
	defer provider.Close()
	w := openGateway(b, provider.URL)
	gateway := httptest.NewServer(w.gateway)
	defer gateway.Close()
	to, err := url.Parse(provider.URL)
	if err != nil {
		b.Fatalf("url.Parse() = %v", err)
	}
	bare := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }, FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0)})
	defer bare.Close()
	call := func(front, accept, body string) (first, end time.Duration, err error) {
		r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, front+"/openai/v1/chat/completions", strings.NewReader(body))
		if err != nil {
			b.Fatalf("http.NewRequestWithContext() = %v", err)
		}
		r.Header.Set("Authorization", "Bearer search-key")
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", accept)
		start := time.Now()
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			b.Fatalf("http.DefaultClient.Do() = %v", err)
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			b.Fatal(response.Status)
		}
		if _, err := io.ReadFull(response.Body, make([]byte, 1)); err != nil {
			return 0, 0, err
		}
		first = time.Since(start)
		_, err = io.Copy(io.Discard, response.Body)
		return first, time.Since(start), err
	}
	photo := strings.Repeat("QUJD", 15<<18)
	for _, test := range []struct{ name, accept, body string }{
		{"answer", "application/json", `{"model":"gpt-5-mini","messages":[{"role":"user","content":"Why?"}]}`},
		{"stream", "text/event-stream", `{"model":"gpt-5-mini","stream":true,"messages":[{"role":"user","content":"Why?"}]}`},
		{"photo", "application/json", fmt.Sprintf(`{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,%s"}}]}],"model":"gpt-5-mini"}`, photo)},
	} {
		b.Run(test.name, func(b *testing.B) {
			var times [4][]time.Duration // to the first byte and to the end, of the proxy and of the gateway
			for b.Loop() {
				for i, front := range []string{bare.URL, gateway.URL} {
					first, end, err := call(front, test.accept, test.body)
					switch {
					case err != nil && front == bare.URL: // which closes a connection to the provider now and then, and cuts its answer
						continue
					case err != nil:
						b.Fatalf("call() = %v", err)
					}
					times[2*i], times[2*i+1] = append(times[2*i], first), append(times[2*i+1], end)
				}
			}
			least := func(i int) float64 { return float64(slices.Min(times[i])) }
			b.ReportMetric(0, "ns/op") // of both together: means nothing
			b.ReportMetric(least(2)/least(0), "×proxy-first-byte")
			b.ReportMetric(least(3)/least(1), "×proxy-end")
		})
	}
}
