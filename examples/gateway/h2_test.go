package main

import (
	"bytes"
	"crypto/tls"
	"errors"
	"net/http/httptest"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// TestHTTP2Paths writes frames with paths that no client of net/http sends. Whatever reaches the provider is a call that is listed, and
// charged.
func TestHTTP2Paths(t *testing.T) {
	const path = "/openai/v1/chat/completions"
	const body = `{"model":"gpt-5-mini"}`
	seen := &upstream{}
	server := httptest.NewServer(seen)
	defer server.Close()
	w := openGateway(t, server.URL)
	seen.providers = w.providers
	front := httptest.NewUnstartedServer(w.gateway)
	front.EnableHTTP2 = true
	front.StartTLS()
	defer front.Close()
	for _, test := range []struct {
		name, method, path string
		more               []hpack.HeaderField
		calls              int
	}{
		{"a call", "POST", path, nil, 1},
		{"no slash", "POST", path[1:], nil, 0},
		{"two slashes", "POST", "/" + path, nil, 0},
		{"two slashes inside", "POST", "/openai//v1/chat/completions", nil, 0},
		{"an absolute form", "POST", "https://api.openai.com" + path, nil, 1},
		{"an absolute form of a path that is not listed", "POST", "https://api.openai.com/openai/v1/files", nil, 0},
		{"an asterisk", "POST", "*", nil, 0},
		{"an asterisk of OPTIONS", "OPTIONS", "*", nil, 0},
		{"a fragment", "POST", "/openai/v1/files#" + path, nil, 0},
		{"a fragment behind a call", "POST", path + "#/../files", nil, 0},
		{"an empty path", "POST", "", nil, 0},
		{"a path that climbs", "POST", path + "/../../files", nil, 0},
		{"a second path", "POST", path, []hpack.HeaderField{{Name: ":path", Value: "/openai/v1/files"}}, 0},
		{"a pseudo header behind the others", "POST", "/openai/v1/files", []hpack.HeaderField{{Name: "x-other", Value: "1"}, {Name: ":path", Value: path}}, 0},
		{"a tunnel", "CONNECT", path, nil, 0},
		{"a tunnel with a protocol", "CONNECT", path, []hpack.HeaderField{{Name: ":protocol", Value: "websocket"}}, 0},
		{"a header of HTTP/1", "POST", path, []hpack.HeaderField{{Name: "transfer-encoding", Value: "chunked"}}, 0},
		{"a length that is not that of the body", "POST", path, []hpack.HeaderField{{Name: "content-length", Value: "5"}}, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			seen.calls = nil
			before := w.requests(t)
			conn, err := tls.Dial("tcp", front.Listener.Addr().String(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}) //nolint:gosec,noctx // of the test
			if err != nil {
				t.Fatalf("tls.Dial() = %v", err)
			}
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
			var block bytes.Buffer
			fields := append([]hpack.HeaderField{
				{Name: ":method", Value: test.method}, {Name: ":scheme", Value: "https"}, {Name: ":authority", Value: "gateway"}, {Name: ":path", Value: test.path},
			}, test.more...)
			for encoder, fields := hpack.NewEncoder(&block), append(fields, hpack.HeaderField{Name: "authorization", Value: "Bearer batch-key"}); len(fields) > 0; fields = fields[1:] {
				_ = encoder.WriteField(fields[0])
			}
			_, err = conn.Write([]byte(http2.ClientPreface))
			framer := http2.NewFramer(conn, conn)
			framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
			if err := errors.Join(err, framer.WriteSettings(),
				framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true}),
				framer.WriteData(1, true, []byte(body))); err != nil {
				t.Fatalf("the first frames = %v", err)
			}
			status := ""
			for status == "" {
				frame, err := framer.ReadFrame()
				if err != nil {
					break // the server has closed the connection
				}
				switch f := frame.(type) {
				case *http2.MetaHeadersFrame:
					status = f.PseudoValue("status")
				case *http2.RSTStreamFrame, *http2.GoAwayFrame:
					status = "refused"
				}
			}
			if (status == "200") != (test.calls > 0) && test.method != "OPTIONS" { // which net/http answers by itself
				t.Errorf("the answer is %q", status)
			}
			w.wait(t)
			seen.mu.Lock()
			defer seen.mu.Unlock()
			if len(seen.calls) != test.calls {
				t.Errorf("%d calls reach the provider: %+v", len(seen.calls), seen.calls)
			}
			for _, call := range seen.calls {
				if call.problem != "" {
					t.Errorf("a call reaches the provider: %+v", call)
				}
			}
			if charged := w.requests(t) - before; charged < test.calls {
				t.Errorf("%d requests are charged for %d calls", charged, test.calls)
			}
		})
	}
}

// requests returns how many requests the attacker is charged for.
func (w *testbed) requests(t *testing.T) (n int) {
	t.Helper()
	for b, err := range w.limiter.Entities.Buckets(t.Context(), "acme-batch") {
		if err != nil {
			t.Fatalf("Entities.Buckets() = %v", err)
		}
		n += int(b.Consumed["requests"].Tokens())
	}
	return n
}
