package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zlimit/zlimit-go/gen/internal/gentest"
)

// A hearer hears the errors of a test.
type hearer struct {
	testing.TB
	said []string
}

func (h *hearer) Errorf(format string, args ...any) {
	h.said = append(h.said, fmt.Sprintf(format, args...))
}

// TestVet checks a package with a fault in its code and one in its tests, and asks that both are told, and nothing else.
func TestVet(t *testing.T) {
	if testing.Short() {
		t.Skip("builds packages")
	}
	dir := t.TempDir()
	for name, content := range map[string]string{
		"go.mod":             "module example.com/m\n\ngo 1.26\n",
		"right/right.go":     "package right\n\nimport \"fmt\"\n\nfunc Say(n int) { fmt.Printf(\"%d\", n) }\n",
		"wrong/wrong.go":     "package wrong\n\nimport (\n\t\"fmt\"\n\n\t\"example.com/m/right\"\n)\n\nfunc Say(s string) { fmt.Printf(\"%d\", s); right.Say(1) }\n",
		"right/of_test.go":   "package right\n\nimport (\n\t\"sync\"\n\t\"testing\"\n)\n\nfunc TestLock(t *testing.T) { var a sync.Mutex; b := a; b.Lock() }\n",
		"right/from_test.go": "package right_test\n\nimport (\n\t\"testing\"\n\n\t\"example.com/m/right\"\n)\n\nfunc TestSay(t *testing.T) { right.Say(1); t.Errorf(\"%d\", \"a\") }\n",
	} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h := &hearer{TB: t}
	gentest.Vet(h, dir, "./...")
	said := strings.Join(h.said, "\n")
	for _, want := range []string{"wrong.go:9", "of_test.go:8", "from_test.go:9"} {
		if !strings.Contains(said, want) {
			t.Errorf("no fault of %s is told: %s", want, said)
		}
	}
	if len(h.said) != 3 || strings.Contains(said, "right.go") {
		t.Errorf("%d packages have faults, want 3: %s", len(h.said), said)
	}
}
