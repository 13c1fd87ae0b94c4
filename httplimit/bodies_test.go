package httplimit_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/httplimit"
	"github.com/zlimit/zlimit-go/internal/proof/check"
)

// TestBodyTimeout reads bodies that stall. Another body comes immediately, and its answer takes longer than bodies may.
func TestBodyTimeout(t *testing.T) {
	const timeout = 100 * time.Millisecond
	server := httptest.NewServer(httplimit.BodyTimeout(timeout)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(r.Body); err != nil {
			if !errors.Is(err, httplimit.ErrBodyTimeout) {
				t.Errorf("the body ends with %v", err)
			}
			httplimit.Refuse(w, r, err)
			return
		}
		time.Sleep(2 * timeout)
		if r.Context().Err() != nil {
			t.Error("the context has ended with the time for the body")
		}
	})))
	defer server.Close()
	for body, want := range map[string]int{"": http.StatusRequestTimeout, "12345": http.StatusRequestTimeout, "1234567890": http.StatusOK} {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(server.URL, "http://"))
		check.Fatal(t, "DialContext()", err)
		_, _ = fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n%s", body)
		response := check.Call(http.ReadResponse(bufio.NewReader(conn), nil)).Must(t, "http.ReadResponse()")
		if _ = response.Body.Close(); response.StatusCode != want {
			t.Errorf("a body of %q is answered by %s, want %d", body, response.Status, want)
		}
		_ = conn.Close()
	}
	w := httptest.NewRecorder() // has no deadlines
	httplimit.BodyTimeout(timeout)(http.NotFoundHandler()).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader("x")))
	if w.Code != http.StatusNotFound {
		t.Errorf("without deadlines the answer is %d", w.Code)
	}
	defer func() {
		if recover() == nil {
			t.Error("BodyTimeout(0) does not panic")
		}
	}()
	httplimit.BodyTimeout(0)
}
