package simulate

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
)

func TestParseCost(t *testing.T) {
	for _, test := range []struct {
		text string
		want cost
		back string
	}{
		{"rpm=1", cost{limit: "rpm", fixed: 1}, "rpm=1"},
		{"rpm=0", cost{limit: "rpm"}, "rpm=0"},
		{"tpm=In", cost{limit: "tpm", columns: []string{"In"}}, "tpm=In"},
		{"tpm=In+Out", cost{limit: "tpm", columns: []string{"In", "Out"}}, "tpm=In+Out"},
		{"tpm= In + 3 + Out + 4 ", cost{limit: "tpm", columns: []string{"In", "Out"}, fixed: 7}, "tpm=In+Out+7"},
		{"tpm=In+In", cost{limit: "tpm", columns: []string{"In", "In"}}, "tpm=In+In"},
		{"tpm=Prompt tokens+_2", cost{limit: "tpm", columns: []string{"Prompt tokens", "_2"}}, "tpm=Prompt tokens+_2"},
		{"tpm=a=b", cost{limit: "tpm", columns: []string{"a=b"}}, "tpm=a=b"},
		{"usd=0.5", cost{limit: "usd", fixed: 500_000_000}, "usd=0.5"},
		{"usd=Dollars+2+$0.000000001", cost{limit: "usd", columns: []string{"Dollars"}, fixed: 2_000_000_001}, "usd=Dollars+2.000000001"},
		{"usd=$Dollars+$+3", cost{limit: "usd", columns: []string{"$Dollars", "$"}, fixed: 3_000_000_000}, "usd=$Dollars+$+3"},
		{"budget=$2.5", cost{limit: "budget", fixed: 2_500_000_000}, "budget=2500000000"},
	} {
		got, err := parseCost(test.text)
		if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(cost{})); err != nil || diff != "" {
			t.Errorf("parseCost(%q) = %v (-want +got):\n%s", test.text, err, diff)
		}
		if got.String() != test.back {
			t.Errorf("parseCost(%q).String() = %q, want %q", test.text, got, test.back)
		}
	}
	for text, rule := range map[string]string{
		"":                       "must be NAME=EXPR",
		"tpm":                    "must be NAME=EXPR",
		"tpm=":                   "must be NAME=EXPR",
		"=In":                    "must be NAME=EXPR",
		"tpm=+":                  "a term is missing",
		"tpm=In+":                "a term is missing",
		"tpm=In++Out":            "a term is missing",
		"tpm=-1":                 `"-1" must be a whole number from 0`,
		"tpm=In+1.5":             `"1.5" must be a whole number from 0`,
		"tpm=1e3":                `"1e3" must be a whole number from 0`,
		"tpm=9223372036854776":   "must be a whole number from 0 to 9223372036854775",
		"tpm=9223372036854775+1": "must add up to at most 9223372036854775",
		"usd=-1":                 `"-1" must be dollars from 0 to 9223372, with at most 9 decimal places`,
		"usd=.5":                 `".5" must be dollars`,
		"usd=0.0000000001":       `"0.0000000001" must be dollars`,
		"usd=9223372+1":          "must add up to at most 9223372.036854775",
	} {
		_, err := parseCost(text)
		if err == nil || !strings.Contains(err.Error(), rule) {
			t.Errorf("parseCost(%q) = %v, want an error that says %q", text, err, rule)
		}
	}
}

// FuzzParseCost: an accepted cost survives being written.
func FuzzParseCost(f *testing.F) {
	for _, seed := range []string{"rpm=1", "tpm=ContextTokens+GeneratedTokens", "a=b+3+c+4", "a=+", "=1", "a=-1", "usd=x+0.25", "usd=$1+$y"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := parseCost(text)
		if err != nil {
			return
		}
		if c.limit == "" || c.fixed < 0 || c.fixed > shell.MaxTokens {
			t.Fatalf("parseCost(%q) = %+v, which is no cost", text, c)
		}
		again, err := parseCost(c.String())
		if diff := cmp.Diff(c, again, cmp.AllowUnexported(cost{})); err != nil || diff != "" {
			t.Errorf("parseCost(%q) = %v (-want +got):\n%s", c.String(), err, diff)
		}
	})
}
