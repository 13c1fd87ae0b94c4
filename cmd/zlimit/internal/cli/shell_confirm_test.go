package cli

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
)

func TestConfirm(t *testing.T) {
	for _, c := range []struct {
		answer    string
		yes, asks bool
		want      error
		asked     string
	}{
		{answer: "y\n", asks: true, asked: "Apply? [y/N] "},
		{answer: "YES\n", asks: true, asked: "Apply? [y/N] "},
		{answer: "\n", asks: true, want: shell.ErrDeclined, asked: "Apply? [y/N] "},
		{answer: "yeah\n", asks: true, want: shell.ErrDeclined, asked: "Apply? [y/N] "},
		{answer: "", asks: true, want: shell.ErrDeclined, asked: "Apply? [y/N] "},
		{answer: "y", asks: true, asked: "Apply? [y/N] "},
		{answer: "n\n", yes: true, asks: true},
		{answer: "n\n", yes: true},
	} {
		var stderr bytes.Buffer
		sh := &shell.Shell{Stdin: strings.NewReader(c.answer), Stderr: &stderr, Asks: c.asks}
		if err := sh.Confirm("Apply?", c.yes); !errors.Is(err, c.want) || stderr.String() != c.asked {
			t.Errorf("confirm() of %+v = %v, asked %q", c, err, &stderr)
		}
	}
	sh := &shell.Shell{Stdin: strings.NewReader("y\n")}
	if err := sh.Confirm("Apply?", false); !errors.As(err, new(*shell.UsageError)) {
		t.Errorf("confirm() with nobody to ask = %v, want bad input", err)
	}
}
