package explore

import (
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

// A Grammar makes programs: all that two processes can do by a vocabulary, up to a length.
type Grammar struct {
	Name    string
	Initial Initial
	Warm    [2][]Op // what each actor does before; its last lease may stay open
	// Words are the operations of each actor; a settling word follows a taking one.
	Words [2][]Op
	// Shared says that the two actors are of one process, and not of two.
	Shared bool
	// Others are the operations of a third actor, which is of another process; nil for none.
	Others []Op
}

// Programs yields all programs of that many operations altogether, always in the same order. Each actor has at least one
// operation.
func (g *Grammar) Programs(operations int) iter.Seq[Program] {
	same := slices.EqualFunc(g.Warm[0], g.Warm[1], equalOps) && slices.EqualFunc(g.Words[0], g.Words[1], equalOps)
	return func(yield func(Program) bool) {
		for first := 1; first < operations; first++ {
			if same && first > operations-first {
				return // the actors are alike
			}
			left, right := phrases(g.Words[0], first, g.Warm[0]), phrases(g.Words[1], operations-first, g.Warm[1])
			for i, a := range left {
				for j, b := range right {
					if same && first == operations-first && j < i || !moves(a) && !moves(b) {
						continue
					}
					p := Program{
						Name:    fmt.Sprintf("%s %d:%d:%d", g.Name, first, i, j),
						Initial: g.Initial,
						Actors:  []Actor{{Process: 0, Warm: g.Warm[0], Ops: a}, {Process: 1, Warm: g.Warm[1], Ops: b}},
					}
					if g.Shared {
						p.Actors[1].Process = 0
					}
					if g.Others != nil {
						p.Actors = append(p.Actors, Actor{Process: p.processes(), Ops: g.Others})
					}
					if !yield(p) {
						return
					}
				}
			}
		}
	}
}

func equalOps(a, b Op) bool { return a.String() == b.String() }

// moves reports whether operations take or give back.
func moves(ops []Op) bool {
	return slices.ContainsFunc(ops, func(o Op) bool { return o.Kind == Take || o.settles() })
}

// settles reports whether an operation settles a lease.
func (o *Op) settles() bool { return o.Kind == Adjust || o.Kind == Rollback }

// open returns the operation behind the lease that an actor has open after some operations, with what it took more; nil for none.
func open(ops []Op) *Op {
	more := zlimit.Amounts{}
	for i := len(ops) - 1; i >= 0 && !ops[i].settles(); i-- {
		if ops[i].Kind != Take {
			continue
		}
		for limit, n := range ops[i].Amounts {
			more[limit] += n
		}
		if lease := ops[i]; !lease.More {
			lease.Amounts = more
			return &lease
		}
	}
	return nil
}

// gives reports whether a lease may give back the amounts of an operation.
func (o *Op) gives(lease *Op) bool {
	for limit, n := range o.Amounts {
		if lease.Amounts[limit]+n < 0 {
			return false
		}
	}
	return true
}

// phrases returns the sequences of words that make sense after an actor's earlier ones.
func phrases(words []Op, length int, warm []Op) (all [][]Op) {
	if length == 0 {
		return [][]Op{nil}
	}
	for _, before := range phrases(words, length-1, warm) {
		lease := open(slices.Concat(warm, before))
		for _, w := range words {
			switch last := len(before) - 1; {
			case (w.settles() || w.More) && (lease == nil || w.Of > len(lease.With) || !w.gives(lease)):
			case last >= 0 && before[last].Kind == Die:
			case w.Kind == Rest && (last < 0 && w.Steps != 1 || last >= 0 && before[last].Kind == Rest): // the other one rests as well
			case last >= 0 && w.Kind == Set && before[last].Kind == Set && w.Entity == before[last].Entity:
			default:
				all = append(all, append(slices.Clone(before), w))
			}
		}
	}
	return all
}

// Vocabulary of the grammars.
func take(entity string, n int64) Op {
	return Op{Kind: Take, Entity: entity, Amounts: zlimit.Amounts{"rpm": n}}
}

func takeBoth(entity string) Op {
	return Op{Kind: Take, Entity: entity, Amounts: zlimit.Amounts{"rpm": 1, "tpm": 50}}
}

func adjust(n int64) Op { return Op{Kind: Adjust, Amounts: zlimit.Amounts{"rpm": n}} }

func set(entity string, l ...zlimit.Limit) Op { return Op{Kind: Set, Entity: entity, Limits: l} }

func rest(d time.Duration) Op { return Op{Kind: Rest, For: d} }

// Grammars are those that the exploration goes through.
func Grammars() []Grammar {
	day := func(n int64) zlimit.Limit { return zlimit.PerDay("rpm", n) }
	tokens := func(n int64) zlimit.Limit { return zlimit.PerDay("tpm", n) }
	settles := []Op{adjust(2), adjust(-1), {Kind: Rollback}}
	pause, expiry := rest(2*time.Second), rest(configTTL+time.Second)

	alone := slices.Concat([]Op{
		take("c", 2), take("c", 8), takeBoth("c"),
		set("c", day(20), tokens(100)), set("c", day(5), tokens(100)),
		set("c", zlimit.PerHour("rpm", 10), tokens(100)), set("c", day(10)),
		{Kind: Unset, Entity: "c"},
		{Kind: Delete, Entity: "c"},
		pause, expiry,
	}, settles)
	single := Initial{Limits: map[string][]zlimit.Limit{"c": {day(10), tokens(100)}, "": {day(10), tokens(100)}}}

	family := slices.Concat([]Op{
		take("c", 2), take("c", 8), take("d", 8), takeBoth("c"),
		set("p", day(40), tokens(100)), set("p", day(6), tokens(100)), set("p", day(20)),
		set("p", day(20), tokens(100), zlimit.PerDay("ppm", 10)),
		{Kind: Unset, Entity: "p"},
		pause, expiry,
	}, settles)
	parent := Initial{Family: true, Limits: map[string][]zlimit.Limit{"": {day(10), tokens(100)}, "p": {day(12), tokens(100)}}}

	gains := slices.Concat([]Op{
		takeBoth("c"), takeBoth("d"), set("p", day(12), tokens(100)), pause,
		{Kind: Adjust, Amounts: zlimit.Amounts{"tpm": -40}},
		{Kind: Adjust, Amounts: zlimit.Amounts{"tpm": 40}},
		{Kind: Rollback},
	})
	lacking := Initial{Family: true, Limits: map[string][]zlimit.Limit{"": {day(10), tokens(100)}, "p": {day(12)}}}

	halves := slices.Concat([]Op{
		take("c", 2), take("c", 4), take("c", 8),
		{Kind: Split, Entity: "c"},
		{Kind: Merge, Entity: "c"},
		set("c", day(20)), set("c", day(6)), pause, expiry,
	}, settles)
	bucket := Initial{Limits: map[string][]zlimit.Limit{"c": {day(10)}}}

	rollback, split, merge := Op{Kind: Rollback}, Op{Kind: Split, Entity: "c"}, Op{Kind: Merge, Entity: "c"}
	leases := []Op{
		rollback, adjust(2), adjust(-2), take("c", 2), take("c", 7), split, merge,
		{Kind: Delete, Entity: "c"},
		set("c", day(20)), set("c", zlimit.PerSecond("rpm", 10)),
	}
	both := Initial{Limits: map[string][]zlimit.Limit{"c": {day(10)}, "": {day(10)}}}

	fast := []Op{
		take("c", 1), take("c", 5), set("c", day(10)), set("c", zlimit.PerSecond("rpm", 10, zlimit.Burst(4))), rollback, merge, pause,
	}
	quick := Initial{Limits: map[string][]zlimit.Limit{"c": {zlimit.PerSecond("rpm", 10)}}}

	holder := []Op{rollback, {Kind: Adjust, Amounts: zlimit.Amounts{"tpm": -40}}, takeBoth("c"), split}
	remover := []Op{set("c", day(10), tokens(100)), set("c", day(10)), takeBoth("c"), take("c", 1), pause}

	looks := []Op{take("c", 5), take("c", 8), rollback, adjust(-1), {Kind: Look, Entity: "c"}, {Kind: Delete, Entity: "c"}}

	shared := slices.Concat([]Op{take("c", 2), take("c", 5), take("c", 8), takeBoth("c")}, settles)
	coalescing := Initial{Coalescing: true, Limits: single.Limits}

	// Half a second after it lost the store, a process has found it again, and tries some calls. Two seconds after it makes all of them.
	lose, tries := Op{Kind: Lose}, rest(450*time.Millisecond)
	away := []Op{take("c", 2), take("c", 8), take("d", 3), rollback, adjust(2), lose, tries, pause, set("c", day(20), tokens(100))}

	know := func(entity string) []Op { return []Op{take(entity, 1), pause} }
	part := []Op{take("c", 1), {Kind: Split, Entity: "c"}}
	return append([]Grammar{
		{Name: "alone, cold", Initial: single, Words: [2][]Op{alone, alone}},
		{Name: "alone", Initial: single, Warm: [2][]Op{know("c"), know("c")}, Words: [2][]Op{alone, alone}},
		{Name: "coalescing", Initial: coalescing, Warm: [2][]Op{know("c"), nil}, Words: [2][]Op{shared, shared}, Shared: true, Others: []Op{take("c", 3)}},
		{Name: "family, cold", Initial: parent, Words: [2][]Op{family, family}},
		{Name: "family", Initial: parent, Warm: [2][]Op{know("d"), know("c")}, Words: [2][]Op{family, family}},
		{Name: "family gains", Initial: lacking, Warm: [2][]Op{nil, know("c")}, Words: [2][]Op{gains, gains}},
		{Name: "split, one knows", Initial: bucket, Warm: [2][]Op{part, nil}, Words: [2][]Op{halves, halves}},
		{
			Name: "split", Initial: bucket,
			Warm: [2][]Op{part, {take("c", 1), take("c", 5), {Kind: Rollback}}}, Words: [2][]Op{halves, halves},
		},
		{Name: "leases", Initial: both, Warm: [2][]Op{{take("c", 4)}, {take("c", 4)}}, Words: [2][]Op{leases, leases}},
		{Name: "split, fast", Initial: quick, Warm: [2][]Op{{take("c", 8), split}, {take("c", 1)}}, Words: [2][]Op{fast, fast}},
		{
			Name: "limit removed", Initial: single,
			Warm: [2][]Op{{takeBoth("c")}, {set("c", day(10)), take("c", 1)}}, Words: [2][]Op{holder, remover},
		},
		{Name: "looks", Initial: both, Words: [2][]Op{looks, looks}, Shared: true},
		{
			Name: "merged before", Initial: both,
			Warm:  [2][]Op{{take("c", 1), split, take("c", 8), merge, rollback}, nil},
			Words: [2][]Op{{take("c", 7), rollback}, {split, merge, take("c", 2)}},
		},
		{Name: "away", Initial: parent, Warm: [2][]Op{{take("c", 1), lose}, {take("c", 1)}}, Words: [2][]Op{away, away}},
		{
			Name: "back", Initial: parent, Warm: [2][]Op{{take("d", 1), take("c", 1), lose, tries}, nil}, Words: [2][]Op{away, away}, Shared: true,
		},
	}, slices.Concat(timedGrammars(), waitGrammars())...) // the last ones, so that the rounds of the others stay as they are
}
