package layout

import (
	"slices"
	"testing"

	"github.com/zlimit/zlimit-go/internal/expr"
)

// TestKeepAsks changes one attribute at a time behind a write of slots that was planned for an item: the write is refused.
func TestKeepAsks(t *testing.T) {
	const he, en, cg = 8, 100, 50
	slot := func(name string, value int64) expr.Attribute { return number("s_slots_"+name, value) }
	held := []expr.Attribute{slot("fr", 5), slot("cp", 10), slot("h0", 2), slot("h1", 3), slot("he", he), slot("tm", 30_000), slot("fn", 7), slot("en", en)}
	free := []expr.Attribute{slot("fr", 10), slot("cp", 10), slot("h0", 0), slot("h1", 0), slot("he", he), slot("tm", 30_000), slot("fn", 7), slot("en", en)}
	counters := []expr.Attribute{slot("he", he+1), slot("en", en+1)}
	for name, test := range map[string]struct {
		call    func(c KeepCall)
		item    []expr.Attribute
		changes []expr.Attribute
		removed []string
	}{
		"admit":   {func(c KeepCall) { c.Admit() }, held, []expr.Attribute{{Name: "disabled", Value: expr.Bool(true)}}, []string{"rf"}},
		"current": {func(c KeepCall) { c.Current(cg) }, held, []expr.Attribute{number("cg", cg+1)}, nil},
		"tally":   {func(c KeepCall) { c.Tally("wcu", 1000) }, held, nil, []string{"b_wcu_tk"}},
		"prolong": {func(c KeepCall) { c.Prolong(2_000_000_000) }, held, nil, []string{"ttl"}},
		"enrol":   {func(c KeepCall) { c.Enrol("slots", 10, 0, he, 30_000, 7, en) }, nil, []expr.Attribute{slot("fr", 1)}, nil},
		"change term": {
			func(c KeepCall) { c.ChangeTerm("slots", 60_000, he/2, he, 0, en, en+1) }, free,
			append(counters, slot("h0", 1), slot("h1", 1)), nil,
		},
		"resize":     {func(c KeepCall) { c.Resize("slots", 5, 15, 10) }, held, []expr.Attribute{slot("cp", 11)}, nil},
		"open, even": {func(c KeepCall) { c.OpenEven("slots", he, he+2, 0, en) }, held, counters, nil},
		"open, odd":  {func(c KeepCall) { c.OpenOdd("slots", he, he+1, 0, en) }, held, counters, nil},
		"hold, even": {func(c KeepCall) { c.HoldEven("slots", 4, 5, he, 1, en) }, held, append(counters, slot("fr", 4)), nil},
		"hold, odd":  {func(c KeepCall) { c.HoldOdd("slots", 4, 5, he, 1, en) }, held, append(counters, slot("fr", 4)), nil},
		"claim":      {func(c KeepCall) { c.Claim("slots", 1, 9, 2000, 1000, en) }, append(held, slot("wu", 1000)), []expr.Attribute{slot("wu", 1001), slot("en", en+1)}, nil},
		"hand":       {func(c KeepCall) { c.Hand("slots", 2, he, en) }, held, counters, nil},
		"beat, even": {func(c KeepCall) { c.BeatEven("slots", 2, he, en) }, held, counters, nil},
		"beat, odd":  {func(c KeepCall) { c.BeatOdd("slots", 2, he, en) }, held, counters, nil},
		"release, even": {
			func(c KeepCall) { c.ReleaseEven("slots", 1, he, he+2, en) }, held,
			[]expr.Attribute{slot("he", he-1), slot("he", he+2), slot("en", en+1)},
			nil,
		},
		"release, odd": {
			func(c KeepCall) { c.ReleaseOdd("slots", 1, he, he+2, en) }, held,
			[]expr.Attribute{slot("he", he-1), slot("he", he+2), slot("en", en+1)},
			nil,
		},
	} {
		c := Keep()
		test.call(c)
		bound, err := c.Bind()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		asks(t, name, &bound, test.item, test.changes, test.removed)
	}
}

// asks changes one attribute at a time behind a write that was planned for an item: the write is refused.
func asks(t *testing.T, name string, bound *expr.Bound, planned, changes []expr.Attribute, removed []string) {
	t.Helper()
	item := func(change ...expr.Attribute) expr.Item {
		i := BucketKey{NS: "ns", Entity: "e", Resource: "r"}.Key().Join(expr.Item{
			number("rf", 1_700_000_000_000), number("cg", 50), number("ttl", 1_900_000_000), number("b_wcu_tk", 1000),
		})
		for _, a := range append(slices.Clone(planned), change...) {
			i.Set(a.Name, a.Value)
		}
		return i
	}
	if !bound.Holds(item()) {
		t.Errorf("%s: the write does not hold on the item that it was planned for", name)
	}
	for _, change := range changes {
		if bound.Holds(item(change)) {
			t.Errorf("%s: the write holds after %s has become %v", name, change.Name, change.Value)
		}
	}
	for _, gone := range removed {
		i := item()
		i.Remove(gone)
		if bound.Holds(i) {
			t.Errorf("%s: the write holds without %s", name, gone)
		}
	}
}

func number(name string, value int64) expr.Attribute {
	return expr.Attribute{Name: name, Value: expr.N(value)}
}

// TestSlotsBesideTokensAsk does so for slots that are taken and given back by a write of tokens, in even and in odd epochs.
func TestSlotsBesideTokensAsk(t *testing.T) {
	const he, en = 8, 100
	slot := func(name string, value int64) expr.Attribute { return number("s_slots_"+name, value) }
	held := []expr.Attribute{slot("fr", 5), slot("cp", 10), slot("h0", 2), slot("h1", 3), slot("he", he), slot("tm", 30_000), slot("fn", 7), slot("en", en)}
	counters := []expr.Attribute{slot("he", he+1), slot("en", en+1), slot("fr", 4)}
	lapsed := []expr.Attribute{slot("he", he-1), slot("he", he+2), slot("en", en+1)}
	calls := map[string]func() slotsBinder{
		"spend":   func() slotsBinder { return Spend(1_700_000_000_000, 1_800_000_000) },
		"advance": func() slotsBinder { return Advance(1_700_000_000_000, 1_700_000_000_001, -1, 50) },
	}
	for name, call := range calls {
		for clause, test := range map[string]struct {
			call    func(c slotsBinder)
			changes []expr.Attribute
		}{
			"hold, even":    {func(c slotsBinder) { c.HoldEven("slots", 4, 5, he, 1, en) }, counters},
			"hold, odd":     {func(c slotsBinder) { c.HoldOdd("slots", 4, 5, he, 1, en) }, counters},
			"release, even": {func(c slotsBinder) { c.ReleaseEven("slots", 1, he, he+2, en) }, lapsed},
			"release, odd":  {func(c slotsBinder) { c.ReleaseOdd("slots", 1, he, he+2, en) }, lapsed},
		} {
			c := call()
			test.call(c)
			bound, err := c.Bind()
			if err != nil {
				t.Fatalf("%s %s: %v", name, clause, err)
			}
			asks(t, name+" "+clause, &bound, held, test.changes, nil)
		}
	}
}

type slotsBinder interface {
	slotsCall
	Bind() (expr.Bound, error)
}
