package show

import (
	"math"
	"strconv"
	"strings"

	"github.com/zlimit/zlimit-go/internal/grammar"
	"github.com/zlimit/zlimit-go/zlimit"
)

// Amounts of a limit in money are counted in billionths of a dollar, and shown in dollars: $1,250.5 for people, and
// 1250.5 for programs. Everything that shows an amount of a limit goes through these functions.

// Amount returns an amount of a limit for people: a number of tokens, or dollars where the limit is in money.
func Amount(limit string, n int64) string {
	if limit == grammar.Money {
		return dollars(grammar.FormatAmount(limit, n))
	}
	return Grouped(n)
}

// Quantified is [Amount] with fractions of tokens. Dollars are rounded to billionths.
func Quantified(limit string, q zlimit.Quantity) string {
	if limit == grammar.Money {
		return Amount(limit, q.Tokens())
	}
	return GroupedTokens(q)
}

// Exact is [Quantified] for programs: without groups of digits, dollar sign or rounding.
func Exact(limit string, q zlimit.Quantity) string {
	return grammar.FormatThousandths(limit, int64(q))
}

// Rate returns how much of a limit is taken a second, as [Amount] does.
func Rate(limit string, perSecond float64) string {
	if limit == grammar.Money {
		return Amount(limit, int64(perSecond))
	}
	return Decimal(perSecond)
}

// Scale returns how to write the values of an axis, given its greatest value and the number of steps to it: with the decimal places that
// distinguish steps.
func Scale(limit string, greatest float64, steps int) func(float64) string {
	unit, sign := 1.0, ""
	if limit == grammar.Money {
		unit, sign = grammar.Nanos, "$"
	}
	places := 0
	switch step := greatest / unit / float64(steps); {
	case step <= 0:
		places = 2
	case step < 1:
		places = min(int(math.Ceil(-math.Log10(step)))+1, 12)
	}
	return func(v float64) string {
		shift := math.Pow10(places)
		text := strconv.FormatFloat(math.Round(math.Abs(v)/unit*shift)/shift, 'f', places, 64)
		whole, fraction, _ := strings.Cut(text, ".")
		n, _ := strconv.ParseInt(whole, 10, 64) // digits
		text = sign + Grouped(n)
		if fraction != "" {
			text += "." + fraction
		}
		if v < 0 && strings.ContainsAny(text, "123456789") {
			text = "-" + text
		}
		return text
	}
}

// dollars returns an exact number of dollars for people.
func dollars(exact string) string {
	number, negative := strings.CutPrefix(exact, "-")
	whole, fraction, _ := strings.Cut(number, ".")
	n, _ := strconv.ParseInt(whole, 10, 64) // digits
	text := "$" + Grouped(n)
	if fraction != "" {
		text += "." + fraction
	}
	if negative {
		text = "-" + text
	}
	return text
}
