package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/zlimit/zlimit-go/zlimit"
)

// In TestPythonSDKs, the SDKs of OpenAI, Anthropic and Google for Python call through the gateway, as the SDKs for Go do in
// TestSDKs.
func TestPythonSDKs(t *testing.T) {
	dir := os.Getenv("ZLIMIT_INFRA")
	if dir == "" {
		t.Skip("needs the tools of make infra")
	}
	s := &studio{}
	w := newStudio(t, s)
	front := httptest.NewServer(w.gateway)
	defer front.Close()
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "venv", "bin", "python"), "-W", "ignore", "testdata/sdks.py", front.URL)
	cmd.Stderr = os.Stderr
	calls, err := cmd.StdinPipe()
	if err != nil {
		t.Fatalf("StdinPipe() = %v", err)
	}
	results, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatalf("StdoutPipe() = %v", err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("Start() = %v", err)
	}
	send, receive := json.NewEncoder(calls), json.NewDecoder(results)
	for _, name := range []string{"openai", "anthropic", "gemini"} {
		resource := sdks[name].resource
		for _, test := range []struct {
			how, key, text string
			status         int
			took           int64
		}{
			{"whole", "search-key", firstPiece + secondPiece, http.StatusOK, inputTokens + outputTokens},
			{"a stream", "search-key", firstPiece + secondPiece, http.StatusOK, inputTokens + outputTokens},
			{"left", "search-key", firstPiece, http.StatusOK, inputTokens + outputTokens},
			{"a stream", "other-key", "", http.StatusUnauthorized, 0},
			{"a stream", "search-key", "", http.StatusTooManyRequests, 0},
		} {
			if s.hold = nil; test.how == "left" {
				s.hold = make(chan struct{})
			}
			if test.status == http.StatusTooManyRequests {
				w.spend(t, zlimit.Level{Entity: "acme-search", Resource: resource})
			}
			before := w.taken(t, "acme-search", resource)
			var got struct {
				Text   string
				Status int
			}
			if err := send.Encode(map[string]string{"sdk": name, "key": test.key, "how": test.how}); err != nil {
				t.Fatalf("Encode() = %v", err)
			}
			if err := receive.Decode(&got); err != nil || got.Text != test.text || got.Status != test.status {
				t.Errorf("%s, %s with %s: %+v, %v", name, test.how, test.key, got, err)
			}
			if s.hold != nil {
				close(s.hold)
			}
			w.wait(t)
			if took := w.taken(t, "acme-search", resource) - before; took != test.took {
				t.Errorf("%s, %s with %s: %d tokens are charged, want %d", name, test.how, test.key, took, test.took)
			}
		}
	}
	if err := calls.Close(); err != nil {
		t.Errorf("Close() = %v", err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("Wait() = %v", err)
	}
}
