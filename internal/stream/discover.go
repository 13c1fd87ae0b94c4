package stream

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/internal/store"
)

// A stream may have thousands of partitions, and takes ten calls a second that list a hundred of them each. So
// consumers use leases only. The lease of a partition is made once its parent is applied to its end. The consumer of
// the parent makes it, or else the consumer whose turn it is to list all partitions.

// adoptions is how often a consumer looks for the children of a partition that has ended. After that they wait for the
// next listing.
const maxAdoptions = 6

// A knowledge is a consumer's memory between two looks. Only the goroutine of Run uses it.
type knowledge struct {
	from   string        // no partition before this one, nor its descendants, was to be read when all leases were last read
	readAt time.Time     // when that was
	period time.Duration // until this consumer lists the partitions unless another one does
	asked  time.Time     // when it last had its turn to
	looked bool
	owing  bool // it had its turn, and failed
}

// readLeases reads the leases. Most belong to finished partitions. These come first, since a partition comes after its parent, and are
// left out except once in the time between two listings.
func (c *Consumer) readLeases(ctx context.Context) ([]Lease, error) {
	k, now := &c.known, time.Now()
	all := now.Sub(k.readAt) >= c.Listing
	from := k.from
	if all {
		from = ""
	}
	leases, err := c.Leases.List(ctx, from)
	if err != nil {
		return nil, err
	}
	if all {
		k.readAt, k.from = now, firstOpen(waitingMark, leases)
	}
	return leases, nil
}

// firstOpen returns the first of a partition and of those that are to be read.
func firstOpen(first string, leases []Lease) string {
	for _, l := range open(leases) {
		first = min(first, l.Partition)
	}
	return first
}

// discover lists the partitions when it is this consumer's turn. It returns the new leases, of readable partitions
// that had none. It deletes leases that have expired.
func (c *Consumer) discover(ctx context.Context, leases []Lease, now time.Time) (fresh []Lease, err error) {
	k := &c.known
	due := c.due(leases, now)
	k.looked = true
	if !due {
		return nil, nil
	}
	turn, err := c.takeTurn(ctx, leases)
	k.asked, k.owing = now, turn || err != nil
	if !turn || err != nil {
		return nil, err
	}
	// In this order, a listed lease has a partition in the list after it, or its partition is gone.
	if leases, err = c.Leases.List(ctx, ""); err != nil {
		return nil, err
	}
	partitions, err := c.list(ctx)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(leases, func(l Lease) bool { return !strings.HasPrefix(l.Partition, waitingMark) }) {
		if err := c.Begin(ctx, partitions); err != nil {
			return nil, err
		}
	}
	for _, partition := range ready(leases, partitions) {
		l, made, err := c.Leases.Save(ctx, Lease{Partition: partition, Beats: 1})
		if err != nil {
			return fresh, err
		}
		if made { // by another consumer otherwise
			fresh = append(fresh, l)
		}
	}
	k.from = firstOpen(k.from, fresh)
	if err := c.Leases.Delete(ctx, c.expired(leases, partitions)); err != nil {
		return fresh, err
	}
	k.period, k.owing = c.Listing+rand.N(c.Listing/4+1), false
	return fresh, nil
}

// due reports whether to list the partitions: when this consumer has seen no list for a while, or knows no readable partition. A consumer
// that starts uses the time in the record once, since it has seen nothing.
func (c *Consumer) due(leases []Lease, now time.Time) bool {
	k := &c.known
	at := slices.IndexFunc(leases, func(l Lease) bool { return l.Partition == listing })
	switch {
	case k.owing || at < 0:
		return true
	case leases[at].Broken != "":
		return now.Sub(k.asked) >= k.period
	case !k.looked && !c.Now().Before(leases[at].ExpiresAt.Add(c.Listing-keepWaiting)):
		return true
	}
	silence := c.seen.silence(&leases[at], now)
	return silence >= k.period || silence >= c.Term/3 && len(open(leases)) == 0
}

// takeTurn writes that this consumer lists the partitions now. The result is false when another one was faster.
func (c *Consumer) takeTurn(ctx context.Context, leases []Lease) (bool, error) {
	next := Lease{Partition: listing, Owner: c.Name, Beats: 1, ExpiresAt: c.Now().Add(keepWaiting)}
	if at := slices.IndexFunc(leases, func(l Lease) bool { return l.Partition == listing }); at >= 0 {
		if leases[at].Broken != "" {
			return true, nil // everyone lists until an operator deletes the record
		}
		next.Beats = leases[at].Beats + 1
	}
	_, saved, err := c.Leases.Save(ctx, next)
	return saved, err
}

func (c *Consumer) list(ctx context.Context) ([]store.Partition, error) {
	partitions, err := c.Source.Partitions(ctx)
	if errors.Is(err, store.ErrNoStream) { // it was turned off since it was not read
		if err = c.Source.StartStream(ctx); err == nil {
			partitions, err = c.Source.Partitions(ctx)
		}
	}
	return partitions, err
}

// ready returns the readable partitions without a lease. Their parent is finished, or is in neither list since it ended
// long ago. The children of a partition whose lease cannot be read are not ready, since nothing says how far it is
// applied.
func ready(leases []Lease, partitions []store.Partition) (ids []string) {
	leased, finished, known := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for i := range leases {
		leased[leases[i].Partition], known[leases[i].Partition] = true, true
		finished[leases[i].Partition] = leases[i].Finished
	}
	for _, p := range partitions {
		known[p.ID] = true
	}
	for _, p := range partitions {
		if !leased[p.ID] && (!known[p.Parent] || finished[p.Parent]) {
			ids = append(ids, p.ID)
		}
	}
	return ids
}

// expired returns the leases whose time is over, of consumers and of finished partitions that the stream has forgotten.
func (c *Consumer) expired(leases []Lease, partitions []store.Partition) (ids []string) {
	listed := map[string]bool{listing: true}
	for _, p := range partitions {
		listed[p.ID] = true
	}
	now := c.Now()
	for i := range leases {
		l := &leases[i]
		if l.Broken == "" && !l.isOpen() && !listed[l.Partition] && !l.ExpiresAt.IsZero() && l.ExpiresAt.Before(now) {
			ids = append(ids, l.Partition)
		}
	}
	return ids
}

// adopt makes the leases of the children of a partition that has ended. When it finds none, or fails, it is to be tried
// again at the next looks.
func (c *Consumer) adopt(ctx context.Context, partition string) {
	children, err := c.Source.Children(ctx, partition)
	for _, child := range children {
		if err == nil {
			_, _, err = c.Leases.Save(ctx, Lease{Partition: child.ID, Beats: 1})
		}
	}
	if err != nil && ctx.Err() == nil {
		c.Report(Event{Kind: Trouble, Partition: partition, Err: err})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	left, again := c.parents[partition]
	if !again {
		left = maxAdoptions
	}
	if left--; left > 0 && (err != nil || len(children) == 0) {
		c.parents[partition] = left
	} else {
		delete(c.parents, partition)
	}
}

// adoptLate adopts the children that were not found when their parents ended.
func (c *Consumer) adoptLate(ctx context.Context) {
	c.mu.Lock()
	parents := slices.Sorted(maps.Keys(c.parents))
	c.mu.Unlock()
	for _, p := range parents {
		c.adopt(ctx, p)
	}
}
