// Package price tells what calls of models cost, exactly.
//
// A [Table] has the prices of models, from an application's own list or from LiteLLM's, see [ReadLiteLLM]. The package
// has no prices of its own. Prices are rational numbers, sums are integers, and a cost is rounded up once: to the next
// nano-dollar. With a limit in nano-dollars, [github.com/zlimit/zlimit-go/llm.WithPrices] charges calls by their cost.
package price

import (
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
)

// NanoDollars is an amount of money in billionths of a dollar, the unit of a limit that counts money.
type NanoDollars int64

// Dollar is one dollar: a limit of 25 dollars has a capacity of 25*[Dollar].
const Dollar NanoDollars = 1_000_000_000

// String returns the dollars, exact and without trailing zeros, such as 0.0015.
func (n NanoDollars) String() string {
	text := new(big.Rat).SetFrac64(int64(n), int64(Dollar)).FloatString(9)
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
}

// A Class is a kind of unit that has a price.
type Class uint8

// The classes. A token is in one of them.
const (
	Input          Class = iota // tokens of the prompt that are in no other class
	CacheRead                   // tokens of the prompt that came from a cache
	CacheWrite                  // tokens of the prompt that were written to a cache
	CacheWriteHour              // tokens of the prompt written to a cache that keeps them for an hour
	AudioInput                  // tokens of sound in the prompt
	Output                      // tokens of the answer that are in no other class
	Reasoning                   // tokens of the answer that the model used to think
	AudioOutput                 // tokens of sound in the answer
	Request                     // calls
	Search                      // searches of the web that a tool of the provider made
	classes
)

var classNames = [classes]string{
	"input", "cache read", "cache write", "cache write for an hour", "audio input", "output", "reasoning", "audio output", "request", "search",
}

// String returns the name of the class, such as "cache read".
func (c Class) String() string {
	if c >= classes {
		return "class " + strconv.Itoa(int(c))
	}
	return classNames[c]
}

// wider are the classes whose price is taken for a class without one. Requests and searches without a price are free.
var wider = map[Class]Class{
	CacheRead: Input, CacheWrite: Input, CacheWriteHour: CacheWrite, AudioInput: Input, Reasoning: Output, AudioOutput: Output,
}

// promptClasses are the classes whose sum is the length of a prompt.
var promptClasses = []Class{Input, CacheRead, CacheWrite, CacheWriteHour, AudioInput}

// Usage counts the units of a call, by class: Usage{Input: 1200, Output: 80}.
type Usage [classes]int64

// Rates are the dollars that one unit of each class costs, such as those of [PerMillion]. A class without a rate costs
// as much as the wider one: a cached token as one of the input, one of thinking as one of the output. Requests and
// searches without a rate are free.
type Rates map[Class]*big.Rat

// PerMillion returns the dollars of one unit from those of a million, as price lists quote them: PerMillion("2.50").
// It panics if the text is no decimal number; [big.Rat] has constructors for numbers that are read.
func PerMillion(dollars string) *big.Rat {
	r, ok := new(big.Rat).SetString(dollars)
	if !ok {
		panic("price: " + strconv.Quote(dollars) + " is no number of dollars")
	}
	return r.Quo(r, big.NewRat(1_000_000, 1))
}

// A Model has the prices of one model.
type Model struct {
	// Rates are those of usual calls. Input and Output must be there.
	Rates Rates
	// Long are the rates of calls with long prompts, which then hold for the whole call.
	Long []Tier
	// Services are the rates of classes of service, by the name that answers have for them, such as "flex",
	// "priority" or "batch". A service that is not there costs as a usual call.
	Services map[string]Service
}

// A Tier has the rates of calls whose prompt is longer than Above tokens, cached ones included. A class without a rate
// costs as much as in a shorter call.
type Tier struct {
	Above int64
	Rates Rates
}

// A Service has the rates of a class of service, which hold for prompts of any length. A class without a rate costs
// Factor times its price in a usual call with as long a prompt.
type Service struct {
	Rates  Rates
	Factor *big.Rat // such as 1/2 for batches; nil for 1
}

// A Table has the prices of models. It is made by [NewTable], does not change, and is safe for concurrent use.
type Table struct {
	models map[string]*compiled
}

// NewTable returns a table of models by name. A missing, negative or too large rate is an error, with model, class and
// rule. A unit costs less than a thousand dollars, and has at most 18 significant digits.
func NewTable(models map[string]Model) (*Table, error) {
	t := &Table{make(map[string]*compiled, len(models))}
	for name, m := range models {
		c, err := compile(&m)
		if err != nil {
			return nil, fmt.Errorf("price: model %q: %w", name, err)
		}
		t.models[name] = c
	}
	return t, nil
}

// Has reports whether the table has the prices of a model.
func (t *Table) Has(model string) bool { return t.models[model] != nil }

// Cost returns the price of a call, rounded up to the next nano-dollar. The service is the class of service that was
// used; "" is the usual one. It returns an error for a model missing from the table, a negative count, and a cost
// beyond nine billion dollars. It allocates nothing.
func (t *Table) Cost(model, service string, u Usage) (NanoDollars, error) {
	c := t.models[model]
	if c == nil {
		return 0, fmt.Errorf("price: no prices for model %q", model)
	}
	for class, n := range u {
		if n < 0 {
			return 0, fmt.Errorf("price: %d units of %s: must not be negative", n, Class(class))
		}
	}
	cost, ok := c.of(service, &u).cost(&u)
	if !ok {
		return 0, fmt.Errorf("price: a call of model %q costs more than an amount can hold", model)
	}
	return cost, nil
}

// validate checks what every model needs.
func (m *Model) validate() error {
	for _, class := range []Class{Input, Output} {
		if m.Rates[class] == nil {
			return fmt.Errorf("the rate of %s is missing", class)
		}
	}
	for i, tier := range m.Long {
		if tier.Above < 1 || slices.ContainsFunc(m.Long[:i], func(t Tier) bool { return t.Above == tier.Above }) {
			return fmt.Errorf("long prompts above %d tokens: must be above 0, and be given once", tier.Above)
		}
	}
	for name, s := range m.Services {
		if name == "" {
			return fmt.Errorf("a service has no name")
		}
		if s.Factor != nil && s.Factor.Sign() < 0 {
			return fmt.Errorf("service %q: the factor must not be negative", name)
		}
	}
	return nil
}
