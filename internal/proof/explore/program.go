package explore

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

// resource is the one resource of all programs.
const resource = "api"

// A Program is what some processes do, from an Initial on.
type Program struct {
	Name    string
	Initial Initial
	Actors  []Actor
	Faults  Faults
}

// An Initial is the state before a program begins.
type Initial struct {
	// Limits are stored for each entity; "" for the system.
	Limits map[string][]zlimit.Limit
	// Family gives the entities c and d the parent p, to which they cascade. Without it every entity stands alone.
	Family bool
	// Parents are the entities that have a record and the parents that they cascade to, in place of Family; "" for none.
	Parents map[string]string
	// Coalescing lets the actors of a process share writes, from the second one on, or when AtOnce are under way.
	Coalescing bool
	AtOnce     int
	// Timed says that the one limit of each entity resets at times. A timekeeper judges such programs.
	Timed bool
	// Draws is the number of shards that requests are drawn to, 0 for two.
	Draws int
	// Memory is for how long processes reject by what they have seen.
	Memory time.Duration
	// Ahead is how far the clock of the first process is ahead.
	Ahead time.Duration
}

// chain returns an entity and those that it cascades to.
func (w *Initial) chain(entity string) []string { return ancestry(w.parents()).chain(entity) }

// An Actor is a goroutine of a process, with its operations.
type Actor struct {
	Process int
	Warm    []Op // one after another before the exploration, so that the process has something to remember
	Ops     []Op
}

// Kind is the kind of an operation.
type Kind uint8

// The kinds of operation.
const (
	Take     Kind = iota // acquires, and keeps the lease
	Adjust               // adjusts the last lease, and commits it
	Rollback             // rolls the last lease back
	Set                  // replaces the stored limits of an entity
	Unset                // deletes the stored limits of an entity
	Split                // splits the bucket of an entity, as another process would
	Merge                // merges the two shards of the bucket of an entity, as another process would
	Delete               // deletes an entity
	Look                 // asks for balances
	Rest                 // lets time pass for all processes
	Lose                 // makes the store refuse calls of the process, until its breaker is open
	Die                  // kills the process
)

// An Op is one operation of an actor.
type Op struct {
	Kind    Kind
	Entity  string
	Amounts zlimit.Amounts // of Take and Adjust
	Slots   int64          // of Take, besides
	With    []Op           // of Take: requests that are admitted together with it, or not at all
	Of      int            // of Rollback: the one request whose lease is rolled back, 0 for all
	More    bool           // of Take: by the lease that is open, of its entity
	Own     []zlimit.Limit // of Take: the limits of the request
	As      string         // of Take: its priority
	Allow   bool           // of Take: admitted during an outage
	Cancel  bool           // of Take: the caller may give up at any call
	Insist  bool           // of Take: tries again after the reported wait
	Wait    time.Duration  // of Take: how long it waits at most; 0 for a request that does not wait
	Books   bool           // of Take: it reserves, and waits or cancels by the operation that settles its lease
	Limits  []zlimit.Limit // of Set
	For     time.Duration  // of Rest; of TopUp: until the grant ends, from the start, 0 for the end of the period
	Steps   int            // of Rest: the number of parts in which the time passes; 0 for one
	Twice   bool           // of Split: each half, too
	ID      string         // of TopUp and Reset
	Wide    bool           // of Disable and Enable: for every resource
	Parent  string         // of Move; "" for none
}

// String describes the operation.
func (o Op) String() string {
	switch o.Kind {
	case Take:
		text := "takes " + o.requestsText()
		if o.More {
			text = "takes " + amountsText(o.Amounts) + " more by its lease"
		}
		if len(o.Own) > 0 {
			text += " by limits of its own " + limitsText(o.Own)
		}
		if o.As != "" {
			text += " as " + o.As
		}
		if o.Allow {
			text += ", allowed in outages"
		}
		if o.Cancel {
			text += ", cancelled"
		}
		if o.Insist {
			text += ", again after the reported wait"
		}
		text += o.waitText()
		return text
	case Adjust:
		return "adjusts its lease by " + amountsText(o.Amounts) + " and commits"
	case Rollback:
		if o.Of > 0 {
			return fmt.Sprintf("rolls the lease of request %d back, and commits the others", o.Of+1)
		}
		return "rolls its lease back"
	case Set:
		return "sets the limits of " + nameOf(o.Entity) + " to " + limitsText(o.Limits)
	case Unset:
		return "deletes the limits of " + nameOf(o.Entity)
	case Split:
		if o.Twice {
			return "splits the bucket of " + o.Entity + " into four"
		}
		return "splits the bucket of " + o.Entity
	case Merge:
		return "merges the shards of " + o.Entity
	case Delete:
		return "deletes " + o.Entity
	case Look:
		return "looks at " + o.Entity
	case Lose:
		return "loses the store"
	case TopUp, Reset, Disable, Enable:
		return o.byHandText()
	case Move:
		return "moves " + o.Entity + " to " + cmp.Or(o.Parent, "no parent")
	case Die:
		return "is killed"
	default:
		return "rests for " + o.For.String()
	}
}

// step is for how long a Rest lets time pass in one step.
func (o *Op) step() time.Duration { return o.For / time.Duration(max(o.Steps, 1)) }

func nameOf(entity string) string {
	if entity == "" {
		return "the system"
	}
	return entity
}

func amountsText(amounts zlimit.Amounts) string {
	var parts []string
	for _, limit := range slices.Sorted(maps.Keys(amounts)) {
		parts = append(parts, fmt.Sprintf("%d %s", amounts[limit], limit))
	}
	return strings.Join(parts, " + ")
}

func limitsText(limits []zlimit.Limit) string {
	parts := make([]string, len(limits))
	for i, l := range limits {
		parts[i] = l.String()
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

// Faults are the faults of the store: each of the fates at any call, and how many in one order.
type Faults struct {
	Fates []Fate
	Most  int
}

// Fate is what becomes of a call.
type Fate uint8

// The fates of a call. Those after the first one are faults.
const (
	Done        Fate = iota // done and answered
	LostReply               // done, and not answered
	LostCall                // not done, and not answered
	Late                    // not answered, and done later
	Throttle                // refused for now
	Conflict                // refused, since a transaction holds the item
	Lag                     // a read that need not be consistent sees the state before the last change
	CancelFirst             // not done: the caller has given up
	CancelAfter             // done, and then the caller gives up
	Garbled                 // a write done, and answered with an item that cannot be decoded
	LateReply               // done, and answered later: others of its process go on meanwhile
	Torn                    // a read of several shards sees the first one now, and the others later
	TornBack                // a read of several shards sees the last one now, and the others later
	HotKey                  // refused for now, since the key is used too often
)

// String returns the name of the fate.
func (f Fate) String() string {
	return [...]string{"done", "done, reply lost", "lost", "reply lost, done later", "throttled", "conflict", "lagging", "cancelled before", "cancelled after", "garbled", "reply late", "torn", "torn back", "key throttled"}[f]
}

// goesOn reports whether an operation begun goes on later, as another step.
func (f Fate) goesOn() bool { return f == LateReply || f == Torn || f == TornBack }

// cancels reports whether the caller of an operation gives up.
func (f Fate) cancels() bool { return f == CancelFirst || f == CancelAfter }

// isOutage reports whether the caller of the store sees an outage.
func (f Fate) isOutage() bool {
	switch f {
	case LostReply, LostCall, Late, Throttle, HotKey, Garbled:
		return true
	default:
		return false
	}
}

// String returns the program, a line for each actor.
func (p *Program) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", p.Name)
	for _, entity := range slices.Sorted(maps.Keys(p.Initial.Limits)) {
		fmt.Fprintf(&b, "  %s has %s", nameOf(entity), limitsText(p.Initial.Limits[entity]))
		if chain := p.Initial.chain(entity); entity != "" && len(chain) > 1 {
			fmt.Fprintf(&b, " and cascades to %s", chain[1])
		}
		b.WriteString("\n")
	}
	for i, a := range p.Actors {
		texts := func(ops []Op) string {
			parts := make([]string, len(ops))
			for i, o := range ops {
				parts[i] = o.String()
			}
			return strings.Join(parts, "; ")
		}
		name := p.actorName(i)
		if len(a.Warm) > 0 {
			fmt.Fprintf(&b, "  before, %s %s\n", name, texts(a.Warm))
		}
		if len(a.Ops) > 0 {
			fmt.Fprintf(&b, "  %s %s\n", name, texts(a.Ops))
		}
	}
	if p.Faults.Most > 0 {
		fmt.Fprintf(&b, "  at most %d of %v\n", p.Faults.Most, p.Faults.Fates)
	}
	return b.String()
}

// actorName returns the letter of an actor's process, with a number where the process has several actors.
func (p *Program) actorName(i int) string {
	process := p.Actors[i].Process
	number, several := 1, false
	for j, other := range p.Actors {
		if j != i && other.Process == process {
			several = true
			if j < i {
				number++
			}
		}
	}
	name := string(rune('A' + process))
	if several {
		name += fmt.Sprint(number)
	}
	return name
}

// shares reports whether several actors are of a process.
func (p *Program) shares(process int) bool {
	n := 0
	for i := range p.Actors {
		if p.Actors[i].Process == process {
			n++
		}
	}
	return n > 1
}

// processes returns the number of processes.
func (p *Program) processes() int {
	most := 0
	for _, a := range p.Actors {
		most = max(most, a.Process+1)
	}
	return most
}

// size returns the number of operations of all actors, without those that come before.
func (p *Program) size() int {
	n := 0
	for i := range p.Actors {
		n += len(p.Actors[i].Ops)
	}
	return n
}

// gated reports whether it matters when an operation begins: time passes, an entity is moved, a process loses the store, or has several
// actors.
func (p *Program) gated() bool {
	seen := map[int]bool{}
	for _, a := range p.Actors {
		if seen[a.Process] || slices.ContainsFunc(a.Ops, func(o Op) bool { return o.Kind == Rest || o.Kind == Lose || o.Kind == Die || o.Kind == Move }) {
			return true
		}
		seen[a.Process] = true
	}
	return false
}
