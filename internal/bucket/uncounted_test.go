package bucket

import "testing"

// TestUncounted makes plans of demands that are no consumption: of a new item, of an item with the limit and without it, of one that a mixed
// fleet writes, and of shards that pay together. Balances change, and no plan counts anything but its write.
func TestUncounted(t *testing.T) {
	params := []Params{{Name: "a", Capacity: 100_000, RefillAmount: 1000, RefillPeriod: 60_000}, {Name: "b", Capacity: 50_000, RefillAmount: 1000, RefillPeriod: 60_000}}
	amounts := []Amount{{Limit: "a", Tokens: 7000, FromChildren: 3000}, {Limit: "b", Tokens: 2000, FromNarrower: 2000}}
	plain := Demand{Amounts: amounts, Unchecked: true, Settles: true}
	uncounted := plain.Uncounted()
	if plain.rest().uncounted {
		t.Fatal("Uncounted() changed its demand")
	}
	config := &Config{Params: params}
	counts := func(p *Plan) (n int) {
		for _, s := range p.Steps {
			switch s.Kind {
			case Count, Ascribe, Contain, Regard:
				if s.Limit != WriteUnits {
					n++
				}
			case Seed:
				if s.Limit != WriteUnits && s.Values[1] != 0 {
					n++
				}
			default:
			}
		}
		for i := range p.Item.Limits {
			if l := &p.Item.Limits[i]; l.Name != WriteUnits && (l.Consumed != 0 || l.FromChildren() != 0 || l.FromNarrower() != 0 || l.Known() != 0) {
				n++
			}
		}
		return n
	}
	const now = 1_000_000
	var p Plan
	for name, c := range map[string]*Config{"alone": config, "mixed": {Params: params, Mixed: true}} {
		for _, d := range []*Demand{&plain, &uncounted} {
			want := 0
			if d == &plain {
				want = 1
			}
			p.Decide(nil, c, d, now)
			if got := counts(&p); min(got, 1) != want || p.Item.Limits[0].Tokens != 93_000 {
				t.Errorf("%s, a new item: %d counts, want %d; %d left", name, got, want, p.Item.Limits[0].Tokens)
			}
			p.Create(c, &Demand{}, 0, 1, now)
			whole := p.Item
			p.Create(&Config{Params: params[:1]}, &Demand{}, 0, 1, now)
			partial := p.Item
			for _, s := range []*State{&whole, &partial} {
				var next Plan
				next.Decide(s, c, d, now+10)
				if got := counts(&next); !next.Writes() || min(got, 1) != want {
					t.Errorf("%s, an item of %d limits: %d counts, want %d, by %v", name, len(s.Limits), got, want, next.Kind)
				}
			}
		}
	}
	var shards []*State
	for at := range 2 {
		var made Plan
		made.Create(config, &Demand{}, at, 2, now)
		s := made.Item
		shards = append(shards, &s)
	}
	for _, d := range []*Demand{&plain, &uncounted} {
		parts, ok := Spread(func(*State) *Config { return config }, shards, 0, d, now+10)
		total := 0
		for i := range parts {
			total += counts(&parts[i].Plan)
		}
		if !ok || len(parts) == 0 || (total == 0) != (d == &uncounted) {
			t.Errorf("Spread() = %d parts, %t, with %d counts", len(parts), ok, total)
		}
		checked := *d
		checked.Unchecked, checked.Settles = false, false
		parts, ok = config.Gather(shards, &checked, false, now+10)
		total = 0
		for i := range parts {
			total += counts(&parts[i].Plan)
		}
		if !ok || len(parts) == 0 || (total == 0) != (d == &uncounted) {
			t.Errorf("Gather() = %d parts, %t, with %d counts", len(parts), ok, total)
		}
	}
}
