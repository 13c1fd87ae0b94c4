package docs

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/zlimit/zlimit-go/internal/proof/check"
)

// TestModules holds the modules that the SDK's module draws in against a list. A module that is new there is paid for by
// every user: integrations have modules of their own.
func TestModules(t *testing.T) {
	text := check.Call(os.ReadFile("testdata/modules.txt")).Must(t, "os.ReadFile()")
	known := map[string]bool{}
	for _, path := range strings.Fields(string(text)) {
		known[path] = true
	}
	list := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Path}}", "all")
	list.Dir = root
	output := check.Call(list.Output()).Must(t, "Output()")
	modules := strings.Fields(string(output))
	if len(modules) < 10 {
		t.Fatalf("the module draws in %v", modules)
	}
	for _, path := range modules {
		if !known[path] {
			t.Errorf("the module draws in %s, which is not in docs/testdata/modules.txt", path)
		}
	}
}
