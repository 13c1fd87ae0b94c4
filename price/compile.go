package price

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/big"
	"math/bits"
	"slices"
)

// A compiled model has its rates as integers, for each service and length of prompts.
type compiled struct {
	usual    lengths
	services map[string]lengths
}

// lengths are the rates of one service: those of short prompts, and those of long ones by falling length.
type lengths struct {
	short compiledRates
	long  []compiledTier
}

type compiledTier struct {
	above int64
	rates compiledRates
}

// compiledRates are nano-dollars for a unit of each class, as numerators over one denominator.
type compiledRates struct {
	numerators  [classes]uint64
	denominator uint64
}

// maxNumerator keeps the sum of a call below 2^127: each class adds less than 2^60 · 2^63.
const maxNumerator = 1 << 60

func compile(m *Model) (*compiled, error) {
	if err := m.validate(); err != nil {
		return nil, err
	}
	usual, err := compileLengths(m, Service{})
	if err != nil {
		return nil, err
	}
	c := &compiled{usual: usual, services: make(map[string]lengths, len(m.Services))}
	for name, s := range m.Services {
		if c.services[name], err = compileLengths(m, s); err != nil {
			return nil, fmt.Errorf("service %q: %w", name, err)
		}
	}
	return c, nil
}

// compileLengths returns the rates of a service. A service's own rates hold for prompts of any length. They come before
// those of a tier, and both before the rates of usual calls.
func compileLengths(m *Model, s Service) (l lengths, err error) {
	if l.short, err = compileRates(merged(m.Rates, s)); err != nil {
		return l, err
	}
	for _, tier := range m.Long {
		rates := maps.Clone(m.Rates)
		maps.Copy(rates, tier.Rates)
		r, err := compileRates(merged(rates, s))
		if err != nil {
			return l, fmt.Errorf("long prompts above %d tokens: %w", tier.Above, err)
		}
		l.long = append(l.long, compiledTier{tier.Above, r})
	}
	slices.SortFunc(l.long, func(a, b compiledTier) int { return cmp.Compare(b.above, a.above) })
	return l, nil
}

// merged returns the rates of a service, where those of usual calls are given.
func merged(usual Rates, s Service) Rates {
	rates := make(Rates, len(usual))
	for class, r := range usual {
		if s.Factor != nil {
			r = new(big.Rat).Mul(r, s.Factor)
		}
		rates[class] = r
	}
	maps.Copy(rates, s.Rates)
	return rates
}

// compileRates turns dollars into nano-dollars over the least common denominator.
func compileRates(rates Rates) (c compiledRates, err error) {
	nano, common := make([]*big.Rat, classes), big.NewInt(1)
	for class := range classes {
		r := rates.of(class)
		if r.Sign() < 0 || r.Cmp(big.NewRat(1000, 1)) >= 0 {
			return c, fmt.Errorf("the rate of %s is %s dollars: must be 0 or more, and less than 1000", class, r.RatString())
		}
		nano[class] = new(big.Rat).Mul(r, big.NewRat(int64(Dollar), 1))
		gcd := new(big.Int).GCD(nil, nil, common, nano[class].Denom())
		common.Mul(common, new(big.Int).Quo(nano[class].Denom(), gcd))
	}
	for class, r := range nano {
		n := new(big.Int).Mul(r.Num(), new(big.Int).Quo(common, r.Denom()))
		if !common.IsUint64() || !n.IsUint64() || n.Uint64() >= maxNumerator {
			return c, fmt.Errorf("the rate of %s has too many digits beside those of other classes", Class(class))
		}
		c.numerators[class] = n.Uint64()
	}
	c.denominator = common.Uint64()
	return c, nil
}

// of returns the rate of a class: its own, or that of the wider class, or 0.
func (r Rates) of(class Class) *big.Rat {
	for {
		if own := r[class]; own != nil {
			return own
		}
		wide, ok := wider[class]
		if !ok {
			return new(big.Rat)
		}
		class = wide
	}
}

// of returns the rates of a call.
func (c *compiled) of(service string, u *Usage) *compiledRates {
	l, ok := c.services[service]
	if !ok {
		l = c.usual
	}
	prompt := uint64(0)
	for _, class := range promptClasses {
		prompt += uint64(u[class])
	}
	for i := range l.long {
		if prompt > uint64(l.long[i].above) {
			return &l.long[i].rates
		}
	}
	return &l.short
}

// cost returns the price of units, and false for a price beyond an amount.
func (c *compiledRates) cost(u *Usage) (NanoDollars, bool) {
	var high, low uint64
	for class, n := range u {
		h, l := bits.Mul64(c.numerators[class], uint64(n))
		var carry uint64
		low, carry = bits.Add64(low, l, 0)
		high, _ = bits.Add64(high, h, carry)
	}
	if high >= c.denominator {
		return 0, false
	}
	cost, rest := bits.Div64(high, low, c.denominator)
	if rest > 0 {
		cost++
	}
	return NanoDollars(cost), cost <= math.MaxInt64 //nolint:gosec // the bound is checked
}
