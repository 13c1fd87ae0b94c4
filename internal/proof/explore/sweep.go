package explore

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
)

// A Sweep explores the programs of all grammars, and keeps the smallest of those in which something is wrong. It is safe
// for concurrent use.
type Sweep struct {
	Name       string
	Bounds     Bounds
	Grammar    string           // "" for all, or a part of the names of those that count
	Grammars   func() []Grammar // nil for [Grammars]
	Operations int              // of each program
	Faults     Faults
	Change     func(*Op) // changes each operation first; nil for no change
	Rounds     int       // the number of rounds that the programs are spread over, each with some of all grammars
	Findings   int       // the most findings that are made small; of programs that differ in amounts alone, one is

	mu     sync.Mutex
	shapes map[string]bool
	Tally
}

// A Tally has the results of a sweep.
type Tally struct {
	Programs int
	Whole    int // programs that ran in every order
	Orders   int
	Cut      int // orders that came to a state seen before
	Calls    int
	Broken   map[string]int // programs by the rules that they broke
	Smallest []Smallest
}

// Smallest is a program with a finding, from which nothing can be taken away.
type Smallest struct {
	Program Program
	Finding Finding
	Times   int // programs that led to it
}

// The sample of a round that a usual test run has.
const (
	samplePrograms = 16
	sampleOrders   = 100 // of each program
)

// thin leaves a sample of the programs and orders of the first round.
func (s *Sweep) thin() {
	n := 0
	for _, g := range s.grammars() {
		for range g.Programs(s.Operations) {
			n++
		}
	}
	s.Rounds *= max(1, n/s.Rounds/samplePrograms)
	if s.Bounds.Orders == 0 || s.Bounds.Orders > sampleOrders {
		s.Bounds.Orders = sampleOrders
	}
}

func (s *Sweep) grammars() []Grammar {
	if s.Grammars != nil {
		return s.Grammars()
	}
	return Grammars()
}

// Round explores the programs of one round, until stop says so.
func (s *Sweep) Round(t *testing.T, round int, stop func() bool) {
	t.Helper()
	index := 0
	for _, g := range s.grammars() {
		if !strings.Contains(g.Name, s.Grammar) {
			continue
		}
		for p := range g.Programs(s.Operations) {
			index++
			if index%s.Rounds != round {
				continue
			}
			if stop() || t.Failed() {
				return
			}
			p.Faults = s.Faults
			if s.Change != nil {
				p.change(s.Change)
			}
			s.explore(t, &p)
		}
	}
}

// change changes the operations of a program.
func (p *Program) change(each func(*Op)) {
	for i := range p.Actors {
		p.Actors[i].Ops = slices.Clone(p.Actors[i].Ops)
		for j := range p.Actors[i].Ops {
			each(&p.Actors[i].Ops[j])
		}
	}
}

func (s *Sweep) explore(t *testing.T, p *Program) {
	report := Explore(t, p, s.Bounds)
	for _, f := range s.count(p, &report) {
		small, finding := shrink(t, p, f, s.Bounds)
		s.keep(small, finding)
	}
}

// count adds a report, and returns its findings that are worth minimizing.
func (s *Sweep) count(p *Program, r *Report) (worth []Finding) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Programs++
	s.Orders += r.Orders
	s.Cut += r.Cut
	s.Calls += r.Events
	if r.Whole {
		s.Whole++
	}
	if s.Broken == nil {
		s.Broken, s.shapes = map[string]int{}, map[string]bool{}
	}
	for _, f := range r.Found {
		s.Broken[f.Rule]++
		if shape := f.Rule + ": " + p.shape(); !s.shapes[shape] && len(s.Smallest) < s.Findings {
			s.shapes[shape] = true
			worth = append(worth, f)
		}
	}
	return worth
}

// keep keeps a finding, unless one of the same shape is kept.
func (s *Sweep) keep(p Program, f Finding) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.Smallest, func(other Smallest) bool {
		return other.Finding.Rule == f.Rule && other.Program.shape() == p.shape()
	})
	if i < 0 {
		s.Smallest = append(s.Smallest, Smallest{p, f, 1})
		return
	}
	s.Smallest[i].Times++
}

// String returns the coverage and the findings.
func (s *Sweep) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d programs, %d of them in every order; %d orders, %d of which came to a state seen before; %d calls",
		s.Name, s.Programs, s.Whole, s.Orders, s.Cut, s.Calls)
	for _, rule := range slices.Sorted(maps.Keys(s.Broken)) {
		fmt.Fprintf(&b, "\n%s: %d programs", rule, s.Broken[rule])
	}
	for _, f := range s.Smallest {
		fmt.Fprintf(&b, "\n\n%s (%d): %s\n%s%s", f.Finding.Rule, f.Times, f.Finding.Text, f.Program.String(), timeline(f.Finding.log))
	}
	return b.String()
}

// shrink takes away from a program all parts not needed to break a rule.
func shrink(t *testing.T, p *Program, f Finding, bounds Bounds) (Program, Finding) {
	t.Helper()
	small := *p
	small.Name = "smallest of " + p.Name
	for again := true; again && !t.Failed(); {
		again = false
		for _, next := range smaller(&small) {
			r := Explore(t, &next, bounds)
			i := slices.IndexFunc(r.Found, func(other Finding) bool { return other.Rule == f.Rule })
			if i < 0 {
				continue
			}
			small, f, again = next, r.Found[i], true
			break
		}
	}
	return small, f
}

// shape returns the operations of a program, without amounts.
func (p *Program) shape() string {
	var b strings.Builder
	for _, a := range p.Actors {
		for _, o := range append(slices.Clone(a.Warm), a.Ops...) {
			fmt.Fprintf(&b, "%d.%d ", a.Process, o.Kind)
		}
	}
	for _, f := range p.Faults.Fates {
		b.WriteString(f.String())
	}
	return b.String()
}

// smaller returns the programs that lack one thing of another.
func smaller(p *Program) (all []Program) {
	without := func(change func(*Program)) {
		next := *p
		next.Actors = slices.Clone(p.Actors)
		change(&next)
		all = append(all, next)
	}
	if p.Faults.Most > 0 {
		without(func(n *Program) { n.Faults = Faults{} })
	}
	for i, a := range p.Actors {
		for j := range a.Ops {
			without(func(n *Program) { n.Actors[i].Ops = slices.Delete(slices.Clone(a.Ops), j, j+1) })
		}
		for j := range a.Warm {
			without(func(n *Program) { n.Actors[i].Warm = slices.Delete(slices.Clone(a.Warm), j, j+1) })
		}
	}
	if len(p.Faults.Fates) > 1 {
		for i := range p.Faults.Fates {
			without(func(n *Program) { n.Faults.Fates = slices.Delete(slices.Clone(p.Faults.Fates), i, i+1) })
		}
	}
	return all
}
