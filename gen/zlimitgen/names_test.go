package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zlimit/zlimit-go/internal/proof/check"
)

// TestNamesOfThePackage: what would not compile with the other files of the package is refused, with place and reason.
func TestNamesOfThePackage(t *testing.T) {
	const gpt = "resources: { gpt-4: { limits: { rpm: { rate: 1/s } } } }\n"
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		check.Fatal(t, "os.WriteFile()", os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	generate := func(in, out, pkg string) (int, string) {
		var stderr bytes.Buffer
		code := run([]string{"-limits", filepath.Join(dir, in), "-out", filepath.Join(dir, out)}, pkg, &stderr)
		return code, strings.ReplaceAll(stderr.String(), dir+string(filepath.Separator), "")
	}
	write("gpt.yaml", gpt)
	write("claude.yaml", "resources: { claude: { limits: { tpm: { rate: 1/s } } } }\n")
	if code, stderr := generate("gpt.yaml", "gpt_gen.go", "llm"); code != 0 {
		t.Fatalf("the first declaration: %d, %s", code, stderr)
	}
	if code, stderr := generate("gpt.yaml", "gpt_gen.go", "llm"); code != 0 {
		t.Errorf("the first declaration again: %d, %s", code, stderr)
	}

	code, stderr := generate("claude.yaml", "claude_gen.go", "llm")
	if want := "Declared is there already: a package has one declaration"; code != 1 || !strings.HasPrefix(stderr, "gpt_gen.go:") ||
		!strings.Contains(stderr, want) || strings.Count(stderr, "\n") != 1 {
		t.Errorf("a second declaration: %d, %s, want one line with %q", code, stderr, want)
	}
	if _, err := os.Stat(filepath.Join(dir, "claude_gen.go")); err == nil {
		t.Error("a second declaration: the output is there")
	}
	if code, stderr := generate("claude.yaml", "claude_gen.go", "llm_test"); code != 0 {
		t.Errorf("a second declaration in another package: %d, %s", code, stderr)
	}
	check.Fatal(t, "os.Remove()", os.Remove(filepath.Join(dir, "claude_gen.go")))

	write("other.go", "//go:build ignore\n\npackage llm\n\ntype GPT4 int\n")
	if code, stderr := generate("gpt.yaml", "gpt_gen.go", "llm"); code != 0 {
		t.Errorf("beside a file that is not compiled: %d, %s", code, stderr)
	}
	write("hand.go", "package llm\n\nfunc (x X) GPT4() {}\n\ntype X int\n\nvar LimitRPM, Y = 1, 2\n\ntype GPT4 int\n\nfunc broken( {\n")
	code, stderr = generate("gpt.yaml", "gpt_gen.go", "llm")
	want := []string{"hand.go:7:5: LimitRPM is declared here", "hand.go:9:6: GPT4 is declared here"}
	lines := strings.Split(strings.TrimSpace(stderr), "\n")
	if code != 1 || len(lines) != len(want) {
		t.Fatalf("beside names of the application: %d, %s, want %q", code, stderr, want)
	}
	for i := range want {
		if !strings.HasPrefix(lines[i], want[i]) {
			t.Errorf("beside names of the application: %q, want %q", lines[i], want[i])
		}
	}
}
