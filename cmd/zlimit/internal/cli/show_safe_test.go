package cli

import (
	"strings"
	"testing"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
)

// TestPrintable prints text that would clear a screen, set its title, forge lines or turn letters around.
func TestPrintable(t *testing.T) {
	for text, want := range map[string]string{
		"Acme, Inc":             "Acme, Inc",
		"Zoë 東京 █░":             "Zoë 東京 █░",
		"a\x1b[2J":              `a\x1b[2J`,
		"v\r\nfake: line\x1b[m": `v\r\nfake: line\x1b[m`,
		"\x1b]0;pwn\a":          `\x1b]0;pwn\a`,
		"abc\u202etxt.exe":      `abc\u202etxt.exe`,
		"zero\u200bwidth":       `zero\u200bwidth`,
		"bad \xff byte":         `bad \ufffd byte`,
	} {
		if got := show.Printable(text); got != want {
			t.Errorf("Printable(%q) = %q, want %q", text, got, want)
		}
		p := &show.Page{}
		p.Table([]string{"name", "n>"}, [][]string{{text, "1"}})
		p.Linef("%s: %s, %v", text, show.Raw("\x1b[K"), 1)
		if got := strings.Count(p.String(), "\n"); got != 3 || strings.Count(p.String(), "\x1b") != 1 || !strings.Contains(p.String(), want) {
			t.Errorf("%q is written as %q", text, p)
		}
	}
}

// TestInert writes cells that a spreadsheet would compute, and numbers, which it should.
func TestInert(t *testing.T) {
	for cell, want := range map[string]string{
		"": "", "bob": "bob", "-1.5": "-1.5", "+3": "+3", "-0": "-0", "a=1": "a=1",
		`=HYPERLINK("http://evil")`: `'=HYPERLINK("http://evil")`, "=1+1": "'=1+1", "+1|cmd": "'+1|cmd", "@x": "'@x", "-x": "'-x", "\t=1": "'\t=1", "-": "'-",
	} {
		if got := show.Inert(cell); got != want {
			t.Errorf("Inert(%q) = %q, want %q", cell, got, want)
		}
	}
}
