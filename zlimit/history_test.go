package zlimit_test

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A history is what the users of a bucket say that they did, each by the watch on the wall. The order of the writes is
// not known, and need not be. It knows nothing of items.
type history struct {
	skew   time.Duration // between the clock that is furthest ahead and the one that is furthest behind
	memory time.Duration // how old what a refusal is decided from may be
	acts   []act
}

// An act is one call and what came of it.
type act struct {
	Deed    operation
	Entity  string
	Amounts zlimit.Amounts // not negative
	From    int64          // true time before the call, epoch microseconds
	To      int64          // and after it
	Chain   bool           // refused: other levels were asked too, and what this one gave was given back
}

type operation uint8

const (
	took    operation = iota // consumed, after a check that it is there
	forced                   // consumed, there or not
	gave                     // given back
	refused                  // asked, and not got
	merged                   // no call: two shards were merged in the background
)

// A tally is the sum of amounts up to a time, for times that do not decrease.
type tally struct {
	acts []*act
	time func(*act) int64
	sum  int64
}

// tallyOf returns the tally of the acts that do one of the deeds, each at a time of its own, which may be never.
func tallyOf(acts []act, time func(*act) int64, deeds ...operation) *tally {
	y := &tally{time: time}
	for i := range acts {
		if slices.Contains(deeds, acts[i].Deed) && time(&acts[i]) < never {
			y.acts = append(y.acts, &acts[i])
		}
	}
	slices.SortStableFunc(y.acts, func(a, b *act) int { return cmp.Compare(time(a), time(b)) })
	return y
}

const never = math.MaxInt64

// before returns the sum before a time, and upTo that up to a time and at it.
func (y *tally) before(t int64, limit string) int64 { return y.upTo(t-1, limit) }

func (y *tally) upTo(t int64, limit string) int64 {
	for len(y.acts) > 0 && y.time(y.acts[0]) <= t {
		y.sum += y.acts[0].Amounts[limit]
		y.acts = y.acts[1:]
	}
	return y.sum
}

func from(a *act) int64 { return a.From }
func to(a *act) int64   { return a.To }

// of returns the acts on the bucket of an entity.
func (h *history) of(entity string) (acts []act) {
	for _, a := range h.acts {
		if a.Entity == entity {
			acts = append(acts, a)
		}
	}
	return acts
}

// net returns what an entity consumed of a limit, in tokens (I9).
func (h *history) net(entity, limit string) (sum int64) {
	for _, a := range h.of(entity) {
		switch a.Deed {
		case took, forced:
			sum += a.Amounts[limit]
		case gave:
			sum -= a.Amounts[limit]
		default: // refused, merged
		}
	}
	return sum
}

// A scale counts one limit in units in which tokens and their refill are whole. One token is RefillPeriod in
// microseconds of them, and RefillAmount of them flow in with each microsecond.
type scale struct {
	token, rate int64
}

func scaleOf(l *zlimit.Limit) scale { return scale{l.RefillPeriod.Microseconds(), l.RefillAmount} }

// clockTick is the resolution of the clock of a bucket: a reading is up to that much before the time.
const clockTick = time.Millisecond

// overAdmitted returns an error for an interval in which too much was admitted of a limit, net of what was returned
// (I1). The most is its capacity and the refill of the interval, of the freshness δ and of what the clocks disagree.
//
// A history conforms to a capacity and a rate if for every interval [a, b]
//
//	N(a, b) − rate·(b − a) ≤ capacity
//
// where N(a, b) is what is consumed in it less what is given back in it. When an act took place is known to its call,
// so N takes the least that is certain. Consumption counts when its whole call is within [a, b], a return already when
// it may be. With C and G for sums of consumption and returns by the beginnings of calls, and c and g by their ends,
//
//	N(a, b) ≥ (c(b) − C(a)) − (G(b) − g(a))
//
// where b is included and a is not; the difference are calls that span all of the interval, which do not count. Each
// term depends on a or on b alone. So one pass over b in the order of time finds the largest N(a, b) − rate·(b − a).
// The pass remembers the smallest C(a) − g(a) − rate·a so far. It finds the largest sum of a stretch, with two ends for
// each act.
//
// Three things refine that. What is consumed unchecked may leave a debt, so that the bound holds only at the next
// checked consumption after it. An unchecked act therefore ends for c where the first checked one ends that began after
// it. In a split bucket it does not count: all shards owe together, but one that is given something back pays none of
// the others. A call that was refused by one level of a chain may have taken and given back on the others. Of that, the
// return alone may be in an interval which begins within the call. So it counts for g from where it ends, and against
// it from where it begins. The clocks: readings of the calls in [a, b] are between a − tick + slowest and b + fastest.
// The stamp that the first of them found, or made, is at most δ behind its reading. The bucket had at most its capacity
// then.
func (h *history) overAdmitted(entity string, l *zlimit.Limit, delta time.Duration, shards int) error {
	acts := h.of(entity)
	if shards > 1 {
		acts = slices.DeleteFunc(acts, func(a act) bool { return a.Deed == forced })
	}
	end := counted(acts, l.Name)
	taken := tallyOf(acts, end, took, forced)
	began := tallyOf(acts, func(a *act) int64 {
		if end(a) == never {
			return never
		}
		return a.From
	}, took, forced)
	given, returned := tallyOf(acts, from, gave), tallyOf(acts, to, gave)
	maybe := slices.DeleteFunc(slices.Clone(acts), func(a act) bool { return a.Deed != refused || !a.Chain })
	passing, passed := tallyOf(maybe, from, refused), tallyOf(maybe, to, refused)

	s := scaleOf(l)
	bound := s.token*l.Capacity + s.rate*(delta+h.skew+clockTick).Microseconds() + s.token*int64(shards)/zlimit.Millis
	least, start := int64(math.MaxInt64), int64(0)
	starts := began.acts
	for _, last := range taken.acts {
		b := end(last)
		for len(starts) > 0 && starts[0].From <= b {
			a := starts[0].From
			starts = starts[1:]
			open := began.before(a, l.Name) - returned.before(a, l.Name) + passing.before(a, l.Name) - passed.before(a, l.Name)
			if sum := s.token*open - s.rate*a; sum < least {
				least, start = sum, a
			}
		}
		net := taken.upTo(b, l.Name) - given.upTo(b, l.Name)
		if over := s.token*net - s.rate*b - least; over > bound {
			return fmt.Errorf("%s of %s: the admissions of %v µs exceed their refill by %.3f tokens, more than %.3f (I1)",
				l.Name, entity, b-start, float64(over)/float64(s.token), float64(bound)/float64(s.token))
		}
	}
	return nil
}

// counted returns the time by which an act of consumption is within the bound for certain. That is its end, or for an
// unchecked act the earliest end of a checked one that began later.
func counted(acts []act, limit string) func(*act) int64 {
	checks := slices.DeleteFunc(tallyOf(acts, from, took).acts, func(a *act) bool { return a.Amounts[limit] == 0 })
	earliest := make([]int64, len(checks)+1)
	earliest[len(checks)] = never
	for i := len(checks) - 1; i >= 0; i-- {
		earliest[i] = min(earliest[i+1], checks[i].To)
	}
	return func(a *act) int64 {
		if a.Deed == took {
			return a.To
		}
		next, _ := slices.BinarySearchFunc(checks, a.To, func(c *act, t int64) int { return cmp.Compare(c.From, t) })
		return earliest[next]
	}
}

// wronglyRefused returns an error for a request that was refused although every limit had enough (I2): refill was lost.
//
// The bucket was full for the last time at some a, when it was created at the latest. From then to a refusal at x it
// got the whole refill and lost what was consumed. A refusal of n tokens is therefore right only if, for some a before
// x,
//
//	N(a, x) − rate·(x − a) > capacity − n
//
// Here N takes the most that is possible. Consumption counts when it may be in the interval. A return counts only when its whole call is,
// and came before the image that the refusal may be decided from. A process that rations a used-up bucket may leave all refill since that
// image to others. That is the bound of overAdmitted turned around, and found in the same way. It holds for a bucket of one item: a split
// one may have a full shard and an empty one. A refusal of one of several limits is enough.
func (h *history) wronglyRefused(entity string, limits ...zlimit.Limit) error {
	acts := h.of(entity)
	refusals := tallyOf(acts, from, refused).acts
	right := map[*act]bool{}
	for _, l := range limits {
		s := scaleOf(&l)
		best := peaks(acts, &l)
		consumed, returned := tallyOf(acts, from, took, forced), tallyOf(acts, to, gave)
		back := map[*act]int64{} // returned before the image of a refusal
		for _, x := range refusals {
			back[x] = returned.upTo(x.From-h.memory.Microseconds(), l.Name)
		}
		bound := s.token*l.Capacity - s.rate*(h.skew+clockTick+h.memory).Microseconds() - s.token/zlimit.Millis
		for _, x := range tallyOf(acts, to, refused).acts {
			most := s.token*(consumed.upTo(x.To, l.Name)-back[x]+x.Amounts[l.Name]) - s.rate*x.From + best(x.To)
			right[x] = right[x] || x.Amounts[l.Name] > 0 && most > bound
		}
	}
	for _, x := range refusals {
		if !right[x] && !x.Chain {
			return fmt.Errorf("%s: %v was refused at %d although it was there (I2)", entity, x.Amounts, x.From)
		}
	}
	return nil
}

// peaks returns the largest rate·a + g(a) − c(a) up to a time, where it is best to begin. The times that it is asked
// for must not decrease.
func peaks(acts []act, l *zlimit.Limit) func(int64) int64 {
	s := scaleOf(l)
	ends := tallyOf(acts, to, took, forced, gave, refused).acts
	consumed, given := tallyOf(acts, to, took, forced), tallyOf(acts, from, gave)
	most := int64(math.MinInt64)
	return func(x int64) int64 {
		for len(ends) > 0 && ends[0].To <= x {
			a := ends[0].To
			ends = ends[1:]
			most = max(most, s.rate*a+s.token*(given.before(a, l.Name)-consumed.before(a, l.Name)))
		}
		return most
	}
}

// miscounted returns an error when the items of a bucket do not count exactly what was consumed (I9). It also returns
// one when their shares do not add up to the limit (I7).
func (h *history) miscounted(entity string, l *zlimit.Limit, items []*bucket.State) error {
	_, consumed, capacity := total(items, l.Name)
	if want := h.net(entity, l.Name) * zlimit.Millis; consumed != want {
		return fmt.Errorf("%s of %s: the items count %d, and %d was consumed (I9)", l.Name, entity, consumed, want)
	}
	if want := l.Capacity * zlimit.Millis; capacity != want {
		return fmt.Errorf("%s of %s: the shares add up to %d of %d (I7)", l.Name, entity, capacity, want)
	}
	return nil
}

// A ledger is what is known of a bucket that was never full since it was created.
type ledger struct {
	limit   zlimit.Limit
	created int64 // epoch milliseconds
	net     int64 // what was consumed of it, in tokens
	resizes int   // how often it was split and merged, at most
}

// unbalanced returns an error when the balances of a bucket's items are wrong (I2, I7). Together they are what it was
// created with, and the refill, less what was consumed. They may be off by a millitoken for each item and each time
// that it was split or merged.
func (b *ledger) unbalanced(items []*bucket.State) error {
	l := &b.limit
	tokens, _, _ := total(items, l.Name)
	want := (l.Capacity - b.net) * zlimit.Millis
	for _, s := range items {
		want += bucket.Refill(b.created, s.RefilledAt, bucket.Share(l.RefillAmount*zlimit.Millis, s.Shard, s.Shards), l.RefillPeriod.Milliseconds())
	}
	if slack := int64(len(items) + b.resizes); tokens < want-slack || tokens > want+slack {
		return fmt.Errorf("the items have %d of %s, want %d (I2, I7)", tokens, l.Name, want)
	}
	return nil
}

// TestHistoryChecker gives the checker histories that are exact to a token and a millisecond, and others that are off by
// one.
func TestHistoryChecker(t *testing.T) {
	const ms = 1000 // microseconds
	rpm := zlimit.Limit{Name: "rpm", Capacity: 10, RefillAmount: 10, RefillPeriod: time.Second}
	at := func(d operation, n, from, to int64) act {
		return act{Deed: d, Entity: "key-1", Amounts: zlimit.Amounts{"rpm": n}, From: from * ms, To: to * ms}
	}
	chained := func(n, from, to int64) act {
		a := at(refused, n, from, to)
		a.Chain = true
		return a
	}
	for name, test := range map[string]struct {
		skew, delta, memory time.Duration
		acts                []act
		want                string // of the error
	}{
		"a full bucket and its refill":                       {acts: []act{at(took, 10, 0, 0), at(took, 1, 99, 99)}},
		"a millisecond before the refill":                    {acts: []act{at(took, 10, 0, 0), at(took, 1, 98, 98)}, want: "I1"},
		"a token more than there is":                         {acts: []act{at(took, 11, 0, 0)}, want: "I1"},
		"a token more, in between":                           {acts: []act{at(took, 1, 0, 0), at(took, 10, 5000, 5001), at(took, 1, 5002, 5003), at(took, 1, 9000, 9001)}, want: "I1"},
		"a token more, in two calls at once":                 {acts: []act{at(took, 5, 0, 50), at(took, 6, 10, 40)}, want: "I1"},
		"calls long enough for the refill":                   {acts: []act{at(took, 5, 0, 99), at(took, 6, 10, 40)}},
		"the refill of a second handed out twice":            {acts: []act{at(took, 1, 0, 0), at(took, 10, 1000, 1001), at(took, 9, 1002, 1003)}, want: "I1"},
		"as early as the freshness lets it":                  {delta: 20 * time.Millisecond, acts: []act{at(took, 10, 0, 0), at(took, 1, 79, 79)}},
		"earlier than the freshness lets it":                 {delta: 20 * time.Millisecond, acts: []act{at(took, 10, 0, 0), at(took, 1, 78, 78)}, want: "I1"},
		"as early as a clock ahead lets it":                  {skew: 20 * time.Millisecond, acts: []act{at(took, 10, 0, 0), at(took, 1, 79, 79)}},
		"earlier than a clock ahead lets it":                 {skew: 20 * time.Millisecond, acts: []act{at(took, 10, 0, 0), at(took, 1, 78, 78)}, want: "I1"},
		"what was given back":                                {acts: []act{at(took, 10, 0, 1), at(gave, 3, 2, 3), at(took, 3, 4, 5)}},
		"more than was given back":                           {acts: []act{at(took, 10, 0, 1), at(gave, 3, 2, 3), at(took, 4, 4, 5)}, want: "I1"},
		"what may have been given back by then":              {acts: []act{at(took, 10, 0, 1), at(gave, 3, 2, 9), at(took, 3, 4, 5)}},
		"what was given back afterwards":                     {acts: []act{at(took, 10, 0, 1), at(took, 3, 4, 5), at(gave, 3, 6, 9)}, want: "I1"},
		"a debt":                                             {acts: []act{at(took, 10, 0, 1), at(forced, 50, 2, 3)}},
		"a debt that is paid":                                {acts: []act{at(took, 10, 0, 1), at(forced, 9, 2, 3), at(took, 1, 1000, 1001)}},
		"a debt that is forgotten":                           {acts: []act{at(took, 10, 0, 1), at(forced, 9, 2, 3), at(took, 1, 900, 901)}, want: "I1"},
		"a debt that may come later":                         {acts: []act{at(took, 10, 0, 1), at(forced, 9, 2, 901), at(took, 1, 900, 901)}},
		"what a refused call took and gave back":             {acts: []act{chained(2, 0, 3), at(took, 10, 2, 4), at(took, 2, 4, 5)}},
		"what a refused call took and gave back in between":  {acts: []act{at(took, 10, 2, 4), chained(2, 4, 4), at(took, 2, 5, 6)}, want: "I1"},
		"refused one token short":                            {acts: []act{at(took, 10, 0, 0), at(refused, 1, 98, 98)}},
		"refused although it is there":                       {acts: []act{at(took, 10, 0, 0), at(refused, 1, 102, 102)}, want: "I2"},
		"refused less than a full bucket has":                {acts: []act{at(took, 10, 0, 0), at(refused, 9, 1002, 1002)}, want: "I2"},
		"refused while others may have taken it":             {acts: []act{at(took, 6, 0, 9), at(refused, 5, 1, 3)}},
		"refused although nobody else can have it":           {acts: []act{at(took, 4, 0, 9), at(refused, 5, 1, 3)}, want: "I2"},
		"refused before others took it":                      {acts: []act{at(took, 1, 0, 0), at(refused, 5, 1, 3), at(took, 9, 4, 5)}, want: "I2"},
		"refused although it was given back":                 {acts: []act{at(took, 10, 0, 0), at(gave, 4, 1, 2), at(refused, 4, 2, 3)}, want: "I2"},
		"refused while it was given back":                    {acts: []act{at(took, 10, 0, 0), at(gave, 4, 1, 3), at(refused, 4, 2, 3)}},
		"refused after an overflow":                          {acts: []act{at(took, 2, 0, 0), at(took, 10, 9000, 9000), at(refused, 1, 9050, 9050)}},
		"refused although the clocks agree":                  {skew: 10 * time.Millisecond, acts: []act{at(took, 10, 0, 0), at(refused, 1, 112, 112)}, want: "I2"},
		"refused as late as a clock behind lets it":          {skew: 10 * time.Millisecond, acts: []act{at(took, 10, 0, 0), at(refused, 1, 111, 111)}},
		"refused although it was just given back":            {acts: []act{at(took, 10, 0, 0), at(gave, 5, 10, 11), at(refused, 4, 20, 20)}, want: "I2"},
		"refused from memory":                                {memory: 10 * time.Millisecond, acts: []act{at(took, 10, 0, 0), at(gave, 5, 10, 11), at(refused, 4, 20, 20)}},
		"refused from memory that is too old":                {memory: 8 * time.Millisecond, acts: []act{at(took, 10, 0, 0), at(gave, 5, 10, 11), at(refused, 4, 20, 20)}, want: "I2"},
		"refused by another level":                           {acts: []act{at(took, 1, 0, 0), chained(1, 5, 6)}},
		"refused at a debt":                                  {acts: []act{at(took, 1, 0, 0), at(forced, 19, 1, 2), at(refused, 1, 1010, 1011)}},
		"refused by nothing but the request being above all": {acts: []act{at(refused, 11, 0, 0)}},
	} {
		h := &history{skew: test.skew, memory: test.memory, acts: test.acts}
		over, lost := h.overAdmitted("key-1", &rpm, test.delta, 1), h.wronglyRefused("key-1", rpm)
		switch got := fmt.Sprint(over, lost); {
		case test.want == "" && (over != nil || lost != nil):
			t.Errorf("%s: %v, want nothing", name, got)
		case !strings.Contains(got, test.want):
			t.Errorf("%s: %v, want an error of %s", name, got, test.want)
		}
	}
}

// TestHistoryBooks gives the checker items that are right to the millitoken, and those that are off.
func TestHistoryBooks(t *testing.T) {
	rpm := zlimit.PerSecond("rpm", 1001)
	b := &ledger{rpm, 0, 901, 1}
	h := &history{acts: []act{
		{Deed: took, Entity: "key-1", Amounts: zlimit.Amounts{"rpm": 900}},
		{Deed: forced, Entity: "key-1", Amounts: zlimit.Amounts{"rpm": 7}},
		{Deed: gave, Entity: "key-1", Amounts: zlimit.Amounts{"rpm": 6}},
		{Deed: refused, Entity: "key-1", Amounts: zlimit.Amounts{"rpm": 500}},
		{Deed: took, Entity: "key-2", Amounts: zlimit.Amounts{"rpm": 1}},
	}}
	for name, test := range map[string]struct {
		tokens, consumed int64 // of the second of two shards
		shards           int
		want             string
	}{
		"right":                    {50_050, 0, 2, ""},
		"millitokens of fractions": {50_047, 0, 2, ""},
		"one millitoken more":      {50_046, 0, 2, "I2"},
		"a token lost":             {49_050, 0, 2, "I2"},
		"a token made":             {51_050, 0, 2, "I2"},
		"a token not counted":      {50_050, -1000, 2, "I9"},
		"a token counted twice":    {50_050, 1000, 2, "I9"},
		"a share of another tree":  {50_050, 0, 4, "I7"},
	} {
		shard := func(number, shards int, tokens, consumed int64) *bucket.State {
			return &bucket.State{Shard: number, Shards: shards, RefilledAt: 100, Limits: []bucket.Limit{{
				Name: "rpm", Tokens: tokens, Consumed: consumed, Capacity: 1001_000, RefillAmount: 1001_000, RefillPeriod: 1000,
			}}}
		}
		items := []*bucket.State{shard(0, 2, 150_050, 901_000), shard(1, test.shards, test.tokens, test.consumed)}
		got := fmt.Sprint(h.miscounted("key-1", &rpm, items), b.unbalanced(items))
		if test.want == "" && got != "<nil> <nil>" || !strings.Contains(got, test.want) {
			t.Errorf("%s: %s, want an error of %q", name, got, test.want)
		}
	}
}
