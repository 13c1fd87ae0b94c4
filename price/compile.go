package price

import (
	"fmt"
	"iter"
	"maps"
	"math"
	"math/big"
	"math/bits"
	"slices"
	"time"
)

// A compiled model has its rates as integers, for each service, hour, speed and region, and each length of prompts. A
// service, speed or region that is not there has the index 0, that of the usual one.
type compiled struct {
	services, speeds, regions map[string]int
	hours                     []Hours
	rates                     []lengths // by the index of variant
}

// lengths are the rates of one variant: for short prompts, and for long ones by falling length.
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
	wide        *[classes]big.Int // in place of numerators, where one of them is too large
}

// maxNumerator keeps the sum of a call below 2^128: each of 17 classes adds less than 2^60 · 2^63.
const maxNumerator = 1 << 60

// indexes numbers the names of a dimension from 1, in their order.
func indexes[V any](of map[string]V) map[string]int {
	at := make(map[string]int, len(of))
	for i, name := range slices.Sorted(maps.Keys(of)) {
		at[name] = i + 1
	}
	return at
}

// variant returns the index of rates.
func (c *compiled) variant(service, hours, speed, region int) int {
	return ((service*(len(c.hours)+1)+hours)*(len(c.speeds)+1)+speed)*(len(c.regions)+1) + region
}

func compile(m *Model) (*compiled, error) {
	if err := m.validate(); err != nil {
		return nil, err
	}
	c := &compiled{services: indexes(m.Services), speeds: indexes(m.Speeds), regions: indexes(m.Regions), hours: m.Hours}
	c.rates = make([]lengths, (len(c.services)+1)*(len(c.hours)+1)*(len(c.speeds)+1)*(len(c.regions)+1))
	one := big.NewRat(1, 1)
	for service, s := range withUsual(c.services, m.Services, Service{}) {
		for hours := range len(c.hours) + 1 {
			for speed, fast := range withUsual(c.speeds, m.Speeds, one) {
				for region, far := range withUsual(c.regions, m.Regions, one) {
					v := variant{m: m, service: s, factor: new(big.Rat).Mul(fast, far)}
					if hours > 0 {
						v.hours = c.hours[hours-1]
					}
					var err error
					if c.rates[c.variant(service, hours, speed, region)], err = v.compile(); err != nil {
						return nil, c.named(service, hours, speed, region, err)
					}
				}
			}
		}
	}
	return c, nil
}

// withUsual yields the values of a dimension with their indexes, the usual one first.
func withUsual[V any](at map[string]int, of map[string]V, usual V) iter.Seq2[int, V] {
	return func(yield func(int, V) bool) {
		if !yield(0, usual) {
			return
		}
		for _, name := range slices.Sorted(maps.Keys(of)) {
			if !yield(at[name], of[name]) {
				return
			}
		}
	}
}

// named returns an error with what it is about.
func (c *compiled) named(service, hours, speed, region int, err error) error {
	for _, d := range []struct {
		kind string
		at   map[string]int
		i    int
	}{{"region", c.regions, region}, {"speed", c.speeds, speed}, {"service", c.services, service}} {
		for name, i := range d.at {
			if i == d.i {
				err = fmt.Errorf("%s %q: %w", d.kind, name, err)
			}
		}
	}
	if hours > 0 {
		err = fmt.Errorf("hours %d: %w", hours, err)
	}
	return err
}

// A variant is a model with a service, some hours, and the factor of speed and region.
type variant struct {
	m       *Model
	service Service
	hours   Hours
	factor  *big.Rat
}

// compile returns the rates of the variant, for each length that one of its parts knows.
func (v *variant) compile() (l lengths, err error) {
	if l.short, err = compileRates(v.at(0)); err != nil {
		return l, err
	}
	above := map[int64]bool{}
	for _, tiers := range [][]Tier{v.m.Long, v.hours.Long, v.service.Long} {
		for _, tier := range tiers {
			above[tier.Above] = true
		}
	}
	for _, n := range slices.Backward(slices.Sorted(maps.Keys(above))) {
		r, err := compileRates(v.at(n))
		if err != nil {
			return l, fmt.Errorf("long prompts above %d tokens: %w", n, err)
		}
		l.long = append(l.long, compiledTier{n, r})
	}
	return l, nil
}

// at returns the rates for prompts above a length. Rates of a service take precedence over rates of hours, and these over usual ones;
// within each of them, rates of long prompts come first.
func (v *variant) at(above int64) Rates {
	rates := maps.Clone(v.m.Rates)
	maps.Copy(rates, tierOf(v.m.Long, above))
	maps.Copy(rates, v.hours.Rates)
	maps.Copy(rates, tierOf(v.hours.Long, above))
	if v.service.Factor != nil {
		for class, r := range rates {
			rates[class] = new(big.Rat).Mul(r, v.service.Factor)
		}
	}
	maps.Copy(rates, v.service.Rates)
	maps.Copy(rates, tierOf(v.service.Long, above))
	for class, r := range rates {
		if class != Request && class != Search {
			rates[class] = new(big.Rat).Mul(r, v.factor)
		}
	}
	return rates
}

// tierOf returns the rates of the longest tier that a prompt above a length is in; nil for none.
func tierOf(tiers []Tier, above int64) (rates Rates) {
	longest := int64(0)
	for _, tier := range tiers {
		if tier.Above <= above && tier.Above > longest {
			longest, rates = tier.Above, tier.Rates
		}
	}
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
	var wide [classes]big.Int
	for class, r := range nano {
		if !common.IsUint64() {
			return c, fmt.Errorf("the rate of %s has too many digits to be combined with the rates of other classes", Class(class))
		}
		n := wide[class].Mul(r.Num(), new(big.Int).Quo(common, r.Denom()))
		if !n.IsUint64() || n.Uint64() >= maxNumerator {
			c.wide = &wide
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
func (c *compiled) of(call *Call, u *Usage) *compiledRates {
	hours := 0
	if len(c.hours) > 0 && !call.Time.IsZero() {
		hours = 1 + slices.IndexFunc(c.hours, func(h Hours) bool { return h.Have(call.Time) })
	}
	region, ok := c.regions[call.Region]
	if !ok && call.Region != "" && call.Region != "global" {
		region = c.regions[AnyRegion]
	}
	service := c.service(call.Service)
	if service == 0 && c.speeds[call.Speed] == 0 {
		service = c.services[call.Speed]
	}
	l := &c.rates[c.variant(service, hours, c.speeds[call.Speed], region)]
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

// service returns the index of a class of service. OpenAI has two names for one of them.
func (c *compiled) service(name string) int {
	if service, ok := c.services[name]; ok || name != "fast" {
		return service
	}
	return c.services["priority"]
}

// Have reports whether a time is within the hours.
func (h *Hours) Have(t time.Time) bool {
	t = t.UTC()
	since := t.Sub(t.Truncate(day))
	return slices.ContainsFunc(h.Windows, func(w Window) bool {
		if len(w.Weekdays) > 0 {
			local := t
			if w.Zone != nil {
				local = t.In(w.Zone)
			}
			if !slices.Contains(w.Weekdays, local.Weekday()) {
				return false
			}
		}
		if w.From < w.Until {
			return w.From <= since && since < w.Until
		}
		return since >= w.From || since < w.Until
	})
}

// cost returns the price of units, and false for a price beyond an amount.
func (c *compiledRates) cost(u *Usage) (NanoDollars, bool) {
	if c.wide != nil {
		return c.wideCost(u)
	}
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

// wideCost is cost with numerators of any size. It allocates.
func (c *compiledRates) wideCost(u *Usage) (NanoDollars, bool) {
	sum := new(big.Int)
	for class, n := range u {
		sum.Add(sum, new(big.Int).Mul(&c.wide[class], big.NewInt(n)))
	}
	cost, rest := sum.QuoRem(sum, new(big.Int).SetUint64(c.denominator), new(big.Int))
	if rest.Sign() > 0 {
		cost.Add(cost, big.NewInt(1))
	}
	return NanoDollars(cost.Int64()), cost.IsInt64()
}
