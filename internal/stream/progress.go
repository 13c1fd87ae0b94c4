package stream

import (
	"slices"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/internal/store"
)

// Kind is the kind of an [Event].
type Kind string

// Events of a consumer.
const (
	Claimed  Kind = "claimed"  // the consumer has a partition now
	Released Kind = "released" // it gave the partition back
	Finished Kind = "finished" // the partition has ended, and all of it is applied
	Lost     Kind = "lost"     // it could not keep the lease; another consumer goes on
	Gap      Kind = "gap"      // the store had forgotten changes, perhaps, before they were read
	Failing  Kind = "failing"  // changes were not applied, and are tried again
	Stuck    Kind = "stuck"    // the same, and for so long that an operator should look
	Skipped  Kind = "skipped"  // a change is skipped, as Config.Skip decided
	Trouble  Kind = "trouble"  // a call to the store failed, and is tried again
	Back     Kind = "back"     // a look for partitions succeeds again, after one that did not
	Waiting  Kind = "waiting"  // the consumer has no partition, since others have all of them

	// Unreadable: the lease of a partition cannot be read, so that no consumer has the partition.
	Unreadable Kind = "unreadable"
)

// An Event is something that an operator may want to know.
type Event struct {
	Kind      Kind
	Partition string        // "" for the whole stream
	From      string        // for Claimed, the consumer that had the partition and is gone; "" for none. For Waiting, the one that has it
	Until     time.Time     // for Waiting, when the lease ends unless it is written meanwhile, by the consumer's clock
	Change    *store.Change // the first that fails, or the skipped one
	Failed    int           // changes that failed
	Attempt   int           // how often they have been tried
	Err       error
}

// A Progress says how far a consumer has come in a partition that it has.
type Progress struct {
	Partition  string
	Position   store.Sequence // of the last change that is applied
	Applied    int64          // changes, since the consumer has the partition
	Skipped    int64          // changes left out
	Gaps       int64          // times that changes were lost, perhaps
	LastChange time.Time      // when the last one that is applied was made, by the clock of the store
	CaughtUp   time.Time      // when there was last nothing more to read, by the consumer's clock
	Oldest     time.Time      // when the oldest change was made that was read and is not applied; zero for none
	Lag        time.Duration  // the age of the oldest change that is not applied, or may not be
	Failing    store.Sequence // the first change that fails; "" for none
	Stuck      bool           // it has failed for so long that an operator should look
	Err        error          // of the last call that failed, nil once changes are applied again
	Unheld     bool           // no consumer seems to have the partition
}

// A Status is the state of a consumer.
type Status struct {
	Name       string
	Partitions []Progress // of this consumer, and of no consumer as it seems, in the order of their names
	LookedAt   time.Time  // when it last read who has what; zero before the first time
	Err        error      // why it could not, the last time

	stale bool // it has not looked for so long that the look must hang
}

// Healthy reports whether the consumer does its work: it knows the holder of each partition, and no change
// is stuck.
func (s *Status) Healthy() bool {
	return s.Err == nil && !s.LookedAt.IsZero() && !s.stale && !slices.ContainsFunc(s.Partitions, func(p Progress) bool { return p.Stuck })
}

// Status returns the state of the consumer. It makes no call.
func (c *Consumer) Status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := Status{Name: c.Name, LookedAt: c.looked, Err: c.trouble, stale: time.Since(c.looked) > 2*c.Term}
	now := c.Now()
	for _, h := range c.holdings {
		h.mu.Lock()
		p := h.progress
		p.Position = h.position
		h.mu.Unlock()
		p.Lag = max(0, now.Sub(p.known()))
		s.Partitions = append(s.Partitions, p)
	}
	for i := range c.unheld {
		if p := c.unheld[i]; c.holdings[p.Partition] == nil {
			p.Lag = max(0, now.Sub(p.CaughtUp))
			s.Partitions = append(s.Partitions, p)
		}
	}
	slices.SortFunc(s.Partitions, func(a, b Progress) int { return strings.Compare(a.Partition, b.Partition) })
	return s
}

// known returns the time up to which every change is applied. That is the time of the oldest unapplied change. Without
// such a change it is the time of the last change that is applied. If nothing more was to be read at a later time, it
// is that one.
func (p *Progress) known() time.Time {
	switch {
	case !p.Oldest.IsZero():
		return p.Oldest
	case p.LastChange.After(p.CaughtUp):
		return p.LastChange
	default:
		return p.CaughtUp
	}
}
