package faulttest

import "sync"

// An Nth counts calls, of which one is to come. It is safe for concurrent use.
type Nth struct {
	mu    sync.Mutex
	calls int
	at    int // the call, from 1; 0 for none
}

// Await begins to count, up to a call from now on, from 1; 0 for none.
func (n *Nth) Await(at int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.calls, n.at = 0, at
}

// Calls returns the number of calls since the last [Nth.Await].
func (n *Nth) Calls() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.calls
}

// Came reports whether the call has come.
func (n *Nth) Came() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.at > 0 && n.calls >= n.at
}

// Count counts a call, and reports whether it is the awaited one, or one after it.
func (n *Nth) Count() (is, after bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.calls++
	return n.calls == n.at, n.at > 0 && n.calls > n.at
}
