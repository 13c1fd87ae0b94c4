package cli

import (
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
)

// columns returns the number of columns of the widest line.
func columns(text string) (widest int) {
	for line := range strings.Lines(text) {
		widest = max(widest, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")))
	}
	return widest
}

// TestAuditOnATerminal lists changes with long details: no line is wider than the terminal, and nothing is cut off.
func TestAuditOnATerminal(t *testing.T) {
	dsn := "sqlite:" + filepath.Join(t.TempDir(), "limits.db")
	for _, limits := range [][]string{{"--limit", "requests-per-minute=300/min"}, {"--limit", "requests-per-minute=600/min", "--limit", "tokens-per-minute=400000/min", "--limit", "usd=100/month@Europe/Berlin"}} {
		if got := command(t, "", append([]string{"limits", "set", "--resource", "gpt-4o", "--store", dsn, "--principal", "olga"}, limits...)...); got.code != shell.ExitOK {
			t.Fatal(got.stderr)
		}
	}
	for _, live := range []bool{false, true} {
		sh, _ := onTerminal(map[string]string{"COLUMNS": "70"})
		sh.Live = live
		out := output(t, sh, "audit", "list", "--resource", "gpt-4o", "--store", dsn)
		if widest := columns(out); (widest <= 70) != live {
			t.Errorf("on a terminal: %t, the widest line has %d columns:\n%s", live, widest, out)
		}
		for _, part := range []string{"requests-per-minute=300/min", "600/min", "+tokens-per-minute=400000/min", "@Europe/Berlin"} {
			if !strings.Contains(strings.Join(strings.Fields(out), " "), part) {
				t.Errorf("on a terminal: %t, %q is missing:\n%s", live, part, out)
			}
		}
	}
}

func TestFold(t *testing.T) {
	for _, test := range []struct {
		text string
		want []string
	}{{"", nil}, {"a bc def", []string{"a bc", "def"}}, {"abcdefghijkl m", []string{"abcde", "fghij", "kl m"}}, {"ä ö ü é", []string{"ä ö ü", "é"}}} {
		if diff := cmp.Diff(test.want, show.Fold(test.text, 5)); diff != "" {
			t.Errorf("Fold(%q) (-want +got):\n%s", test.text, diff)
		}
	}
}

// TestSuggestions offers commands that differ by a letter in three, and no others.
func TestSuggestions(t *testing.T) {
	for typed, want := range map[string]string{"foo": "see zlimit --help", "tup": "did you mean top?", "agregat": "did you mean aggregate?", "limts": "did you mean limits?"} {
		if got := command(t, "", typed); got.code != shell.ExitUsage || !strings.Contains(got.stderr, want) {
			t.Errorf("zlimit %s: %s, want %q", typed, got.stderr, want)
		}
	}
}
