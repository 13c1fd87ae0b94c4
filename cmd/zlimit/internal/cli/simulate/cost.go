package simulate

import (
	"strconv"
	"strings"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/internal/grammar"
)

// A cost is the consumption of one limit by a row of a trace: a sum of columns and numbers.
type cost struct {
	limit   string
	columns []string // as often as they count
	fixed   int64    // tokens that every row costs
}

// parseCost parses NAME=EXPR, where EXPR is a column, a number, or a sum of them such as ContextTokens+GeneratedTokens.
// A term that starts like a number is one.
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
		case strings.IndexByte("0123456789-.", term[0]) < 0:
			c.columns = append(c.columns, term)
			continue
		}
		n, err := grammar.ParseTokens(term, 0)
		if err != nil {
			return cost{}, shell.Usagef("cost %q: %v", text, err)
		}
		if c.fixed += n; c.fixed > shell.MaxTokens {
			return cost{}, shell.Usagef("cost %q: the numbers must add up to at most %d", text, int64(shell.MaxTokens))
		}
	}
	return c, nil
}

// String returns the cost in the form that parseCost reads.
func (c cost) String() string {
	terms := strings.Join(c.columns, "+")
	switch {
	case terms == "":
		return c.limit + "=" + strconv.FormatInt(c.fixed, 10)
	case c.fixed > 0:
		return c.limit + "=" + terms + "+" + strconv.FormatInt(c.fixed, 10)
	default:
		return c.limit + "=" + terms
	}
}
