package docs

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestModules holds the modules that the SDK's module draws in against a list. A module that is new there is paid for by
// every user: integrations have modules of their own.
func TestModules(t *testing.T) {
	text, err := os.ReadFile("testdata/modules.txt")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, path := range strings.Fields(string(text)) {
		known[path] = true
	}
	list := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Path}}", "all")
	list.Dir = root
	output, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
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
