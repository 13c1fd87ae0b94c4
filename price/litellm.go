package price

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/big"
	"slices"
)

// A List is what [ReadLiteLLM] has read of a price list.
type List struct {
	// Models are those with prices for tokens. The map may be changed before [NewTable] is called with it, to add models
	// or the names of deployments.
	Models map[string]Model
	// Skipped is what was left out, by model and member. A model of the list is in Models, or here without a member.
	Skipped []Skipped
	Entries int // of the list, without the one that explains the members
	Members int // that are read as prices
}

// Skipped is an entry of a price list, or a member of an entry, that is left out.
type Skipped struct {
	Model  string `json:"model"`
	Member string `json:"member,omitempty"` // "" where the whole entry is left out
	Reason string `json:"reason"`
}

// String returns the model, the member and the reason.
func (s Skipped) String() string {
	if s.Member == "" {
		return fmt.Sprintf("model %q: %s", s.Model, s.Reason)
	}
	return fmt.Sprintf("model %q: %s: %s", s.Model, s.Member, s.Reason)
}

// ReadLiteLLM reads LiteLLM's price list, model_prices_and_context_window.json, which its repository has. An application
// ships the copy that it has looked at. A number of up to 15 significant digits is exact as it is written. One with more
// is what arithmetic with floats has left, such as 4.2000000000000006e-08, and is rounded to 12 significant digits.
//
// An odd entry costs itself: a member that is not understood is left out, and an entry that then has no prices for
// tokens. Both are in [List].Skipped. Only a text that is no JSON object is an error. Members that are no prices, such as
// the length of the context, are read over.
//
//   - Members that end in _above_200k_tokens and similar, and tiered_pricing, are rates of long prompts. A class that
//     one of the tiers of tiered_pricing leaves out costs as the wider class does there. Elsewhere, a class with a price of its own keeps it in
//     long prompts, as LiteLLM computes. A write for an hour and a picture or sound from a cache are as much dearer there as the wider class of
//     cached tokens is, so that a longer write never costs less than a shorter one.
//   - Members that end in _batches, _flex, _priority, _ultrafast, _balanced or _decisions are rates of a class of service:
//     batch and so on. A class without such a rate, such as one of thinking, is cheaper or dearer by as much as its wider
//     class is. Without a rate for long prompts, the service has its own rate times what long prompts cost more.
//   - off_peak_pricing has the rates of some hours, which hold for other classes and long prompts in the same way.
//   - The factors of regions become [Model.Regions]: us and eu, fedramp, and [AnyRegion] for regional endpoints of Vertex
//     AI. A factor "fast" is that of the speed.
//   - alias_of makes an entry the same as another.
//   - Of several prices of searches, which depend on the size of the result, the highest holds.
//   - A model of embeddings, of moderation or for ranking that has no price for its answers has free ones.
//   - An entry whose tokens are free, and that has a price that is not known, such as a price of pictures, is left out: its calls are not free.
func ReadLiteLLM(r io.Reader) (*List, error) {
	entries, doubled, err := members(json.NewDecoder(r))
	if err != nil {
		return nil, fmt.Errorf("price: LiteLLM's list: %w", err)
	}
	l := &List{Models: make(map[string]Model, len(entries))}
	aliases := map[string]string{}
	for _, name := range doubled {
		l.skip(name, "", "is given again further on, which holds")
	}
	for name, text := range entries {
		if name == "sample_spec" { // explains the members
			continue
		}
		l.Entries++
		e := newEntry()
		if reason := e.read(text); reason != "" {
			l.skip(name, "", reason)
			continue
		}
		for member, reason := range e.skipped {
			l.skip(name, member, reason)
		}
		l.Members += e.counted
		if e.alias != "" && len(e.rates) == 0 {
			aliases[name] = e.alias
			continue
		}
		m, reason := e.model()
		if reason == "" {
			if _, err := compile(&m); err != nil {
				reason = err.Error()
			}
		}
		if reason != "" {
			l.skip(name, "", reason)
			continue
		}
		l.Models[name] = m
	}
	l.resolve(aliases)
	slices.SortFunc(l.Skipped, func(a, b Skipped) int {
		return cmp.Or(cmp.Compare(a.Model, b.Model), cmp.Compare(a.Member, b.Member), cmp.Compare(a.Reason, b.Reason))
	})
	return l, nil
}

// resolve adds the models that are other names of ones in the list.
func (l *List) resolve(aliases map[string]string) {
	for name := range aliases {
		target := name
		for range len(aliases) + 1 { // a circle ends nowhere
			next, is := aliases[target]
			if !is {
				break
			}
			target = next
		}
		m, ok := l.Models[target]
		if _, is := aliases[target]; is || !ok {
			l.skip(name, "", fmt.Sprintf("is an alias of %q, which has no prices here", aliases[name]))
			continue
		}
		l.Models[name] = m
	}
}

func (l *List) skip(model, member, reason string) {
	l.Skipped = append(l.Skipped, Skipped{model, member, reason})
}

// members returns the members of a JSON object, and the names of those that are given more than once. Of these the last one
// is returned.
func members(d *json.Decoder) (all map[string]json.RawMessage, doubled []string, err error) {
	if t, err := d.Token(); err != nil {
		return nil, nil, err
	} else if t != json.Delim('{') {
		return nil, nil, fmt.Errorf("must be an object, not %v", t)
	}
	all = map[string]json.RawMessage{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, nil, err
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, nil, err
		}
		name, _ := t.(string) // as names of members are
		if _, twice := all[name]; twice {
			doubled = append(doubled, name)
		}
		all[name] = value
	}
	_, err = d.Token()
	return all, doubled, err
}

// An entry is a model of the list as far as it is read.
type entry struct {
	rates     map[rateKey]*big.Rat
	odd       map[rateKey]bool // those that are there, and cannot be read
	tiered    []Tier           // of tiered_pricing, by rising length
	hours     []Window
	hourly    Rates
	speeds    map[string]*big.Rat
	regions   map[string]*big.Rat
	mode      string
	inclusive bool
	alias     string
	skipped   map[string]string // reasons by member
	counted   int
	others    string // a price that is not known, and not 0
	services  map[string]bool
}

// A rateKey is what a rate is for.
type rateKey struct {
	class   Class
	service string
	above   int64
}

func newEntry() *entry {
	return &entry{
		rates: map[rateKey]*big.Rat{}, odd: map[rateKey]bool{}, services: map[string]bool{},
		speeds: map[string]*big.Rat{}, regions: map[string]*big.Rat{}, skipped: map[string]string{},
	}
}

// read reads the members of an entry. It returns why none of them can be.
func (e *entry) read(text json.RawMessage) (reason string) {
	all, doubled, err := members(json.NewDecoder(bytes.NewReader(text)))
	if err != nil {
		return err.Error()
	}
	var provider string
	_ = json.Unmarshal(all["litellm_provider"], &provider)
	e.inclusive = provider == "xai" // whose long prompts begin with that length
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if isNull(all[name]) {
			continue
		}
		switch reason := e.take(name, all[name]); reason {
		case "":
			e.counted++
		case noPrice:
		default:
			e.skipped[name] = reason
		}
	}
	for _, name := range doubled {
		if isPrice(name) {
			e.skipped[name] = "is given more than once, and the last one holds"
		}
	}
	return ""
}

// model returns the model of the entry, or why it is none.
func (e *entry) model() (m Model, reason string) {
	rates, tiers := e.usual()
	switch input, output := (rateKey{class: Input}), (rateKey{class: Output}); {
	case rates[Input] == nil && e.odd[input]:
		return m, "its price for input cannot be read"
	case rates[Input] == nil:
		return m, "has no price for tokens of input"
	case rates[Output] == nil && e.odd[output]:
		return m, "its price for output cannot be read"
	case rates[Output] == nil && rates[ImageOutput] != nil:
		rates[Output] = rates[ImageOutput]
	case rates[Output] == nil && !inputOnly[e.mode]:
		return m, "has no price for tokens of output"
	case rates[Output] == nil:
		rates[Output] = new(big.Rat)
	}
	if e.others != "" && e.isFree() {
		return m, "has no price but " + e.others + ", which is not known"
	}
	m = Model{Rates: rates, Long: tiers, Speeds: e.speeds, Regions: e.regions}
	for service := range e.services {
		if m.Services == nil {
			m.Services = map[string]Service{}
		}
		m.Services[service] = e.service(service, rates, tiers)
	}
	if len(e.hours) > 0 {
		fill(e.hourly, rates)
		m.Hours = []Hours{{Windows: e.hours, Rates: e.hourly, Long: scaled(e.hourly, rates, tiers)}}
	}
	return m, ""
}

// isFree reports whether all rates of the entry are 0.
func (e *entry) isFree() bool {
	free := func(r *big.Rat) bool { return r.Sign() == 0 }
	for _, tier := range e.tiered {
		for _, rate := range tier.Rates {
			if !free(rate) {
				return false
			}
		}
	}
	for _, rate := range e.rates {
		if !free(rate) {
			return false
		}
	}
	return true
}

// inputOnly are the modes of models whose answers have no tokens.
var inputOnly = map[string]bool{"embedding": true, "rerank": true, "moderation": true}

// usual returns the rates of usual calls.
func (e *entry) usual() (rates Rates, tiers []Tier) {
	rates, above := Rates{}, map[int64]Rates{}
	for key, rate := range e.rates {
		switch {
		case key.service != "":
		case key.above == 0:
			rates[key.class] = rate
		default:
			if above[key.above] == nil {
				above[key.above] = Rates{}
			}
			above[key.above][key.class] = rate
		}
	}
	if len(e.tiered) > 0 { // which come before other rates
		base := e.tiered[0].Rates
		for class := range rates {
			if base[class] == nil && isToken(class) && base.has(class) {
				delete(rates, class)
			}
		}
		maps.Copy(rates, base)
		clear(above)
		for _, tier := range e.tiered[1:] {
			all := maps.Clone(tier.Rates)
			for class := range rates {
				if all[class] == nil && isToken(class) && all.has(class) {
					all[class] = all.of(class)
				}
			}
			above[tier.Above] = all
		}
	}
	tiers = cumulated(above)
	for _, tier := range tiers {
		raiseCached(tier.Rates, rates)
	}
	return rates, tiers
}

// cachedParts are classes of cached tokens that have a wider class of cached tokens, the wider ones first.
var cachedParts = []Class{CacheWriteHour, CacheWrite12Hours, AudioCacheRead, ImageCacheRead}

// raiseCached adds rates of cached tokens that have a usual one and none for long prompts. They are as much higher as that of the wider class is.
func raiseCached(long, usual Rates) {
	for _, class := range cachedParts {
		if usual[class] == nil || long[class] != nil {
			continue
		}
		if base, raised := usual.of(wider[class]), long.over(usual).of(wider[class]); base.Cmp(raised) != 0 {
			long[class] = multiplied(usual[class], raised, base)
		}
	}
}

// multiplied returns a rate that is higher by as much as another one has been raised from its base. Of a base that is free there is no multiple.
func multiplied(rate, raised, base *big.Rat) *big.Rat {
	if base.Sign() == 0 {
		return greater(rate, raised)
	}
	more := new(big.Rat).Quo(raised, base)
	return rounded(more.Mul(more, rate))
}

// cumulated returns tiers by rising length, each with the rates of the shorter ones if it has none of its own.
func cumulated(above map[int64]Rates) (tiers []Tier) {
	shorter := Rates{}
	for _, n := range slices.Sorted(maps.Keys(above)) {
		shorter = above[n].over(shorter)
		tiers = append(tiers, Tier{n, shorter})
	}
	return tiers
}

// service returns the rates of a class of service. If it has none for long prompts, its own rate is raised as the usual
// one is.
func (e *entry) service(name string, usual Rates, tiers []Tier) Service {
	s := Service{Rates: Rates{}}
	above := map[int64]Rates{}
	for key, rate := range e.rates {
		switch {
		case key.service != name:
		case key.above == 0:
			s.Rates[key.class] = rate
		default:
			if above[key.above] == nil {
				above[key.above] = Rates{}
			}
			above[key.above][key.class] = rate
		}
	}
	fill(s.Rates, usual)
	for _, tier := range scaled(s.Rates, usual, tiers) {
		if above[tier.Above] == nil {
			above[tier.Above] = Rates{}
		}
		for class, rate := range tier.Rates {
			if above[tier.Above][class] == nil {
				above[tier.Above][class] = rate
			}
		}
	}
	s.Long = cumulated(above)
	return s
}

// fill adds rates of classes that have a usual one and none here. They are as much lower or higher than the usual one as that
// of the wider class is.
func fill(own, usual Rates) {
	for _, class := range Classes() {
		if usual[class] == nil || own[class] != nil || !own.has(class) || usual.of(wider[class]).Sign() == 0 {
			continue
		}
		part := new(big.Rat).Quo(own.of(class), usual.of(wider[class]))
		own[class] = rounded(part.Mul(part, usual[class]))
	}
}

// scaled returns rates for long prompts, which are higher than own ones by as much as the tiers are higher than usual ones.
func scaled(own, usual Rates, tiers []Tier) (long []Tier) {
	for _, tier := range tiers {
		rates := Rates{}
		for class, rate := range own {
			base, raised := usual.of(class), tier.Rates.over(usual).of(class)
			if rates[class] = rate; base.Cmp(raised) != 0 {
				rates[class] = multiplied(rate, raised, base)
			}
		}
		long = append(long, Tier{tier.Above, rates})
	}
	return long
}

// over returns the rates, and those below if there are none.
func (r Rates) over(below Rates) Rates {
	all := maps.Clone(below)
	maps.Copy(all, r)
	return all
}

// has reports whether a class has a rate, of its own or of a wider class.
func (r Rates) has(class Class) bool {
	for r[class] == nil {
		wide, ok := wider[class]
		if !ok {
			return false
		}
		class = wide
	}
	return true
}

func greater(a, b *big.Rat) *big.Rat {
	if a.Cmp(b) > 0 {
		return a
	}
	return b
}

func isToken(class Class) bool { return class != Request && class != Search }
