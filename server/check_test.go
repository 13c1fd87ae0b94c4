package server

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/envoylimit"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/pages"
)

// TestExampleHasNoWarnings checks the example of docs/envoy.md.
func TestExampleHasNoWarnings(t *testing.T) {
	c := check.Call(Load("examples/envoy/zlimitd.yaml", noEnv)).Must(t, "Load()")
	text := check.Call(os.ReadFile("examples/envoy/envoy.yaml")).Must(t, "os.ReadFile()")
	envoy := check.Call(c.RateLimit.EnvoyWarnings(envoylimit.File{Name: "envoy.yaml", Text: text})).Must(t, "EnvoyWarnings()")
	if diff := cmp.Diff([]string(nil), append(c.Warnings(), envoy...)); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}

// TestClearText warns of keys that cross a network.
func TestClearText(t *testing.T) {
	c := Config{GRPC: "0.0.0.0:8081", HTTP: "127.0.0.1:8080"}
	if got := c.Warnings(); len(got) != 1 || !strings.HasPrefix(got[0], "grpc: keys of callers cross the network in clear text") {
		t.Errorf("Warnings = %q", got)
	}
}

// TestPages reads the files that the pages show.
func TestPages(t *testing.T) {
	read := 0
	for _, name := range []string{"docs/server.md", "docs/envoy.md"} {
		page := check.Call(pages.Read("..", name)).Must(t, "pages.Read()")
		for _, b := range page.Blocks {
			if b.Language != "yaml" || !strings.Contains(b.Text, "ratelimit:") {
				continue
			}
			var c Config
			if err := c.decode([]byte(b.Text)); err != nil {
				t.Errorf("%s: %v", b.At(), err)
			}
			read++
		}
	}
	if read < 3 {
		t.Errorf("%d files were read from the pages", read)
	}
}
