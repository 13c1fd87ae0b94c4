package cli

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

// maxTokens is the largest number of tokens that a limit or an amount may have.
const maxTokens = math.MaxInt64 / 1000

// parseLimit parses NAME=CAPACITY[:REFILL]/PERIOD. Without REFILL as much flows in per period as the limit holds. What
// names are allowed is for the SDK to say.
func parseLimit(text string) (zlimit.Limit, error) {
	name, rest, ok := cut(text, "=")
	amounts, period, periodOK := cut(rest, "/")
	if !ok || !periodOK || name == "" {
		return zlimit.Limit{}, usagef("limit %q: must be NAME=CAPACITY[:REFILL]/PERIOD, such as tpm=400000/min", text)
	}
	capacity, refill, hasRefill := cut(amounts, ":")
	l := zlimit.Limit{Name: name}
	var err error
	if l.Capacity, err = parseTokens(capacity, 1); err != nil {
		return zlimit.Limit{}, usagef("limit %q: capacity %v", text, err)
	}
	l.RefillAmount = l.Capacity
	if hasRefill {
		if l.RefillAmount, err = parseTokens(refill, 1); err != nil {
			return zlimit.Limit{}, usagef("limit %q: refill %v", text, err)
		}
	}
	if l.RefillPeriod, err = parsePeriod(period); err != nil {
		return zlimit.Limit{}, usagef("limit %q: %v", text, err)
	}
	return l, nil
}

// cut divides a text at the first separator, without the white space around the parts.
func cut(text, separator string) (before, after string, found bool) {
	before, after, found = strings.Cut(text, separator)
	return strings.TrimSpace(before), strings.TrimSpace(after), found
}

// periods are the names of periods. The first of each length is the one that is written.
var periods = []struct {
	name   string
	length time.Duration
}{
	{"s", time.Second},
	{"sec", time.Second},
	{"second", time.Second},
	{"min", time.Minute},
	{"minute", time.Minute},
	{"h", time.Hour},
	{"hour", time.Hour},
	{"d", 24 * time.Hour},
	{"day", 24 * time.Hour},
}

// parsePeriod parses the name of a period, or a Go duration of whole milliseconds.
func parsePeriod(text string) (time.Duration, error) {
	for _, p := range periods {
		if p.name == text {
			return p.length, nil
		}
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 || d%time.Millisecond != 0 {
		return 0, fmt.Errorf("period %q must be s, min, h, d or a duration of whole milliseconds such as 90s or 1h30m", text)
	}
	return d, nil
}

// formatPeriod returns a period in the form that parsePeriod reads.
func formatPeriod(d time.Duration) string {
	for _, p := range periods {
		if p.length == d {
			return p.name
		}
	}
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// formatRefill returns what flows into a limit, as CAPACITY:REFILL/PERIOD has it after the colon.
func formatRefill(l zlimit.Limit) string {
	return grouped(l.RefillAmount) + "/" + formatPeriod(l.RefillPeriod)
}

// formatLimit returns a limit in the shortest form that parseLimit reads.
func formatLimit(l zlimit.Limit) string {
	refill := ""
	if l.RefillAmount != l.Capacity {
		refill = fmt.Sprintf(":%d", l.RefillAmount)
	}
	return fmt.Sprintf("%s=%d%s/%s", l.Name, l.Capacity, refill, formatPeriod(l.RefillPeriod))
}

// parseTokens parses a number of tokens in decimal digits.
func parseTokens(text string, least int64) (int64, error) {
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil || int64(n) < least || n > maxTokens {
		return 0, fmt.Errorf("%q must be a whole number from %d to %d", text, least, int64(maxTokens))
	}
	return int64(n), nil
}

// parseLimits parses the values of a flag.
func parseLimits(texts []string) ([]zlimit.Limit, error) {
	var limits []zlimit.Limit
	for _, text := range texts {
		l, err := parseLimit(text)
		if err != nil {
			return nil, err
		}
		limits = append(limits, l)
	}
	return limits, nil
}

// parseAmounts parses values of the form NAME=N, each name once.
func parseAmounts(texts []string) (zlimit.Amounts, error) {
	amounts := zlimit.Amounts{}
	for _, text := range texts {
		name, number, ok := cut(text, "=")
		if !ok || name == "" {
			return nil, usagef("consume %q: must be NAME=N, such as tpm=1500", text)
		}
		n, err := parseTokens(number, 0)
		if err != nil {
			return nil, usagef("consume %q: %v", text, err)
		}
		if _, twice := amounts[name]; twice {
			return nil, usagef("consume %q: %s is there twice", text, name)
		}
		amounts[name] = n
	}
	return amounts, nil
}
