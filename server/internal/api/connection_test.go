package api

import (
	"bufio"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/server/internal/auth"
)

// pipes is a listener whose connections are pipes, on the clock of a test.
type pipes struct {
	conns chan net.Conn
	ended chan struct{}
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.ended:
		return nil, net.ErrClosed
	}
}

func (p pipes) Close() error   { close(p.ended); return nil }
func (p pipes) Addr() net.Addr { return &net.UnixAddr{} }

// connect returns a connection to a server of a handler.
func connect(t *testing.T, handler http.Handler) net.Conn {
	t.Helper()
	listener := pipes{make(chan net.Conn), make(chan struct{})}
	server := &http.Server{Handler: handler, ReadTimeout: time.Minute, WriteTimeout: 2 * time.Minute}
	go func() { _ = server.Serve(listener) }()
	ours, theirs := net.Pipe()
	listener.conns <- theirs
	t.Cleanup(func() { _, _ = ours.Close(), server.Close() })
	return ours
}

// TestSlowBody answers a request whose body does not come, and ends its connection.
func TestSlowBody(t *testing.T) {
	const head = " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n"
	for _, test := range []struct {
		name, request string
		status        int
		after         time.Duration
	}{
		{"half a body", "POST /v1/acquire" + head + "Authorization: Bearer " + keyOfGateway + "\r\n\r\n{", 408, maxBodyTime},
		{"without a key", "POST /v1/acquire" + head + "\r\n{", 401, 0},
		{"a call without a body", "GET /v1/available?entity=alice&resource=gpt-4" + head + "Authorization: Bearer " + keyOfGateway + "\r\n\r\n{", 200, 0},
		{"no call", "POST /v1/nothing" + head + "\r\n{", 404, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conn := connect(t, newService(t))
				began := time.Now()
				if _, err := conn.Write([]byte(test.request)); err != nil {
					t.Fatalf("Write() = %v", err)
				}
				_ = conn.SetReadDeadline(began.Add(time.Hour))
				r := bufio.NewReader(conn)
				answer, err := http.ReadResponse(r, nil)
				if err != nil {
					t.Fatalf("no answer after %v: %v", time.Since(began), err)
				}
				if _, err := io.Copy(io.Discard, answer.Body); err != nil {
					t.Errorf("io.Copy() = %v", err)
				}
				if took := time.Since(began); answer.StatusCode != test.status || took != test.after {
					t.Errorf("the answer is %d after %v, want %d after %v", answer.StatusCode, took, test.status, test.after)
				}
				if _, err := r.ReadByte(); err != io.EOF {
					t.Errorf("the connection has %v after the answer, want its end", err)
				}
			})
		})
	}
}

// TestReadBody keeps the connection of a request whose body was read.
func TestReadBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := connect(t, newService(t))
		r := bufio.NewReader(conn)
		for range 2 {
			body := `{"entity": "alice", "resource": "gpt-4", "consume": {"tpm": 1}}`
			request, err := http.NewRequest("POST", "http://localhost/v1/acquire", strings.NewReader(body))
			check.Fatal(t, "http.NewRequest()", err)
			request.Header.Set("Authorization", "Bearer "+keyOfGateway)
			request.Header.Set("Content-Type", "application/json")
			go func() { _ = request.Write(conn) }()
			answer, err := http.ReadResponse(r, request)
			if err != nil || answer.StatusCode != http.StatusOK || answer.Close {
				t.Fatalf("the answer is %+v, %v, want 200 on a connection that is kept", answer, err)
			}
			_, _ = io.Copy(io.Discard, answer.Body)
			time.Sleep(30 * time.Second)
		}
	})
}

// TestLongCall serves a call without a body for longer than a request may take to come.
func TestLongCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t)
		h := &handler{Options: s.options}
		h.Namespace, h.Logger = "default", slog.New(slog.DiscardHandler)
		conn := connect(t, h.serve(route{"POST /", auth.Admin, maxMarkTime, func(c *call) (any, error) {
			time.Sleep(maxMarkTime - time.Second)
			return "done", c.r.Context().Err()
		}}, form{}))
		if _, err := conn.Write([]byte("POST / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + keyOfOps + "\r\n\r\n")); err != nil {
			t.Fatalf("Write() = %v", err)
		}
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || answer.StatusCode != http.StatusOK {
			t.Errorf("the answer is %+v, %v, want 200", answer, err)
		}
	})
}

// TestExactPaths refuses paths that name something else once they are cleaned.
func TestExactPaths(t *testing.T) {
	exact := ExactPaths(newService(t))
	for path, want := range map[string]int{
		"/v1/limits/entities/alice/resources/..": 400, "/v1/limits/entities/..": 400, "/v1/limits/entities//resources/gpt-4": 400, "/v1//limits/system": 400,
		"/v1/limits/./system": 400, "/v1/limits/entities/%2E%2E": 404, "/v1/limits/entities/a%2Fb": 404, "/v1/limits/resources/gpt-4": 200, "/v1/nothing/": 404, "/": 404,
	} {
		got, request := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), "GET", "http://localhost"+path, nil)
		request.Header.Set("Authorization", "Bearer "+keyOfOps)
		if exact.ServeHTTP(got, request); got.Code != want {
			t.Errorf("GET %s = %d %s, want %d", path, got.Code, got.Body, want)
		}
	}
}
