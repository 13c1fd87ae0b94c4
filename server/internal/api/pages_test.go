package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/server/internal/auth"
	"github.com/zlimit/zlimit-go/zlimit"
)

// TestPage sends the requests of docs/http-api.md in their order, and compares the answers. A text that ends in … stands for any with its
// beginning. LEASE is the lease of the last answer that has one.
func TestPage(t *testing.T) {
	text := check.Call(os.ReadFile("../../../docs/http-api.md")).Must(t, "os.ReadFile()")
	s := newService(t)
	check.Fatal(t, "Limits.Set()", s.limiter.Limits.Set(t.Context(), zlimit.Level{Resource: "gpt-5"}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 60), zlimit.PerMinute("tpm", 10_000)}}))
	blocks := regexp.MustCompile("(?s)```text\n((?:GET|POST|PUT|DELETE) .*?)```").FindAllStringSubmatch(string(text), -1)
	if len(blocks) < 8 {
		t.Fatalf("the page has %d requests, want more", len(blocks))
	}
	lease, etag := "", ""
	for _, block := range blocks {
		request, want, ok := strings.Cut(strings.NewReplacer("LEASE", lease, "ETAG", etag).Replace(block[1]), "\n\n")
		if !ok {
			t.Errorf("the block %q has no answer", block[1])
			continue
		}
		lines := strings.SplitN(request, "\n", 2)
		method, path, _ := strings.Cut(lines[0], " ")
		var headers []string
		body := ""
		for len(lines) == 2 {
			lines = strings.SplitN(lines[1], "\n", 2)
			if strings.HasPrefix(lines[0], "{") {
				body = strings.Join(lines, "\n")
				break
			}
			headers = append(headers, lines[0])
		}
		key := keyOfGateway
		switch {
		case strings.HasPrefix(path, "/v1/usage"):
			key = keyOfReader
		case strings.Contains(path, "/limits/"), strings.Contains(path, "/entities/"), path == "/v1/topup", path == "/v1/reset":
			key = keyOfOps
		}
		got := send(t, s, method, path, key, body, headers...)
		status, wanted, _ := strings.Cut(want, "\n")
		code, _, _ := strings.Cut(status, " ")
		if strconv.Itoa(got.StatusCode) != code {
			t.Errorf("%s: the answer is %d %s, want %s", lines[0], got.StatusCode, got.text, want)
			continue
		}
		if wanted == "" {
			continue
		}
		var have, need any
		if err := json.Unmarshal([]byte(wanted), &need); err != nil {
			t.Errorf("%s: the page has %s: %v", request, wanted, err)
			continue
		}
		_ = json.Unmarshal(got.text, &have)
		if at := differs(need, have); at != "" {
			t.Errorf("%s: the answer is\n%s\nand the page has\n%s\nThey differ at %s", request, got.text, wanted, at)
		}
		if m, ok := have.(map[string]any); ok && m["lease"] != nil {
			lease = m["lease"].(string)
		}
		if tag := got.Header.Get("ETag"); tag != "" {
			etag = tag
		}
	}
}

// differs returns where two values differ, "" for nowhere.
func differs(want, have any) string {
	switch w := want.(type) {
	case map[string]any:
		h, ok := have.(map[string]any)
		if !ok || len(h) != len(w) {
			return fmt.Sprint(have)
		}
		for name, v := range w {
			if at := differs(v, h[name]); at != "" {
				return name + ": " + at
			}
		}
		return ""
	case []any:
		h, ok := have.([]any)
		if !ok || len(h) != len(w) {
			return fmt.Sprint(have)
		}
		for i := range w {
			if at := differs(w[i], h[i]); at != "" {
				return at
			}
		}
		return ""
	case string:
		if begin, ok := strings.CutSuffix(w, "…"); ok {
			if h, is := have.(string); is && strings.HasPrefix(h, begin) {
				return ""
			}
		}
	}
	if want != have {
		return fmt.Sprintf("%v, want %v", have, want)
	}
	return ""
}

// TestPython runs the client for Python with the interpreter's own library alone.
func TestPython(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("needs python3")
	}
	callers := testCallers(t)
	s := newService(t, func(o *Options) { o.Callers = func() *auth.Callers { return callers } })
	check.Fatal(t, "Limits.Set()", s.limiter.Limits.Set(t.Context(), zlimit.Level{Resource: "gpt-5"}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 60), zlimit.PerMinute("tpm", 2000)}}))
	server := httptest.NewServer(s)
	defer server.Close()
	cmd := exec.CommandContext(t.Context(), python, "-I", "-B", "-c", "import sys; sys.path.insert(0, sys.argv[1]); sys.argv = sys.argv[1:]; import runpy; runpy.run_path(sys.argv[0] + '/call.py', run_name='__main__')",
		"../../examples/python", "one", "two", "fail", "three")
	cmd.Env = append(os.Environ(), "ZLIMIT_URL="+server.URL, "ZLIMIT_KEY="+keyOfGateway)
	var failure bytes.Buffer
	cmd.Stderr = &failure
	output, err := cmd.Output()
	if want := "ONE\nTWO\nexceeded ['tpm'] True\nexceeded ['tpm'] True\n"; err != nil || string(output) != want {
		t.Errorf("call.py = %v\n%s%swant\n%s", err, output, failure.String(), want)
	}
	if left := s.left(t, "acme", "gpt-5", "tpm"); left != 2000-2*431 {
		t.Errorf("%d tokens are left, want %d: two calls are settled", left, 2000-2*431)
	}
	cmd = exec.CommandContext(t.Context(), python, "-B", "call.py", "one")
	cmd.Dir, cmd.Env = "../../examples/python", append(os.Environ(), "ZLIMIT_URL="+server.URL, "ZLIMIT_KEY=wrong")
	if output, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(output), "The key is not known here") {
		t.Errorf("call.py with a wrong key = %v %s, want the problem", err, output)
	}
}
