package aggregator

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/stream"
)

// The kinds of gaps in what is counted, as the table has them.
const (
	gapUncounted = "uncounted" // before the first aggregator
	gapLost      = "lost"      // the stream had forgotten changes
	gapSkipped   = "skipped"   // a change was left out
)

// beginning is the partition of the gap before the first aggregator. No partition has this name.
const beginning = "@begin"

// streamKept is how long DynamoDB keeps the changes of a stream.
const streamKept = 24 * time.Hour

// noteGap records that changes were not counted, with one write. It does not change a recorded gap.
func (bs *base) noteGap(ctx context.Context, kind, partition string, from, to time.Time) error {
	item := layout.StreamGap{Key: layout.StreamGapKey{Since: int(from.UnixMilli()), Partition: partition}, To: to.UnixMilli(), Kind: kind}
	absent, err := layout.Insert()
	if err == nil {
		_, err = bs.table.Write(ctx, store.Write{Kind: store.Put, Key: item.Key.Key(), Item: item.Encode(), Expr: absent})
	}
	return err
}

// noteBegin notes up to when consumption was not counted, since no aggregator had read the stream yet: up to the beginning of the stream,
// and not at all where nothing was consumed before. It reads the registry of namespaces, and makes one write.
func (a *Aggregator) noteBegin(ctx context.Context, partitions []store.Partition) error {
	begin, made := streamBegin(partitions, a.options.clock())
	unused, err := a.unusedBefore(ctx, partitions, begin, made)
	if err != nil {
		return err
	}
	if unused {
		begin = time.UnixMilli(0) // so that a call that is repeated after the first use notes nothing else
	}
	return a.noteGap(ctx, gapUncounted, beginning, time.UnixMilli(0), begin)
}

// streamBegin returns the time from which on a stream has all changes that are made, and whether it was made then. A stream of DynamoDB
// has the changes of a day, or those since it was made, whose time is in the names of its partitions. Other stores log changes
// since the partitions were listed for the first time, which is now.
func streamBegin(partitions []store.Partition, now time.Time) (begin time.Time, made bool) {
	made = len(partitions) > 0
	for _, p := range partitions {
		label, _, _ := strings.Cut(p.ID, "/")
		since, named := madeAt(label)
		oldest := now.Add(-streamKept)
		switch {
		case !named:
			since, made = now, false
		case since.Before(oldest):
			since, made = oldest, false
		}
		if since.After(begin) {
			begin = since
		}
	}
	if begin.IsZero() {
		begin = now
	}
	return begin, made
}

// unusedBefore reports whether nothing was consumed before the beginning of a stream, of which partitions were listed. Nothing is consumed
// before a namespace is registered. Registrations have whole seconds, and a stream that is made after a registration is made seconds
// later. A store other than DynamoDB deletes a bucket that has expired only when it creates another one. It thus has a bucket
// from the first use on, and one that was used before its log began has one that the log did not see coming. Where no
// namespace is registered yet, nothing was consumed of any that will be.
func (a *Aggregator) unusedBefore(ctx context.Context, partitions []store.Partition, begin time.Time, made bool) (bool, error) {
	var logged *bucketLog
	q := layout.QueryNamespaceIDs()
	q.Consistent = true
	for item, err := range a.table.Items(ctx, q) {
		var ns layout.NamespaceID
		if err == nil {
			ns, err = layout.DecodeNamespaceID(item)
		}
		if err != nil {
			return false, err
		}
		unused := made && !layout.ParseTime(ns.CreatedAt).Before(begin.Truncate(time.Second))
		if !unused && !a.table.Partitioned() {
			if logged == nil {
				if logged, err = a.readBucketLog(ctx, partitions); err != nil {
					return false, err
				}
			}
			unused, err = a.hasNoBucket(ctx, ns.ID, logged)
		}
		if err != nil || !unused {
			return false, err
		}
	}
	return true, nil
}

// hasNoBucket reports whether a namespace has no bucket but those that came after the log had begun. The store enters all of them in the
// index of the namespace.
func (a *Aggregator) hasNoBucket(ctx context.Context, id string, logged *bucketLog) (bool, error) {
	if logged.older {
		return false, nil
	}
	q := layout.QueryNamespaceItems(id)
	_, first := layout.BucketKey{NS: id}.NamespaceIndex()
	kind, _, _ := strings.Cut(first, "#")
	q.Prefix = kind + "#"
	q.Limit = 1 + len(logged.came)
	for item, err := range a.table.Items(ctx, q) {
		key := store.KeyOf(item)
		if _, isBucket := layout.ParseBucketKey(key); err != nil || isBucket && !logged.came[key] {
			return false, err
		}
	}
	return true, nil
}

// A bucketLog is what a log of changes has of buckets.
type bucketLog struct {
	came  map[store.Key]bool // since the log began
	older bool               // one that was there before has changed since, or the log is too long to say
}

// mostLogged bounds the changes that are read of a log which is not read yet.
const mostLogged = 10_000

// readBucketLog reads a log from its beginning.
func (a *Aggregator) readBucketLog(ctx context.Context, partitions []store.Partition) (*bucketLog, error) {
	logged := &bucketLog{came: map[store.Key]bool{}}
	source, ok := a.table.Store().(store.Streamer)
	if !ok {
		return logged, nil
	}
	n := 0
	for _, p := range partitions {
		for at := (store.Position{}); ; {
			page, err := source.Changes(ctx, p.ID, at, a.options.batch)
			if err != nil {
				return nil, err
			}
			logged.add(page.Changes)
			if n += len(page.Changes); n > mostLogged {
				logged.older = true
			}
			if at = page.Next; logged.older || page.End || len(page.Changes) == 0 {
				break
			}
		}
	}
	return logged, nil
}

func (b *bucketLog) add(changes []store.Change) {
	for i := range changes {
		c := &changes[i]
		if _, isBucket := layout.ParseBucketKey(c.Key); !isBucket {
			continue
		}
		b.older = b.older || c.Old != nil && !b.came[c.Key]
		b.came[c.Key] = true
	}
}

// madeAt returns when a stream was made by its label: a time, or seconds since the epoch on engines for tests.
func madeAt(label string) (time.Time, bool) {
	if made, err := time.Parse("2006-01-02T15:04:05.000", label); err == nil {
		return made, true
	}
	seconds, err := strconv.ParseFloat(label, 64)
	return time.UnixMilli(int64(seconds * 1000)).UTC(), err == nil && seconds > 1e9 && seconds < 1e11
}

// skips reports whether a failing change is skipped. It is skipped only after that was recorded.
func (a *Aggregator) skips(c store.Change, failed error) bool {
	if !isRefusal(failed) {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), noteTimeout)
	defer cancel()
	if err := a.noteGap(ctx, gapSkipped, string(c.Sequence), c.At, c.At.Add(time.Millisecond)); err != nil {
		a.log(ctx, &a.outages.failing, news[stream.Skipped].level, "aggregator: a change that is left out could not be noted, and is tried again", err)
		return false
	}
	return true
}

// noteTimeout bounds the write that notes a change left out.
const noteTimeout = 10 * time.Second
