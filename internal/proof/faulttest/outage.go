package faulttest

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"
)

// An Outage is a fault while a lease is settled in one write, with what becomes of it by the default timeouts.
type Outage struct {
	Name    string
	Fault   Fault
	Written bool          // what settles the lease is
	Takes   time.Duration // until the lease is settled or given up
	Logged  int           // leases that are given up
}

// slow is less than half of the call timeout: a call that takes just that long is late and answered at the same moment of a virtual clock,
// and either may come first.
const slow = 900 * time.Millisecond

// Outages returns an outage for each fault, and none at first.
func Outages() []Outage {
	return []Outage{
		{"none", nil, true, 0, 0},
		{"slow", Slow(slow), true, slow, 0},
		{"too slow", Slow(3 * time.Second), false, 2 * time.Second, 1},
		{"down", Down, false, 0, 1},
		{"a lost reply", Lost, true, 0, 1},
		{"no reply", Hang, true, 2 * time.Second, 1},
	}
}

// Silent returns the outages in which a request is not answered, or refused.
func Silent() []Outage {
	all := Outages()
	return []Outage{all[2], all[3], all[5]}
}

// Left returns the expected balance: settled where the lease is settled, and otherwise where the settlement is given
// up.
func (o Outage) Left(settled, otherwise int64) int64 {
	if o.Written {
		return settled
	}
	return otherwise
}

// Begin breaks a store, and watches how one lease is settled from then on.
func (o Outage) Begin(s *Store) *Settling {
	s.Break(o.Fault)
	return &Settling{outage: o, store: s, Began: time.Now(), writes: s.Writes()}
}

// A Settling is what [Outage.Begin] watches.
type Settling struct {
	Began time.Time // when settling may begin

	outage Outage
	store  *Store
	writes int64
}

// Check reports a lease that is settled in another way than the outage's, or given up without lines of a text in the
// log. It is called when settling has ended, and mends the store.
func (s *Settling) Check(tb testing.TB, log *Log, text string) {
	tb.Helper()
	if took := time.Since(s.Began); took != s.outage.Takes {
		tb.Errorf("the end is held back for %v, want %v", took, s.outage.Takes)
	}
	if writes := s.store.Writes() - s.writes; writes != 1 {
		tb.Errorf("%d writes settle the lease, want 1", writes)
	}
	if log.Count(text) != s.outage.Logged {
		tb.Errorf("the log is %q, want %d lines of a lease that is given up", log, s.outage.Logged)
	}
	s.store.Break(nil)
}

// A Log is the output of a logger. It is safe for concurrent use, and its zero value is ready.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements [io.Writer].
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String returns all lines.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Logger returns a logger that writes to the log.
func (l *Log) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// Count returns how many lines have a text.
func (l *Log) Count(text string) int { return strings.Count(l.String(), text) }
