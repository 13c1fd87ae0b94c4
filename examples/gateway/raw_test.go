package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestRawAttacks writes to the connection what no client of net/http sends. Examples are targets with a host, two
// lengths, trailers, headers for proxies, upgrades, tunnels, and requests behind one another. The provider gets
// listed calls alone, and the team is charged one request for each.
func TestRawAttacks(t *testing.T) {
	const path = "/openai/v1/chat/completions"
	const body = `{"model":"gpt-5-mini"}`
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = io.WriteString(z, `{"model":"gpt-4o"}`)
	_ = z.Close()
	const large = `{"model":"gpt-4o"}`
	chunked := func(text, trailer string) string {
		return fmt.Sprintf("%x\r\n%s\r\n0\r\n%s\r\n", len(text), text, trailer)
	}
	sized := func(text string) string { return fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(text), text) }
	const auth = "Host: gateway\r\nAuthorization: Bearer batch-key\r\n"
	for _, test := range []struct {
		name, raw string
		calls     int // that reach the provider
	}{
		{"a call", "POST " + path + " HTTP/1.1\r\n" + auth + sized(body), 1},
		{"a target with a host", "POST http://api.openai.com" + path + " HTTP/1.1\r\n" + auth + sized(body), 1},
		{"a target with another host, of a path that is not listed", "POST http://api.openai.com/v1/files HTTP/1.1\r\n" + auth + sized(body), 0},
		{"a target of two slashes", "POST /" + path + " HTTP/1.1\r\n" + auth + sized(body), 0},
		{"a target without a slash", "POST openai/v1/files HTTP/1.1\r\n" + auth + sized(body), 0},
		{"a target that climbs", "POST " + path + "/../../files HTTP/1.1\r\n" + auth + sized(body), 0},
		{"a target that climbs, escaped", "POST " + path + "%2f..%2f..%2ffiles HTTP/1.1\r\n" + auth + sized(body), 0},
		{"a target with a fragment", "POST /openai/v1/files#" + path + " HTTP/1.1\r\n" + auth + sized(body), 0},
		{"a tunnel", "CONNECT api.openai.com:443 HTTP/1.1\r\n" + auth + "\r\n", 0},
		{"an asterisk", "OPTIONS * HTTP/1.1\r\n" + auth + "\r\n", 0},
		{"chunks", "POST " + path + " HTTP/1.1\r\n" + auth + "Transfer-Encoding: chunked\r\n\r\n" + chunked(body, ""), 1},
		{"chunks with a trailer", "POST " + path + " HTTP/1.1\r\n" + auth + "Trailer: Content-Encoding, Authorization\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(body, "Content-Encoding: gzip\r\nAuthorization: Bearer attacker\r\n"), 1},
		{"two lengths", "POST " + path + " HTTP/1.1\r\n" + auth + "Content-Length: 5\r\nContent-Length: 22\r\n\r\n" + body, 0},
		{"a length and chunks", "POST " + path + " HTTP/1.1\r\n" + auth + "Content-Length: 22\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(large, ""), 0},
		{"an encoding of the transfer that is unknown", "POST " + path + " HTTP/1.1\r\n" + auth + "Transfer-Encoding: gzip, chunked\r\n\r\n" + chunked(packed.String(), ""), 0},
		{"a body that is packed", "POST " + path + " HTTP/1.1\r\n" + auth + "Content-Encoding: gzip\r\n" + sized(packed.String()), 0},
		{"a body that is packed, whose header is of the connection", "POST " + path + " HTTP/1.1\r\n" + auth + "Content-Encoding: gzip\r\nConnection: Content-Encoding\r\n" + sized(packed.String()), 0},
		{"a key that is of the connection", "POST " + path + " HTTP/1.1\r\n" + auth + "Connection: Authorization, Content-Type\r\n" + sized(body), 1},
		{"two keys, of which the first counts", "POST " + path + " HTTP/1.1\r\n" + auth + "Authorization: Bearer search-key\r\n" + sized(body), 1},
		{"another method", "GET " + path + " HTTP/1.1\r\n" + auth + "X-Http-Method-Override: POST\r\n" + sized(body), 0},
		{"a WebSocket", "GET /openai/v1/responses HTTP/1.1\r\n" + auth + "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", 0},
		{"a call that would be a WebSocket", "POST " + path + " HTTP/1.1\r\n" + auth + "Connection: Upgrade\r\nUpgrade: websocket\r\n" + sized(body), 1},
		{"HTTP/2 by an upgrade", "POST " + path + " HTTP/1.1\r\n" + auth + "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n" + sized(body), 1},
		{"two calls behind one another", "POST " + path + " HTTP/1.1\r\n" + auth + sized(body) + "POST " + path + " HTTP/1.1\r\n" + auth + "Connection: close\r\n" + sized(body), 2},
		{"a header that is huge", "POST " + path + " HTTP/1.1\r\n" + auth + "X-Other: " + strings.Repeat("x", 2<<20) + "\r\n" + sized(body), 0},
		{"a body that ends early", "POST " + path + " HTTP/1.1\r\n" + auth + "Connection: close\r\nContent-Length: 100\r\n\r\n" + body, 0},
		{"a header of two lines", "POST " + path + " HTTP/1.1\r\n" + auth + "Content-Type: application/json\r\n ; boundary=b\r\n" + sized(body), 1},
		{"an old protocol", "POST " + path + " HTTP/1.0\r\n" + auth + sized(body), 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			seen := &upstream{}
			server := httptest.NewServer(seen)
			defer server.Close()
			w := openGateway(t, server.URL)
			seen.providers = w.providers
			front := httptest.NewServer(w.gateway)
			defer front.Close()
			conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", front.Listener.Addr().String())
			if err != nil {
				t.Fatalf("DialContext() = %v", err)
			}
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
			go func() {
				_, _ = io.WriteString(conn, test.raw) // which a server may cut
				if test.name == "a body that ends early" {
					_ = conn.(*net.TCPConn).CloseWrite()
				}
			}()
			answers := bufio.NewReader(conn)
			for range max(1, test.calls) {
				response, err := http.ReadResponse(answers, nil)
				if err != nil {
					break // the server has closed the connection
				}
				_, _ = io.Copy(io.Discard, response.Body)
				_ = response.Body.Close()
				if response.StatusCode == http.StatusSwitchingProtocols {
					t.Error("the connection is upgraded")
				}
				if (response.StatusCode == http.StatusOK) != (test.calls > 0) && !strings.HasPrefix(test.raw, "OPTIONS") {
					t.Errorf("the answer is %s", response.Status)
				}
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
			charged := 0
			for b, err := range w.limiter.Entities.Buckets(t.Context(), "acme-batch") {
				if err != nil {
					t.Fatalf("Entities.Buckets() = %v", err)
				}
				charged += int(b.Consumed["requests"].Tokens())
			}
			if charged < test.calls {
				t.Errorf("%d requests are charged for %d calls", charged, test.calls)
			}
		})
	}
}
