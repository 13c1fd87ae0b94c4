package explore

import (
	"fmt"
	"strings"
	"testing"
)

// A tree is the search through the orders of one program: the last path, and the seen states.
type tree struct {
	path []node
	seen map[uint64]struct{}
}

// A node is a choice on the path.
type node struct {
	state   uint64
	options []option
	at      int
	log     []line // of the order that came there first
}

// A Report has the results of exploring a program.
type Report struct {
	Orders int // orders run, including those cut
	Cut    int // orders that came to a state seen before
	Events int // decisions, on all orders
	Whole  bool
	Found  []Finding // the first of each rule that was broken
}

// A Finding is an order in which something is wrong.
type Finding struct {
	Violation
	Path  []option
	log   []line
	Times int
}

// Bounds say how far an exploration goes.
type Bounds struct {
	// Orders is how many of one program are run at most; 0 for all.
	Orders int
	// Loose takes two states for equal in which a process has had the same replies in another order. The goroutines that
	// serve several buckets of one request side by side have replies in many orders, and share little. A loose exploration
	// is several times as fast, and may miss something.
	Loose bool
	// Ignored are rules that may be broken, to see the others behind them.
	Ignored []string
}

// Explore runs a program in every order.
func Explore(t *testing.T, p *Program, bounds Bounds) Report {
	t.Helper()
	image := prepare(t, p)
	tr := &tree{seen: map[uint64]struct{}{}}
	report := Report{}
	for !t.Failed() {
		o := newOrder(p, image.clone())
		o.loose, o.witness.ignored = bounds.Loose, bounds.Ignored
		depth := 0
		whole := o.run(t, func(calls []*call) (option, bool) {
			next, ok := tr.next(o, depth, calls)
			depth++
			return next, ok
		})
		report.Orders++
		report.Events += o.events
		if !whole {
			report.Cut++
		}
		if v := o.witness.wrong; v != nil {
			report.add(v, tr, o.log)
		}
		if !tr.advance() {
			report.Whole = true
			break
		}
		if bounds.Orders > 0 && report.Orders >= bounds.Orders {
			break
		}
	}
	return report
}

// add notes a violation, and how it came about.
func (r *Report) add(v *Violation, tr *tree, log []line) {
	for i := range r.Found {
		if r.Found[i].Rule == v.Rule {
			r.Found[i].Times++
			return
		}
	}
	path := make([]option, len(tr.path))
	for i, n := range tr.path {
		path[i] = n.options[n.at]
	}
	r.Found = append(r.Found, Finding{*v, path, log, 1})
}

// next returns what comes next on the path, or a new choice at its end; false when the state was seen before.
func (tr *tree) next(o *order, depth int, calls []*call) (option, bool) {
	state := o.digest(calls)
	if depth < len(tr.path) {
		n := &tr.path[depth]
		if n.state != state {
			panic(fmt.Sprintf("explore: the same path leads to another state at step %d of\n%v\nthe first time:\n%s\nnow:\n%s",
				depth, o.program, timeline(n.log), timeline(o.log)))
		}
		return n.options[n.at], true
	}
	if _, ok := tr.seen[state]; ok {
		return option{}, false
	}
	tr.seen[state] = struct{}{}
	options := o.options(calls, &o.program.Faults, nil)
	if len(options) == 0 {
		panic(fmt.Sprintf("explore: nothing may happen next in\n%v%v", o.program, o.log))
	}
	tr.path = append(tr.path, node{state: state, options: options, log: o.log})
	return options[0], true
}

// advance goes on to the next path; false when there is none.
func (tr *tree) advance() bool {
	for len(tr.path) > 0 {
		last := &tr.path[len(tr.path)-1]
		if last.at++; last.at < len(last.options) {
			return true
		}
		tr.path = tr.path[:len(tr.path)-1]
	}
	return false
}

// timeline returns the log of an order, a line for each call.
func timeline(log []line) string {
	var b strings.Builder
	for _, l := range log {
		fmt.Fprintln(&b, l)
	}
	return b.String()
}
