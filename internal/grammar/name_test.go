package grammar_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/zlimit/zlimit-go/internal/grammar"
	"github.com/zlimit/zlimit-go/internal/proof/check"
)

// TestShellWord passes names with each byte that a name may have to a command of a shell, which gets them as they are.
func TestShellWord(t *testing.T) {
	names := []string{"~", "~root", "~/x", "a=~/x"}
	for b := range 256 {
		if grammar.InName(byte(b)) {
			names = append(names, string(byte(b))+"x", "x"+string(byte(b))+"x", "x"+string(byte(b)))
		}
	}
	var words []string
	for _, name := range names {
		words = append(words, grammar.ShellWord(name))
	}
	got, err := exec.CommandContext(t.Context(), "sh", "-c", `printf '%s\n' `+strings.Join(words, " ")).Output()
	check.Fatal(t, "sh", err)
	if want := strings.Join(names, "\n") + "\n"; string(got) != want {
		t.Errorf("a shell takes %q\nfor %q", got, want)
	}
}
