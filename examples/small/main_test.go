package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/zlimit/zlimit-go/zlimit"
)

func TestProxy(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "you asked for "+r.URL.Path)
	}))
	defer upstream.Close()
	target, err := url.Parse(upstream.URL)
	if err != nil {
		t.Fatalf("url.Parse() = %v", err)
	}
	limiter, err := zlimit.Open(t.Context(), "memory:")
	if err != nil {
		t.Fatalf("zlimit.Open() = %v", err)
	}
	defer limiter.Close()
	proxy, err := newProxy(t.Context(), limiter, target, []byte("0123456789abcdef"))
	if err != nil {
		t.Fatalf("newProxy() = %v", err)
	}
	send := func(authorization string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/books", http.NoBody)
		r.Header.Set("Authorization", authorization)
		proxy.ServeHTTP(w, r)
		return w
	}
	if got := send("Bearer alice"); got.Body.String() != "you asked for /books" || got.Header().Get("RateLimit") != `"rpm";r=59;t=1` {
		t.Errorf("the answer is %q with %q", got.Body, got.Header())
	}
	if got := send("Basic YQ=="); got.Code != http.StatusUnauthorized || got.Header().Get("WWW-Authenticate") != "Bearer" {
		t.Errorf("the answer without a token is %d with %q", got.Code, got.Header())
	}
	for range 60 {
		send("Bearer alice")
	}
	if got := send("Bearer alice"); got.Code != http.StatusTooManyRequests || got.Header().Get("Retry-After") != "1" {
		t.Errorf("the answer after 60 requests is %d with %q", got.Code, got.Header())
	}
	if got := send("Bearer bob"); got.Code != http.StatusOK {
		t.Errorf("the answer to another is %d", got.Code)
	}
}

// TestFewLines bounds what a service takes to be limited: a proxy 40 lines, a gRPC server 15, a client of a model 10.
func TestFewLines(t *testing.T) {
	read := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatalf("os.ReadFile() = %v", err)
		}
		return string(text)
	}
	if n := strings.Count(read("main.go"), "\n"); n > 40 {
		t.Errorf("the proxy has %d lines, want at most 40", n)
	}
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, "../rpc/rpc.go", nil, 0)
	if err != nil {
		t.Fatalf("parser.ParseFile() = %v", err)
	}
	found := false
	for _, d := range file.Decls {
		server, ok := d.(*ast.FuncDecl)
		if !ok || server.Name.Name != "NewGRPC" {
			continue
		}
		found = true
		if n := set.Position(server.End()).Line - set.Position(server.Pos()).Line + 1; n > 15 {
			t.Errorf("the gRPC server has %d lines, want at most 15", n)
		}
	}
	if !found {
		t.Error("there is no function NewGRPC")
	}
	_, after, _ := strings.Cut(read("../../docs/models.md"), "```go\n")
	client, _, _ := strings.Cut(after, "```")
	if n := strings.Count(client, "\n"); n > 10 || !strings.Contains(client, "openai.NewClient") {
		t.Errorf("the client of OpenAI has %d lines, want at most 10:\n%s", n, client)
	}
}
