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
	Warm    [2][]Op // what each process does before
	// Words are what each process can do; a word that settles follows one that takes.
	Words [2][]Op
	// Others are what a third actor does. The first two are then of one process, and it is of another.
	Others []Op
}

// Programs yields, in an order that is always the same, all programs of so many operations altogether, of which each
// process has at least one.
func (g *Grammar) Programs(operations int) iter.Seq[Program] {
	same := slices.EqualFunc(g.Warm[0], g.Warm[1], equalOps) && slices.EqualFunc(g.Words[0], g.Words[1], equalOps)
	return func(yield func(Program) bool) {
		for first := 1; first < operations; first++ {
			if same && first > operations-first {
				return // the processes are alike
			}
			left, right := phrases(g.Words[0], first), phrases(g.Words[1], operations-first)
			for i, a := range left {
				for j, b := range right {
					if same && first == operations-first && j < i || !takes(a) && !takes(b) {
						continue
					}
					p := Program{
						Name:    fmt.Sprintf("%s %d:%d:%d", g.Name, first, i, j),
						Initial: g.Initial,
						Actors:  []Actor{{Process: 0, Warm: g.Warm[0], Ops: a}, {Process: 1, Warm: g.Warm[1], Ops: b}},
					}
					if g.Others != nil {
						p.Actors[1].Process = 0
						p.Actors = append(p.Actors, Actor{Process: 1, Ops: g.Others})
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

func takes(ops []Op) bool {
	return slices.ContainsFunc(ops, func(o Op) bool { return o.Kind == Take })
}

// phrases returns the sequences of words that make sense.
func phrases(words []Op, length int) (all [][]Op) {
	if length == 0 {
		return [][]Op{nil}
	}
	for _, before := range phrases(words, length-1) {
		open := 0
		for _, o := range before {
			switch o.Kind {
			case Take:
				open = 1
			case Adjust, Rollback:
				open = 0
			default:
			}
		}
		for _, w := range words {
			settles := w.Kind == Adjust || w.Kind == Rollback
			switch last := len(before) - 1; {
			case settles && open == 0:
			case w.Kind == Rest && (last < 0 || before[last].Kind == Rest): // the other one rests as well
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

	divided := slices.Concat([]Op{
		take("c", 2), take("c", 4), take("c", 8),
		{Kind: Split, Entity: "c"},
		{Kind: Merge, Entity: "c"},
		set("c", day(20)), set("c", day(6)), pause, expiry,
	}, settles)
	bucket := Initial{Limits: map[string][]zlimit.Limit{"c": {day(10)}}}

	shared := slices.Concat([]Op{take("c", 2), take("c", 5), take("c", 8), takeBoth("c")}, settles)
	coalescing := Initial{Coalescing: true, Limits: single.Limits}

	know := func(entity string) []Op { return []Op{take(entity, 1), pause} }
	part := []Op{take("c", 1), {Kind: Split, Entity: "c"}}
	return []Grammar{
		{Name: "alone, cold", Initial: single, Words: [2][]Op{alone, alone}},
		{Name: "alone", Initial: single, Warm: [2][]Op{know("c"), know("c")}, Words: [2][]Op{alone, alone}},
		{Name: "coalescing", Initial: coalescing, Warm: [2][]Op{know("c"), nil}, Words: [2][]Op{shared, shared}, Others: []Op{take("c", 3)}},
		{Name: "family, cold", Initial: parent, Words: [2][]Op{family, family}},
		{Name: "family", Initial: parent, Warm: [2][]Op{know("d"), know("c")}, Words: [2][]Op{family, family}},
		{Name: "family gains", Initial: lacking, Warm: [2][]Op{nil, know("c")}, Words: [2][]Op{gains, gains}},
		{Name: "divided, one knows", Initial: bucket, Warm: [2][]Op{part, nil}, Words: [2][]Op{divided, divided}},
		{
			Name: "divided", Initial: bucket,
			Warm: [2][]Op{part, {take("c", 1), take("c", 5), {Kind: Rollback}}}, Words: [2][]Op{divided, divided},
		},
	}
}
