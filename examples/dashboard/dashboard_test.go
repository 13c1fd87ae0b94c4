package dashboard

import (
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/zlimit/zlimit-go/zlimit"
)

// TestPage signs in with the key, and looks at what the service has limited.
func TestPage(t *testing.T) {
	limiter, page, err := New(t.Context(), "memory:", "secret")
	if err != nil {
		t.Fatalf("New() = %v", err)
	}
	defer limiter.Close()
	r := zlimit.Request{Entity: "alice", Resource: "gpt", Consume: zlimit.Amounts{"rpm": 1}, Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 60)}}
	if _, err := limiter.Acquire(t.Context(), r); err != nil {
		t.Fatalf("Acquire() = %v", err)
	}
	server := httptest.NewServer(page)
	defer server.Close()
	jar, _ := cookiejar.New(nil)
	browser := http.Client{Jar: jar}
	for key, want := range map[string]bool{"guess": false, "secret": true} {
		reply, err := browser.PostForm(server.URL+"/signin", url.Values{"key": {key}, "to": {"/?resource=gpt"}})
		if err != nil {
			t.Fatalf("PostForm() = %v", err)
		}
		text, _ := io.ReadAll(reply.Body)
		_ = reply.Body.Close()
		if sees := strings.Contains(string(text), "alice"); sees != want {
			t.Errorf("with the key %q the page shows who is limited: %t, want %t", key, sees, want)
		}
	}
}
