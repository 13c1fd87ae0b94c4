package grammar

import (
	"fmt"
	"strconv"
	"strings"
)

// Limits in money count nano-dollars. Text has them in dollars: all amounts of a limit of the name Money, and those after a dollar sign.
const (
	Money = "usd"
	Nanos = 1_000_000_000 // nano-dollars in a dollar
)

// nanoDigits is the number of decimal places of a dollar that can be counted.
const nanoDigits = 9

// ParseAmount parses an amount of a limit: a number of tokens, or of dollars where the limit is in money.
func ParseAmount(limit, text string, least int64) (int64, error) {
	dollars, signed := strings.CutPrefix(text, "$")
	if limit != Money && !signed {
		return ParseTokens(text, least)
	}
	whole, cents, hasCents := strings.Cut(dollars, ".")
	n, err := ParseTokens(whole, 0)
	if err != nil || n > MaxTokens/Nanos || hasCents && (len(cents) == 0 || len(cents) > nanoDigits || multiples[whole[len(whole)-1]] > 0) {
		return 0, notDollars(text, least)
	}
	n *= Nanos
	if hasCents {
		part, err := strconv.ParseUint(cents+strings.Repeat("0", nanoDigits-len(cents)), 10, 63)
		if err != nil {
			return 0, notDollars(text, least)
		}
		n += int64(part)
	}
	if n < least || n > MaxTokens {
		return 0, notDollars(text, least)
	}
	return n, nil
}

func notDollars(text string, least int64) error {
	return fmt.Errorf("%q must be dollars from %s to %d, with at most %d decimal places", text, FormatAmount(Money, least), int64(MaxTokens/Nanos), nanoDigits)
}

// FormatAmount returns an amount of a limit in the form that ParseAmount reads.
func FormatAmount(limit string, n int64) string {
	if limit != Money {
		return strconv.FormatInt(n, 10)
	}
	return decimal(n, nanoDigits)
}

// AmountText returns an amount of a limit for people: a number of tokens, or dollars if the limit is in money, such as $12.5.
func AmountText(limit string, n int64) string { return withDollar(limit, FormatAmount(limit, n)) }

// ThousandthsText is AmountText for an amount that is counted in thousandths of a token.
func ThousandthsText(limit string, n int64) string {
	return withDollar(limit, FormatThousandths(limit, n))
}

// withDollar writes the sign of the currency in front of a number, if the limit is in money.
func withDollar(limit, text string) string {
	if limit != Money {
		return text
	}
	if number, negative := strings.CutPrefix(text, "-"); negative {
		return "-$" + number
	}
	return "$" + text
}

// FormatThousandths returns an amount of a limit that is counted in thousandths of a token: tokens, or dollars where the
// limit is in money. It is exact, without trailing zeros.
func FormatThousandths(limit string, n int64) string {
	if limit != Money {
		return decimal(n, thousandthDigits)
	}
	return decimal(n, nanoDigits+thousandthDigits)
}

const thousandthDigits = 3

// decimal returns n with a point before its last places, without trailing zeros.
func decimal(n int64, places int) string {
	sign, digits := "", strconv.FormatUint(uint64(n), 10)
	if n < 0 {
		sign, digits = "-", strconv.FormatUint(-uint64(n), 10)
	}
	if short := places + 1 - len(digits); short > 0 {
		digits = strings.Repeat("0", short) + digits
	}
	point := len(digits) - places
	return sign + strings.TrimSuffix(strings.TrimRight(digits[:point]+"."+digits[point:], "0"), ".")
}
