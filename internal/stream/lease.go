package stream

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/internal/store"
)

// A Lease is the agreement of consumers on one partition: how far its changes are applied, and by which consumer. A
// lease whose partition starts with [waitingMark] belongs to no partition. The lease then is of a consumer
// waiting for one, or names the last consumer that listed the partitions.
type Lease struct {
	Partition string
	// Position is the last applied change; "" for none. In the record of a waiting consumer it comes from [watch.testify].
	Position  store.Sequence
	Owner     string    // the consumer that has the partition; "" for none
	Beats     int64     // writes of the record: each counts one on
	Finished  bool      // the partition has ended, and all of it is applied
	AppliedTo int64     // up to when all changes are applied, by the clock of the owner, epoch milliseconds; 0 while it is not known
	ExpiresAt time.Time // when the record may be deleted; zero for never
	Broken    string    // why the record cannot be read, and has only its partition; "" for a readable one
}

// isOpen reports whether the lease is of a partition that is to be read.
func (l *Lease) isOpen() bool {
	return l.Broken == "" && !l.Finished && !strings.HasPrefix(l.Partition, waitingMark)
}

// matches reports whether two leases say the same of a partition.
func (l Lease) matches(other Lease) bool {
	l.ExpiresAt = other.ExpiresAt // as precise as the store is
	return l == other
}

// Leases keeps leases where all consumers of a table find them. It is safe for concurrent use.
type Leases interface {
	// List returns the leases of partitions from one on, in the order of their ids, with those whose records cannot be read.
	// It may return some before that; "" stands for all.
	List(ctx context.Context, from string) ([]Lease, error)

	// Save writes a lease if the record has been written Beats-1 times; at the first write, the record must not exist. It
	// returns the record as it is afterwards, or the zero Lease when it does not exist, and whether it wrote.
	Save(ctx context.Context, next Lease) (found Lease, saved bool, err error)

	// Delete deletes leases with any content.
	Delete(ctx context.Context, partitions []string) error

	// Holds reports whether a key is that of a lease. Changes of leases are not applied.
	Holds(k store.Key) bool
}

const (
	waitingMark = "@"
	// listing is the partition of the record that says who listed the partitions last. No consumer has an empty name.
	listing = waitingMark

	// keepFinished is how long the record of a finished partition is kept, and keepWaiting that of a consumer. The first
	// outlives the partition in every store. Without it the partition would be read again.
	keepFinished = 48 * time.Hour
	keepWaiting  = 24 * time.Hour
)

// A watch knows since when leases have not been written, by this process's own clock. So a consumer detects that another one is gone,
// without comparing the clocks of two machines.
type watch map[string]sighting

type sighting struct {
	beats int64
	since time.Time
}

// see notes leases that were read at a time or before.
func (w watch) see(leases []Lease, now time.Time) {
	known := map[string]bool{}
	for i := range leases {
		l := &leases[i]
		known[l.Partition] = true
		if s, ok := w[l.Partition]; !ok || s.beats != l.Beats {
			w[l.Partition] = sighting{l.Beats, now}
		}
	}
	for partition := range w {
		if !known[partition] {
			delete(w, partition)
		}
	}
}

// Processes that live for less than a term pass on how long they saw leases stand still, each by its own clock. The
// times add up, since each one's watch ended before the next one read of it. The next one must have watched for a third
// of the term itself, in which a living owner writes.

// testify returns for how long leases of others have not been written, for processes to come. The result is "" for none.
func (w watch) testify(leases []Lease, now time.Time) store.Sequence {
	seen := url.Values{}
	for i := range leases {
		if l := &leases[i]; l.isOpen() && l.Owner != "" && w.silence(l, now) > 0 && len(seen) < mostTestified {
			seen.Set(l.Partition, fmt.Sprint(l.Beats, " ", w.silence(l, now).Milliseconds()))
		}
	}
	return store.Sequence(seen.Encode())
}

// believe takes over what others saw of leases read at a time or before.
func (w watch) believe(leases []Lease, term time.Duration, now time.Time) {
	for i := range leases {
		if l := &leases[i]; !strings.HasPrefix(l.Partition, waitingMark) || l.Partition == listing {
			continue
		}
		seen, err := url.ParseQuery(string(leases[i].Position))
		if err != nil {
			continue // another program's
		}
		for partition, reported := range seen {
			var beats, ms int64
			if _, err := fmt.Sscan(reported[0], &beats, &ms); err != nil || ms <= 0 {
				continue
			}
			since := now.Add(-min(time.Duration(ms)*time.Millisecond, term-term/3))
			if s, ok := w[partition]; ok && s.beats == beats && since.Before(s.since) {
				w[partition] = sighting{beats, since}
			}
		}
	}
}

// mostTestified bounds the partitions of one testimony.
const mostTestified = 100

// silence returns for how long a lease has not been written, as far as is known: 0 for one that was not seen before.
func (w watch) silence(l *Lease, now time.Time) time.Duration {
	s, ok := w[l.Partition]
	if !ok {
		return 0
	}
	return now.Sub(s.since)
}
