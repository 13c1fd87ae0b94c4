// Package stream consumes the change stream of a store: it hands every change to a function, at least once and for each
// item in order.
//
// Any number of consumers, in any number of processes, share the partitions of a stream. A consumer has a partition
// while it has its lease: a record of the table that it writes again every third of the term. The same write records its
// progress. A consumer stops when it could not write for nine tenths of the term. Others take over a lease that
// was not written for the whole term. Each process measures durations by its own clock, so clocks that disagree do no
// harm. A partition has a lease as soon as it may be read. When a partition has ended, its consumer looks for children
// and makes their leases. One of the consumers lists all partitions every five minutes, and finds the others. Two
// consumers apply changes of one partition at the same time only if the function goes on after its context has ended.
//
// After a crash, changes that were applied since the last write are delivered again: up to a third of a term and one
// batch. The function must therefore bear repetition.
package stream

import (
	"context"
	cryptorand "crypto/rand"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/zlimit/zlimit-go/internal/store"
)

// An Apply applies changes, in the order of the stream. It returns nil when all were applied, else an error for each
// change, nil where that one was applied. Changes that were not applied are delivered again. When the context ends,
// Apply should return soon, since the partition has perhaps gone to another consumer.
type Apply func(ctx context.Context, changes []store.Change) []error

// A Config says what a [Consumer] consumes and how. Zero values stand for the defaults.
type Config struct {
	Source store.Streamer
	Leases Leases
	Apply  Apply

	// Wants reports whether a change is to be applied; others are read over. By default all changes are applied, except
	// those of leases, which never are.
	Wants func(c *store.Change) bool

	// Name identifies the consumer; no two may have the same at any time. By default it is made from the name of the host and a random
	// part.
	Name string
	// Batch bounds the changes in one call of Apply; 1,000 by default.
	Batch int
	// Poll is the pause after all changes were read; 1 s by default. A longer one makes batches larger.
	Poll time.Duration
	// Term is how long a lease holds without being written; 30 s by default. It is written every third of that.
	Term time.Duration
	// Listing is the time between two listings of all partitions, by one of the consumers; 5 min by default. Up to a
	// quarter of it is added at random.
	Listing time.Duration
	// Grace is how long the calls of Apply that are under way may take when the consumer stops; 20 s by default.
	Grace time.Duration
	// StuckAfter is the number of tries of a change before it counts as stuck; 8 by default, which is some 50 s.
	StuckAfter int
	// Skip is asked about a stuck change each time that it fails, and leaves it out by returning true. By default no
	// change is left out: the partition waits at the change, which is tried once a minute, and its position does not move.
	Skip func(c store.Change, failed error) bool
	// Lose notes durably that changes between two times were lost before they were read. It may be called again for the same changes.
	// While it fails, the partition is not read on.
	Lose func(ctx context.Context, partition string, from, to time.Time) error
	// Begin notes durably that a stream is read for the first time. It may be called again.
	Begin func(ctx context.Context, partitions []store.Partition) error
	// Report is called with events, by several goroutines.
	Report func(Event)
	// Now is the clock for lag and the expiry of records; time.Now by default.
	Now func() time.Time
}

const (
	defaultBatch      = 1000
	defaultPoll       = time.Second
	defaultTerm       = 30 * time.Second
	defaultListing    = 5 * time.Minute
	defaultGrace      = 20 * time.Second
	defaultStuckAfter = 8

	// Pauses after failures grow from the first to the longest.
	firstPause   = 200 * time.Millisecond
	longestPause = time.Minute
)

// A Consumer hands the changes of a stream to a function. It is safe for concurrent use.
type Consumer struct {
	Config

	mu       sync.Mutex
	holdings map[string]*holding
	unheld   []Progress     // of partitions that no consumer seems to have
	parents  map[string]int // partitions that have ended, and how often to look for their children yet
	seen     watch
	known    knowledge
	waiting  Lease     // the record of an idle consumer
	waitsFor string    // whose lease it waits for, as reported; "" for none
	looked   time.Time // when the leases were last read
	trouble  error     // of the last look; nil when it went well

	running sync.WaitGroup
	wake    chan struct{} // there may be a new partition to take
}

// New returns a consumer, which does nothing before [Consumer.Run].
func New(c Config) *Consumer {
	if c.Name == "" {
		host, _ := os.Hostname() // for people; the random part is what counts
		c.Name = host + "-" + cryptorand.Text()[:12]
	}
	setDefault(&c.Batch, defaultBatch)
	setDefault(&c.Poll, defaultPoll)
	setDefault(&c.Term, defaultTerm)
	setDefault(&c.Listing, defaultListing)
	setDefault(&c.Grace, defaultGrace)
	setDefault(&c.StuckAfter, defaultStuckAfter)
	if c.Report == nil {
		c.Report = func(Event) {}
	}
	if c.Wants == nil {
		c.Wants = func(*store.Change) bool { return true }
	}
	if c.Lose == nil {
		c.Lose = func(context.Context, string, time.Time, time.Time) error { return nil }
	}
	if c.Begin == nil {
		c.Begin = func(context.Context, []store.Partition) error { return nil }
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Consumer{
		Config: c, holdings: map[string]*holding{}, parents: map[string]int{}, seen: watch{}, wake: make(chan struct{}, 1),
		known: knowledge{period: c.Listing + rand.N(c.Listing/4+1)},
	}
}

func setDefault[T ~int | ~int64](v *T, d T) {
	if *v <= 0 {
		*v = d
	}
}

// Run consumes until the context ends. It then lets the calls of Apply finish for the time of grace, records the progress of
// each partition, gives the partitions back, and returns nil. It returns an error immediately if there is no
// stream to read: [store.ErrNoStream] or [store.ErrTableNotFound]. Other failures are reported and retried. Run it
// once.
func (c *Consumer) Run(ctx context.Context) error {
	if err := c.Source.StartStream(ctx); errors.Is(err, store.ErrNoStream) || errors.Is(err, store.ErrTableNotFound) {
		return fmt.Errorf("start the stream: %w", err)
	}
	// Goroutines that hold partitions end after ctx does, in good order.
	work, abandon := context.WithCancel(context.WithoutCancel(ctx))
	defer abandon()
	for ctx.Err() == nil {
		c.look(ctx, work)
		select {
		case <-c.wake:
		case <-time.After(c.Term / 3):
		case <-ctx.Done():
		}
	}
	c.each((*holding).release)
	late := time.AfterFunc(c.Grace, abandon)
	defer late.Stop()
	c.running.Wait()
	c.leave(work)
	return nil
}

// each calls f for every partition that the consumer has.
func (c *Consumer) each(f func(*holding)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range c.holdings {
		f(h)
	}
}

// hurry makes Run look for partitions now.
func (c *Consumer) hurry() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// sleep pauses, and returns false when the context or stop ends first.
func sleep(ctx context.Context, stop <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-stop:
		return false
	case <-ctx.Done():
		return false
	}
}
