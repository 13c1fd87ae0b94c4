package explore

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// A Sweep explores programs, and keeps what it found in their smallest form.
type Sweep struct {
	Bounds
	Every    int         // of so many programs one
	Offset   int         // the first of them
	Until    func() bool // true when it is time to stop; nil for never
	Faults   Faults
	Findings int // those that are made small at most; of programs that differ in amounts alone, one is

	Programs, Whole  int
	Ran, Cut, Events int
	Broken           map[string]int // programs by the rules that they broke
	Found            []Smallest
	Took             time.Duration

	count  int
	shapes map[string]bool
}

// Smallest is a program that breaks a rule, from which nothing can be taken away.
type Smallest struct {
	Program Program
	Finding Finding
	Times   int // programs that led to it
}

// Run explores the programs of a grammar with so many operations; false when it was time to stop.
func (s *Sweep) Run(t *testing.T, g *Grammar, operations int) (whole bool) {
	t.Helper()
	if s.Broken == nil {
		s.Broken, s.shapes = map[string]int{}, map[string]bool{}
	}
	whole = true
	g.Programs(operations, func(p Program) bool {
		s.count++
		if (s.count-1)%max(s.Every, 1) != s.Offset {
			return true
		}
		if s.Until != nil && s.Until() {
			whole = false
			return false
		}
		p.Faults = s.Faults
		s.explore(t, &p)
		return !t.Failed()
	})
	return whole
}

func (s *Sweep) explore(t *testing.T, p *Program) {
	r := Explore(t, p, s.Bounds)
	s.Programs++
	s.Ran += r.Orders
	s.Cut += r.Cut
	s.Events += r.Events
	if r.Whole {
		s.Whole++
	}
	for _, f := range r.Found {
		s.Broken[f.Rule]++
		if shape := f.Rule + ": " + p.shape(); s.shapes[shape] || len(s.Found) >= s.Findings {
			continue
		} else {
			s.shapes[shape] = true
		}
		small, finding := shrink(t, p, f, s.Bounds)
		i := slices.IndexFunc(s.Found, func(other Smallest) bool {
			return other.Finding.Rule == f.Rule && other.Program.shape() == small.shape()
		})
		if i < 0 {
			s.Found = append(s.Found, Smallest{small, finding, 1})
		} else {
			s.Found[i].Times++
		}
	}
}

// String returns what a sweep came to.
func (s *Sweep) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d programs, %d of them in every order; %d orders, %d of which came to a state seen before; %d calls",
		s.Programs, s.Whole, s.Ran, s.Cut, s.Events)
	for _, rule := range slices.Sorted(func(yield func(string) bool) {
		for rule := range s.Broken {
			if !yield(rule) {
				return
			}
		}
	}) {
		fmt.Fprintf(&b, "\n%s: %d programs", rule, s.Broken[rule])
	}
	for _, f := range s.Found {
		fmt.Fprintf(&b, "\n\n%s (%d): %s\n%s%s", f.Finding.Rule, f.Times, f.Finding.Text, f.Program.String(), f.Finding.timeline())
	}
	return b.String()
}

// shrink takes away from a program what it does not need to break a rule.
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

// shape returns what a program does, without amounts.
func (p *Program) shape() string {
	var b strings.Builder
	for _, a := range p.Actors {
		for _, o := range append(slices.Clone(a.Warm), a.Ops...) {
			fmt.Fprintf(&b, "%d.%d ", a.Process, o.Kind)
		}
	}
	return fmt.Sprint(b.String(), p.Faults.Fates)
}

// smaller returns programs that are by one thing smaller.
func smaller(p *Program) (all []Program) {
	without := func(change func(*Program)) {
		next := *p
		next.Actors = slices.Clone(p.Actors)
		change(&next)
		all = append(all, next)
	}
	for i, a := range p.Actors {
		for j := range a.Ops {
			without(func(n *Program) { n.Actors[i].Ops = slices.Delete(slices.Clone(a.Ops), j, j+1) })
		}
		for j := range a.Warm {
			without(func(n *Program) { n.Actors[i].Warm = slices.Delete(slices.Clone(a.Warm), j, j+1) })
		}
	}
	if p.Faults.Most > 0 {
		without(func(n *Program) { n.Faults = Faults{} })
	}
	if len(p.Faults.Fates) > 1 {
		for i := range p.Faults.Fates {
			without(func(n *Program) { n.Faults.Fates = slices.Delete(slices.Clone(p.Faults.Fates), i, i+1) })
		}
	}
	return all
}
