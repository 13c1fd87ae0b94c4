package shell

import (
	"github.com/zlimit/zlimit-go/internal/deploy/provision"
	"github.com/zlimit/zlimit-go/internal/grammar"
	"github.com/zlimit/zlimit-go/zlimit"
)

// MaxTokens is the largest number of tokens that a limit or an amount may have.
const MaxTokens = grammar.MaxTokens

// ParseLimit parses a limit. The SDK decides which names are allowed.
func ParseLimit(text string) (zlimit.Limit, error) {
	l, err := grammar.ParseLimit(text)
	if err != nil {
		return zlimit.Limit{}, Usagef("limit %q: %v", text, err)
	}
	return provision.LimitOf(l), nil
}

// ParseLimits parses the values of a flag.
func ParseLimits(texts []string) ([]zlimit.Limit, error) {
	var limits []zlimit.Limit
	for _, text := range texts {
		l, err := ParseLimit(text)
		if err != nil {
			return nil, err
		}
		limits = append(limits, l)
	}
	return limits, nil
}

// ParseCascade parses the cascade policy of a flag.
func ParseCascade(text string) (zlimit.CascadePolicy, error) {
	switch p := zlimit.CascadePolicy(text); {
	case text == "inherit":
		return zlimit.CascadeInherit, nil
	case p == zlimit.CascadeAlways, p == zlimit.CascadeNever:
		return p, nil
	default:
		return p, Usagef("--cascade %q must be always, never or inherit", text)
	}
}

// ParseAmounts parses the values of a flag, of the form NAME=N, each name once.
func ParseAmounts(flag string, texts []string) (zlimit.Amounts, error) {
	amounts := zlimit.Amounts{}
	for _, text := range texts {
		name, number, ok := grammar.Cut(text, "=")
		if !ok || name == "" {
			return nil, Usagef("%s %q: must be NAME=N, such as tpm=1500", flag, text)
		}
		n, err := grammar.ParseAmount(name, number, 0)
		if err != nil {
			return nil, Usagef("%s %q: %v", flag, text, err)
		}
		if _, twice := amounts[name]; twice {
			return nil, Usagef("%s %q: %s is given twice", flag, text, name)
		}
		amounts[name] = n
	}
	return amounts, nil
}
