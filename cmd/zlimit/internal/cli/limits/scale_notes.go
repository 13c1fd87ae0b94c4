package limits

import (
	"cmp"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/zlimit"
)

// maxNoted is the most names in a note.
const maxNoted = 5

// note notes what the plan leaves as it is, and warns of limits that others have changed.
func (p *scalePlan) note(sh *shell.Shell, file string, factor *big.Rat) {
	if len(p.missing) > 0 {
		sh.Note(fmt.Sprintf("note: not in %s, and left as stored: %s", file, countedNames(p.missing)))
	}
	if len(p.followed) > 0 {
		sh.Note(fmt.Sprintf("note: rotated since %s was written, with the limits of the former ID: %s", file, countedNames(p.followed)))
	}
	if p.kept > 0 && factor.Cmp(big.NewRat(1, 1)) != 0 {
		sh.Note(fmt.Sprintf("note: %s of quotas and prepaid limits not multiplied; --budgets multiplies them too", show.Counted(p.kept, "amount")))
	}
	if p.raises() {
		sh.Note("note: amounts of quotas and prepaid limits are raised from their next period on, and add nothing to what is left now; " +
			"zlimit bucket top-up adds to a bucket now")
	}
	if p.managed > 0 {
		sh.Note(fmt.Sprintf("note: %s managed by %s: limits apply refuses to undo the scaling until limits scale 1; other provisioners undo it",
			show.Counted(p.managed, "level"), cmp.Or(p.manager, "a file of limits")))
	}
	for i := range p.foreign {
		f := &p.foreign[i]
		by := ""
		if f.by.By != "" {
			by = " by " + f.by.By
		}
		sh.Note(fmt.Sprintf("warning: %v: %v was changed%s since, and stays: %s has %s; set it to that to scale it again", f.at, f.is, by, file, rateOf(f.first)))
	}
}

// countedNames returns the number of names, and the first of them.
func countedNames(all []string) string {
	n := len(all)
	names := strings.Join(all[:min(n, maxNoted)], ", ")
	if n > maxNoted {
		names += fmt.Sprintf(", and %s more", show.Grouped(int64(n-maxNoted)))
	}
	return fmt.Sprintf("%s (%s)", show.Grouped(int64(n)), names)
}

// raises reports whether the plan raises the amount of a quota or of a prepaid limit.
func (p *scalePlan) raises() bool {
	return slices.ContainsFunc(p.changes, func(c scaling) bool {
		return (c.After.Resets != "" || c.After.Session != 0) && c.After.Capacity > c.Before.Capacity
	})
}

// show shows the changes to people.
func (p *scalePlan) show(sh *shell.Shell) error {
	page := &show.Page{}
	page.Linef("namespace %s", sh.Namespace)
	for i := range p.changes {
		c := &p.changes[i]
		page.Linef("%v: %v becomes %v", c.at, c.Before, rateOf(c.After))
	}
	return sh.ToPeople(page)
}

func rateOf(l zlimit.Limit) string { return strings.TrimPrefix(l.String(), l.Name+"=") }

// factorsMark begins the second line of a file that scale wrote: the factors by which the stored limits may be multiplied.
const factorsMark = "# scaled by "

// maxNotedFactor is the most bytes of a noted factor: a fraction of what parseFactor takes.
const maxNotedFactor = 64

// scaledBy returns the factors that a file of scale notes.
func scaledBy(text []byte) (factors []*big.Rat) {
	_, rest, _ := strings.Cut(string(text), "\n")
	line, _, _ := strings.Cut(rest, "\n")
	noted, ok := strings.CutPrefix(strings.TrimSuffix(line, "\r"), factorsMark)
	if !ok || !strings.HasPrefix(string(text), scaledMark) {
		return nil
	}
	for _, factor := range strings.Split(noted, ", ") {
		if f, ok := ratOf(factor); ok {
			factors = append(factors, f)
		}
	}
	return factors
}

// withFactor returns the text of a file of scale that notes a factor beside those that it notes already. Other files stay as they are.
func withFactor(text string, noted []*big.Rat, factor *big.Rat) string {
	one := big.NewRat(1, 1)
	if !strings.HasPrefix(text, scaledMark) || factor.Cmp(one) == 0 || slices.ContainsFunc(noted, func(f *big.Rat) bool { return f.Cmp(factor) == 0 }) {
		return text
	}
	first, rest, _ := strings.Cut(text, "\n")
	if strings.HasPrefix(rest, factorsMark) {
		_, rest, _ = strings.Cut(rest, "\n")
	}
	names := []string{}
	for _, f := range append(slices.Clone(noted), factor) {
		names = append(names, f.RatString())
	}
	return first + "\n" + factorsMark + strings.Join(names, ", ") + "\n" + rest
}

func ratOf(text string) (*big.Rat, bool) {
	if len(text) > maxNotedFactor || strings.ContainsAny(text, "eEpP") {
		return nil, false
	}
	return new(big.Rat).SetString(text)
}
