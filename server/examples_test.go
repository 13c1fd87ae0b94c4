package server

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zlimit/zlimit-go/internal/proof/check"
)

// TestExampleEnvoy runs the example of docs/envoy.md.
func TestExampleEnvoy(t *testing.T) {
	binary := envoyBinary(t)
	const dir = "examples/envoy"
	c := check.Call(Load(filepath.Join(dir, "zlimitd.yaml"), func(name string) string {
		return map[string]string{"ZLIMITD_GRPC": "127.0.0.1:0", "ZLIMITD_HTTP": "127.0.0.1:0"}[name]
	})).Must(t, "Load()")
	m := runMesh(t, c, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"usage": {"total_tokens": ` + r.Header.Get("x-costs") + `}}`))
	})
	text := check.Call(os.ReadFile(filepath.Join(dir, "envoy.yaml"))).Must(t, "os.ReadFile()")
	m.url = startEnvoy(t, binary, "admin: {address: {socket_address: {address: 127.0.0.1, port_value: 0}}}\n"+strings.NewReplacer(
		"0.0.0.0, port_value: 10000", "127.0.0.1, port_value: 0", "8081", portOf(m.server.GRPCAddr()), "9100", m.upstream).Replace(string(text)))
	for _, test := range []struct {
		user, estimate string
		code           string
		left           int64
	}{
		{"default", "", "200", 100_000 - 700},
		{"header", "300", "200", 100_000 - 700},
		{"huge", "2000000000", "429", 100_000},
		{"negative", "-1", "429", 100_000},
		{"words", "many", "429", 100_000},
	} {
		headers := []string{"x-user=" + test.user, "x-costs=700"}
		if test.estimate != "" {
			headers = append(headers, "x-estimated-tokens="+test.estimate)
		}
		if got := m.codes(t, 1, "/v1/chat/completions", headers...); got != test.code {
			t.Errorf("%s: code = %s, want %s", test.user, got, test.code)
		}
		m.settles(t, test.user, "llm|user", test.left)
	}
	if got := m.codes(t, 1, "/", "x-costs=1"); got != "200" {
		t.Errorf("without a user: code = %s", got)
	}
	if left := m.left(t, "all", "llm|calls=all"); left != 6000-3 && left != 6000 { // a minute may have ended
		t.Errorf("%d calls are left of 6,000, want three to be counted: refused ones take nothing", left)
	}
}
