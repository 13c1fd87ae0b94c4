package simulate

import (
	"strings"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/internal/grammar"
)

// A cost is the consumption of one limit by a row of a trace: a sum of columns and numbers.
type cost struct {
	limit   string
	columns []string // as often as they count
	fixed   int64    // what every row costs: tokens, or billionths of a dollar if the limit is in money
}

// parseCost parses NAME=EXPR, where EXPR is a column, a number, or a sum of them such as ContextTokens+GeneratedTokens.
// A term that starts like a number is one. Numbers, and the values of columns, are in dollars if the limit is in money.
func parseCost(text string) (cost, error) {
	name, expression, ok := grammar.Cut(text, "=")
	if !ok || name == "" || expression == "" {
		return cost{}, shell.Usagef("cost %q: must be NAME=EXPR, such as tpm=ContextTokens+GeneratedTokens", text)
	}
	c := cost{limit: name}
	for term := range strings.SplitSeq(expression, "+") {
		term = strings.TrimSpace(term)
		switch {
		case term == "":
			return cost{}, shell.Usagef("cost %q: a term is missing beside a plus sign", text)
		case !isNumber(term):
			c.columns = append(c.columns, term)
			continue
		}
		n, err := grammar.ParseAmount(name, term, 0)
		if err != nil {
			return cost{}, shell.Usagef("cost %q: %v", text, err)
		}
		if c.fixed += n; c.fixed > shell.MaxTokens {
			return cost{}, shell.Usagef("cost %q: the numbers must add up to at most %s", text, grammar.FormatAmount(name, shell.MaxTokens))
		}
	}
	return c, nil
}

// isNumber reports whether a term starts like a number, behind a dollar sign perhaps. It is the name of a column otherwise.
func isNumber(term string) bool {
	starts := func(text, with string) bool { return text != "" && strings.IndexByte(with, text[0]) >= 0 }
	dollars, isDollars := strings.CutPrefix(term, "$")
	return starts(term, "0123456789-.") || isDollars && starts(dollars, "0123456789.")
}

// value returns the amount in a field of a column.
func (c cost) value(field string) (int64, error) {
	return grammar.ParseAmount(c.limit, strings.TrimSpace(field), 0)
}

// String returns the cost in the form that parseCost reads.
func (c cost) String() string {
	terms := strings.Join(c.columns, "+")
	switch {
	case terms == "":
		return c.limit + "=" + grammar.FormatAmount(c.limit, c.fixed)
	case c.fixed > 0:
		return c.limit + "=" + terms + "+" + grammar.FormatAmount(c.limit, c.fixed)
	default:
		return c.limit + "=" + terms
	}
}
