package zlimit

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// A Quantity is a number of tokens, counted in thousandths as a [time.Duration] counts nanoseconds: 500 tokens are
// 500*[Token]. Requests take whole tokens, but refills, and the parts of a bucket that is split, are exact to the
// thousandth.
type Quantity int64

// Token is one token.
const Token Quantity = millis

// Tokens returns whole tokens, rounded to the nearest; a half is rounded away from zero.
func (q Quantity) Tokens() int64 {
	whole, rest := int64(q)/millis, int64(q)%millis
	switch {
	case rest >= millis/2:
		whole++
	case rest <= -millis/2:
		whole--
	}
	return whole
}

// Float64 returns the nearest number of tokens.
func (q Quantity) Float64() float64 { return float64(q) / millis }

// String returns the number of tokens, exact and without trailing zeros, such as 12 or -0.5.
func (q Quantity) String() string {
	whole := strconv.FormatInt(int64(q)/millis, 10)
	rest := int64(q) % millis
	if rest == 0 {
		return whole
	}
	if rest < 0 {
		rest = -rest
		if whole == "0" {
			whole = "-0"
		}
	}
	return whole + strings.TrimRight(fmt.Sprintf(".%03d", rest), "0")
}

// MarshalJSON returns the number of tokens, exact.
func (q Quantity) MarshalJSON() ([]byte, error) { return []byte(q.String()), nil }

// UnmarshalJSON takes a number of tokens with at most three decimals, in the form in which [Quantity.MarshalJSON]
// returns it.
func (q *Quantity) UnmarshalJSON(text []byte) error {
	digits, fraction, _ := strings.Cut(string(text), ".")
	n, err := strconv.ParseInt(digits+(fraction + "000")[:max(3, len(fraction))], 10, 64)
	if err != nil || Quantity(n).String() != string(text) {
		return fmt.Errorf("zlimit: a quantity must be a number with at most three decimals, not %s", text)
	}
	*q = Quantity(n)
	return nil
}

// plus returns q + other, saturated.
func (q Quantity) plus(other Quantity) Quantity {
	sum := q + other
	switch {
	case other > 0 && sum < q:
		return math.MaxInt64
	case other < 0 && sum > q:
		return math.MinInt64
	default:
		return sum
	}
}
