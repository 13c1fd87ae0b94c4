package cli

import (
	"github.com/zlimit/zlimit-go/internal/grammar"
	"github.com/zlimit/zlimit-go/zlimit"
)

// maxTokens is the largest number of tokens that a limit or an amount may have.
const maxTokens = grammar.MaxTokens

// parseLimit parses a limit. The SDK decides which names are allowed.
func parseLimit(text string) (zlimit.Limit, error) {
	l, err := grammar.ParseLimit(text)
	if err != nil {
		return zlimit.Limit{}, usagef("limit %q: %v", text, err)
	}
	return zlimit.Limit{Name: l.Name, Capacity: l.Capacity, RefillAmount: l.Refill, RefillPeriod: l.Period}, nil
}

// formatRefill returns what flows into a limit, as CAPACITY:REFILL/PERIOD has it after the colon.
func formatRefill(l zlimit.Limit) string {
	return grouped(l.RefillAmount) + "/" + grammar.FormatPeriod(l.RefillPeriod)
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
		name, number, ok := grammar.Cut(text, "=")
		if !ok || name == "" {
			return nil, usagef("consume %q: must be NAME=N, such as tpm=1500", text)
		}
		n, err := grammar.ParseTokens(number, 0)
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
