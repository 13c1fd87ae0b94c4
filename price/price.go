// Package price computes what calls of models cost, exactly.
//
// A [Table] has the prices of models, from an application's own list or from LiteLLM's, see [ReadLiteLLM]. The package
// has no prices of its own. Prices are rational numbers, sums are integers, and a cost is rounded up once: to the next
// nano-dollar. With a limit in nano-dollars, [github.com/zlimit/zlimit-go/llm.WithPrices] charges calls by their cost.
package price

import (
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"
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
	Input             Class = iota // tokens of the prompt that are in no other class
	CacheRead                      // tokens of the prompt that came from a cache
	CacheWrite                     // tokens of the prompt that were written to a cache
	CacheWriteHour                 // tokens of the prompt written to a cache that keeps them for an hour
	AudioInput                     // tokens of sound in the prompt
	Output                         // tokens of the answer that are in no other class
	Reasoning                      // tokens of the answer that the model used to think
	AudioOutput                    // tokens of sound in the answer
	Request                        // calls
	Search                         // searches of the web that a tool of the provider made
	AudioCacheRead                 // tokens of sound in the prompt that came from a cache
	ImageInput                     // tokens of pictures in the prompt
	ImageOutput                    // tokens of pictures in the answer
	ImageCacheRead                 // tokens of pictures in the prompt that came from a cache
	CacheWrite12Hours              // tokens of the prompt written to a cache that keeps them for twelve hours
	VideoInput                     // tokens of videos in the prompt
	VideoOutput                    // tokens of videos in the answer
	classes
)

var classNames = [classes]string{
	"input", "cache read", "cache write", "cache write for an hour", "audio input", "output", "reasoning", "audio output", "request", "search",
	"audio cache read", "image input", "image output", "image cache read", "cache write for twelve hours", "video input", "video output",
}

// Classes returns all classes, in their order.
func Classes() []Class {
	all := make([]Class, classes)
	for i := range all {
		all[i] = Class(i)
	}
	return all
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
	CacheRead: Input, CacheWrite: Input, CacheWriteHour: CacheWrite, CacheWrite12Hours: CacheWriteHour,
	AudioInput: Input, AudioCacheRead: CacheRead, ImageInput: Input, ImageCacheRead: CacheRead, VideoInput: Input,
	Reasoning: Output, AudioOutput: Output, ImageOutput: Output, VideoOutput: Output,
}

// promptClasses are the classes whose sum is the length of a prompt.
var promptClasses = []Class{Input, CacheRead, CacheWrite, CacheWriteHour, CacheWrite12Hours, AudioInput, AudioCacheRead, ImageInput, ImageCacheRead, VideoInput}

// Usage counts the units of a call, by class: Usage{Input: 1200, Output: 80}.
type Usage [classes]int64

// Rates are the dollars that one unit of each class costs, such as [PerMillion] returns. A class without a rate costs
// as much as the wider one: a cached token as one of the input, one of thinking as one of the output. Requests and
// searches without a rate are free.
type Rates map[Class]*big.Rat

// PerMillion returns the dollars of one unit from the price of a million, as price lists quote it: PerMillion("2.50"). It panics if the
// text is not a decimal number; [big.Rat] has constructors for numbers that are read.
func PerMillion(dollars string) *big.Rat {
	r, ok := new(big.Rat).SetString(dollars)
	if !ok {
		panic("price: " + strconv.Quote(dollars) + " is no number of dollars")
	}
	return r.Quo(r, big.NewRat(1_000_000, 1))
}

// A Model has the prices of one model. What it says of the length of a prompt, the class of service, the hour, the speed
// and the region of a call holds together: a batch with a long prompt in a region has the rates of a batch with a long
// prompt, times the factor of the region.
type Model struct {
	// Rates are for usual calls. Input and Output must be there.
	Rates Rates
	// Long are the rates of calls with long prompts, which then hold for the whole call.
	Long []Tier
	// Services are the rates of classes of service, by the name that answers have for them, such as "flex",
	// "priority" or "batch". A service that is not there costs as a usual call, and "fast" as "priority", which OpenAI has called so since July
	// 2026.
	Services map[string]Service
	// Hours have other rates at some hours of the week. The first of them that a call is in holds.
	Hours []Hours
	// Speeds are the factors of speeds, such as 2 for "fast". A speed that is not there costs as the service of its name, if
	// the call has no other service, or as the usual speed.
	Speeds map[string]*big.Rat
	// Regions are the factors of the regions that process a call, such as 11/10 for "us". The factor of [AnyRegion] is
	// for every region that is not there. Factors of speeds and regions multiply what tokens cost, not requests or searches.
	Regions map[string]*big.Rat
}

// AnyRegion stands in [Model.Regions] for every region that has no factor of its own, except calls that are processed anywhere: without a
// region, or in "global".
const AnyRegion = "*"

// A Tier has the rates of calls whose prompt is longer than Above tokens, cached ones included. A class without a rate
// costs as much as in a shorter call.
type Tier struct {
	Above int64
	Rates Rates
}

// A Service has the rates of a class of service, which hold for prompts of any length and at any hour. A class without a
// rate costs Factor times its price in a usual call with as long a prompt at that hour.
type Service struct {
	Rates  Rates
	Factor *big.Rat // such as 1/2 for batches; nil for 1
	Long   []Tier   // rates of the service for long prompts, which come before Rates
}

// Hours have the rates of some hours of the week. A class without a rate costs as much as at other hours.
type Hours struct {
	Windows []Window
	Rates   Rates
	Long    []Tier // rates of these hours for long prompts, which come before Rates
}

// A Window is a time of some days, in UTC. It has From, and not Until. Until midnight is 0 or 24 hours. A window that ends
// before it begins goes on after midnight, also of a day that is not among the weekdays before it: the weekday is that of
// the call. One that ends when it begins has the whole day.
type Window struct {
	Weekdays    []time.Weekday // none for every day
	Zone        *time.Location // of the weekdays; nil for UTC
	From, Until time.Duration  // since midnight in UTC
}

// A Table has the prices of models. It is made by [NewTable], does not change, and is safe for concurrent use.
type Table struct {
	models map[string]*compiled
}

// NewTable returns a table of models by name. A missing, negative or too large rate is an error, with model, class and
// rule. A unit costs less than a thousand dollars. Rates are exact to at least 28 decimal places of a dollar.
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

// A Call says what the price of a call depends on beside its usage.
type Call struct {
	Model   string
	Service string    // class of service that was used; "" for the usual one
	Speed   string    // such as "fast"; "" for the usual one
	Region  string    // that processed the call; "" for any
	Time    time.Time // that decides on [Model.Hours]; the zero time for hours without rates of their own
}

// ErrOverflow is in the error for a call whose price is beyond nine billion dollars.
var ErrOverflow = errors.New("more than an amount can hold")

// Cost returns the price of a call, rounded up to the next nano-dollar. The service is the class of service that was
// used; "" is the usual one. It is [Table.CostOf] for a call at the usual hour and speed, in any region.
func (t *Table) Cost(model, service string, u Usage) (NanoDollars, error) {
	return t.CostOf(Call{Model: model, Service: service}, u)
}

// CostOf returns the price of a call, rounded up to the next nano-dollar. It returns an error for a model missing from the
// table, a negative count, and a cost beyond nine billion dollars, see [ErrOverflow]. It allocates nothing, unless the rates of the model have
// more than 18 digits beside each other.
func (t *Table) CostOf(call Call, u Usage) (NanoDollars, error) {
	c := t.models[call.Model]
	if c == nil {
		return 0, fmt.Errorf("price: no prices for model %q", call.Model)
	}
	for class, n := range u {
		if n < 0 {
			return 0, fmt.Errorf("price: %d units of %s: must not be negative", n, Class(class))
		}
	}
	cost, ok := c.of(&call, &u).cost(&u)
	if !ok {
		return 0, fmt.Errorf("price: a call of model %q costs %w", call.Model, ErrOverflow)
	}
	return cost, nil
}

// Rate returns the dollars of one unit of a class in a call with the given number of prompt tokens. It returns an error for a model
// missing from the table.
func (t *Table) Rate(call Call, prompt int64, class Class) (*big.Rat, error) {
	c := t.models[call.Model]
	if c == nil {
		return nil, fmt.Errorf("price: no prices for model %q", call.Model)
	}
	if class >= classes {
		return nil, fmt.Errorf("price: %s is not known", class)
	}
	rates := c.of(&call, &Usage{Input: max(prompt, 0)})
	n := new(big.Int).SetUint64(rates.numerators[class])
	if rates.wide != nil {
		n = &rates.wide[class]
	}
	denominator := new(big.Int).SetUint64(rates.denominator)
	return new(big.Rat).SetFrac(n, denominator.Mul(denominator, big.NewInt(int64(Dollar)))), nil
}

// Timed reports whether the price of a model depends on the hour of the call.
func (t *Table) Timed(model string) bool {
	c := t.models[model]
	return c != nil && len(c.hours) > 0
}

// validate checks what every model needs.
func (m *Model) validate() error {
	for _, class := range []Class{Input, Output} {
		if m.Rates[class] == nil {
			return fmt.Errorf("the rate of %s is missing", class)
		}
	}
	if err := validateTiers(m.Long); err != nil {
		return err
	}
	for name, s := range m.Services {
		if name == "" {
			return fmt.Errorf("a service has no name")
		}
		if s.Factor != nil && s.Factor.Sign() < 0 {
			return fmt.Errorf("service %q: the factor must not be negative", name)
		}
		if err := validateTiers(s.Long); err != nil {
			return fmt.Errorf("service %q: %w", name, err)
		}
	}
	for i, h := range m.Hours {
		if err := h.validate(); err != nil {
			return fmt.Errorf("hours %d: %w", i+1, err)
		}
	}
	for of, factors := range map[string]map[string]*big.Rat{"speed": m.Speeds, "region": m.Regions} {
		for name, factor := range factors {
			if name == "" || factor == nil || factor.Sign() < 0 {
				return fmt.Errorf("%s %q: must have a name, and a factor that is not negative", of, name)
			}
		}
	}
	return nil
}

func validateTiers(tiers []Tier) error {
	for i, tier := range tiers {
		if tier.Above < 1 || slices.ContainsFunc(tiers[:i], func(t Tier) bool { return t.Above == tier.Above }) {
			return fmt.Errorf("long prompts above %d tokens: must be above 0, and be given once", tier.Above)
		}
	}
	return nil
}

const day = 24 * time.Hour

func (h *Hours) validate() error {
	for i, w := range h.Windows {
		if w.From < 0 || w.From >= day || w.Until < 0 || w.Until > day {
			return fmt.Errorf("window %d: from %v until %v: must be within a day", i+1, w.From, w.Until)
		}
		if slices.ContainsFunc(w.Weekdays, func(d time.Weekday) bool { return d < time.Sunday || d > time.Saturday }) {
			return fmt.Errorf("window %d: weekdays %v: must be from Sunday to Saturday", i+1, w.Weekdays)
		}
	}
	return validateTiers(h.Long)
}
