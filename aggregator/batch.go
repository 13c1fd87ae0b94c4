package aggregator

import (
	"errors"
	"sync"
	"time"
)

// A Batch is the outcome of changes applied together. Callers may add up its counts.
type Batch struct {
	Changes    int           `json:"changes"`    // of all items
	Counted    int           `json:"counted"`    // changes of buckets by which something was consumed, those counted before included
	Unreadable int           `json:"unreadable"` // changes not counted: of an unreadable item or a reserved name
	Writes     int           `json:"writes"`     // of snapshots, those that found some of the changes counted included
	RolledUp   int           `json:"rolled_up"`  // hours whose figures are in their days and months, those that were there before included
	Archived   int           `json:"archived"`   // audit events
	Refills    int           `json:"refills"`    // buckets refilled ahead of the limiters
	Splits     int           `json:"splits"`     // buckets split
	Merges     int           `json:"merges"`     // buckets merged
	Left       int           `json:"left"`       // buckets counted and not tended, limited in an unknown way
	Failed     int           `json:"failed"`     // changes for which something could not be done; they come again
	Took       time.Duration `json:"took_nanoseconds"`
}

// WithObserver sets a function that is called with every batch, for metrics; by default there is none. Hours that are rolled up between
// batches are reported as a Batch without changes. The function must be safe for concurrent use, and should be quick.
func WithObserver(observe func(Batch)) Option { return func(o *options) { o.observer = observe } }

// A batch is a Batch that is under way. It is safe for concurrent use.
type batch struct {
	mu sync.Mutex
	Batch
	errs    []error     // by the index of the change
	started []*snapshot // begun by this batch, or perhaps by an earlier try of it
}

func newBatch(changes int) *batch {
	return &batch{Batch: Batch{Changes: changes}, errs: make([]error, changes)}
}

// note adds to the counts.
func (b *batch) note(add func(*Batch)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	add(&b.Batch)
}

func (b *batch) fail(index int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.errs[index] == nil {
		b.Failed++
	}
	b.errs[index] = errors.Join(b.errs[index], err)
}

// start notes a snapshot that may be new.
func (b *batch) start(s *snapshot) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.started = append(b.started, s)
}

// archived notes an event that was archived, unless there is an error.
func (b *batch) archived(index int, err error) {
	if err != nil {
		b.fail(index, err)
		return
	}
	b.note(func(r *Batch) { r.Archived++ })
}

// tended notes the work done for a bucket.
func (b *batch) tended(what string) {
	b.note(func(r *Batch) {
		switch what {
		case refill:
			r.Refills++
		case split:
			r.Splits++
		case merge:
			r.Merges++
		}
	})
}

func (b *batch) hasFailed(index int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.errs[index] != nil
}

// outcome returns the error of each change, nil if there is none.
func (b *batch) outcome() []error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.Failed == 0 {
		return nil
	}
	return b.errs
}
