package dashboard

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/maypok86/otter/v2"

	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/recent"
)

// first returns the first values of a sequence, of which there are at most this many; all of them for 0.
func first[T any](most int, all iter.Seq2[T, error]) (values []T, err error) {
	for v, err := range all {
		if err != nil {
			return nil, err
		}
		if values = append(values, v); len(values) == most {
			break
		}
	}
	return values, nil
}

// upTo returns the first values of a list, and whether there are more.
func upTo[T any](most int, values []T) ([]T, bool) {
	return values[:min(len(values), most)], len(values) > most
}

// statuses are where all limits of buckets stand.
func statuses(buckets []zlimit.Bucket) iter.Seq2[*zlimit.Bucket, *zlimit.Status] {
	return func(yield func(*zlimit.Bucket, *zlimit.Status) bool) {
		for i := range buckets {
			for j := range buckets[i].Statuses {
				if !yield(&buckets[i], &buckets[i].Statuses[j]) {
					return
				}
			}
		}
	}
}

func isNotFound(err error) bool { return errors.Is(err, zlimit.ErrEntityNotFound) }

func isNoLimits(err error) bool { return errors.Is(err, zlimit.ErrNoLimits) }

// A feed reads the store once for all who look, and only while someone does.
type feed struct {
	p        *page
	memories *otter.Cache[string, *memory] // who still looks after one is dropped reads again
}

// A memory is the last answer to a question.
type memory struct {
	lock   chan struct{} // holds a value while someone reads
	value  any
	next   time.Time // before which it is not read again, by the clock of the machine
	failed error
}

const mostMemories = 4096

func newFeed(p *page) *feed {
	return &feed{p: p, memories: otter.Must(&otter.Options[string, *memory]{MaximumSize: mostMemories})}
}

// forget makes the next look at anything read again: someone changed something here.
func (f *feed) forget() { f.memories.InvalidateAll() }

// once returns the answer to a question, from memory for a time. A failure is remembered for a second, so that an outage is not hammered.
func once[T any](ctx context.Context, f *feed, key string, keep time.Duration, read func(context.Context) (T, error)) (value T, err error) {
	return onceFor(ctx, f, key, func(T) time.Duration { return keep }, read)
}

// onceFor is [once] for a time that depends on the answer.
func onceFor[T any](ctx context.Context, f *feed, key string, keep func(T) time.Duration, read func(context.Context) (T, error)) (value T, err error) {
	m, _ := f.memories.SetIfAbsent(key, &memory{lock: make(chan struct{}, 1)})
	select { // a reading that hangs holds no one up for longer than their own time
	case m.lock <- struct{}{}:
		defer func() { <-m.lock }()
	case <-ctx.Done():
		return value, ctx.Err()
	}
	begin := time.Now()
	if begin.Before(m.next) {
		value, _ = m.value.(T)
		return value, m.failed
	}
	value, err = read(ctx)
	switch took := time.Since(begin); {
	case err == nil:
		m.value, m.failed = value, nil
		m.next = time.Now().Add(max(keep(value), 4*took)) // at most a fifth of the time is spent reading
	case !errors.Is(ctx.Err(), context.Canceled): // by a browser that is gone
		m.failed, m.next = err, time.Now().Add(time.Second)
	}
	return value, err
}

// A reading is the buckets of a resource at a time.
type reading struct {
	Buckets  []zlimit.Bucket
	Coverage zlimit.Coverage
	At       time.Time
}

func (f *feed) buckets(ctx context.Context, resource string) (reading, error) {
	return onceFor(ctx, f, "buckets "+resource, func(r reading) time.Duration {
		keep := f.p.Every - 100*time.Millisecond
		if f.p.BucketsPerSecond > 0 {
			keep = max(keep, time.Duration(float64(len(r.Buckets))/f.p.BucketsPerSecond*float64(time.Second)))
		}
		return keep
	}, func(ctx context.Context) (r reading, err error) {
		if r.Buckets, err = first(0, f.p.Limiter.Usage.Buckets(ctx, resource)); err != nil {
			return r, err
		}
		r.Coverage, err = once(ctx, f, "coverage "+resource, time.Minute, func(ctx context.Context) (zlimit.Coverage, error) {
			return f.p.Limiter.Usage.Coverage(ctx, resource)
		})
		r.At = f.p.Now()
		return r, err
	})
}

// resources are the names of resources with usage, with limits of their own, or with calls of this process.
func (f *feed) resources(ctx context.Context) ([]string, error) {
	stored, err := once(ctx, f, "resources", 10*time.Second, func(ctx context.Context) ([]string, error) {
		names, err := first(0, f.p.Limiter.Usage.Resources(ctx))
		if err != nil {
			return nil, err
		}
		limited, err := first(0, f.p.Limiter.Resources.List(ctx))
		for _, of := range limited {
			names = append(names, of.ID)
		}
		return names, err
	})
	names := slices.AppendSeq(slices.Clone(stored), maps.Keys(f.p.Recent.Calls()))
	slices.Sort(names)
	return slices.Compact(names), err
}

// rejected are the refusals that all processes reported of the last full minute.
func (f *feed) rejected(ctx context.Context, resource string) (zlimit.Rejections, error) {
	return once(ctx, f, "rejected "+resource, 10*time.Second, func(ctx context.Context) (zlimit.Rejections, error) {
		to := f.p.Now().Truncate(time.Minute)
		return f.p.Limiter.Usage.Rejected(ctx, zlimit.RejectedQuery{From: to.Add(-time.Minute), To: to, Resource: resource})
	})
}

// rejectedOf are the refusals of a time: what all processes have reported, and what this one has not yet.
func (p *page) rejectedOf(ctx context.Context, resource string, since time.Duration) (map[recent.Refusal]int64, error) {
	now := p.Now()
	reported, err := p.Limiter.Usage.Rejected(ctx, zlimit.RejectedQuery{From: now.Add(-since), To: now, Resource: resource})
	if err != nil {
		return nil, err
	}
	by := map[recent.Refusal]int64{}
	for _, r := range slices.Concat(reported.Heaviest, p.Limiter.Rejected().Heaviest) {
		if resource == "" || r.Resource == resource {
			by[recent.Refusal{Entity: r.Entity, Resource: r.Resource, LimitEntity: r.LimitEntity, Limit: r.Limit}] += r.Count
		}
	}
	return by, nil
}

// parent is the parent of an entity; "" for none.
func (f *feed) parent(ctx context.Context, entity string) (string, error) {
	return once(ctx, f, "parent of "+entity, time.Minute, func(ctx context.Context) (string, error) {
		e, err := f.p.Limiter.Entities.Get(ctx, entity)
		if isNotFound(err) {
			err = nil
		}
		return e.ParentID, err
	})
}

const (
	mostChildren = 1000
	mostParents  = 8
)

// children is how many children an entity has, up to a bound.
func (f *feed) children(ctx context.Context, entity string) (int, error) {
	return once(ctx, f, "children of "+entity, time.Minute, func(ctx context.Context) (int, error) {
		children, err := first(mostChildren, f.p.Limiter.Entities.Children(ctx, entity))
		return len(children), err
	})
}

// lineage are an entity and its parents, the nearest first; none of "".
func (f *feed) lineage(ctx context.Context, entity string) (all []string, err error) {
	for err == nil && entity != "" && len(all) <= mostParents {
		all = append(all, entity)
		entity, err = f.parent(ctx, entity)
	}
	return all, err
}

// changes are the last changes of the namespace, the latest first.
func (f *feed) changes(ctx context.Context, since time.Duration, most int) ([]change, error) {
	return once(ctx, f, "changes "+since.String(), 10*time.Second, func(ctx context.Context) ([]change, error) {
		return changesOf(f.p.Limiter.Audit.All(ctx, zlimit.AuditQuery{From: f.p.Now().Add(-since), Limit: most, Reverse: true}))
	})
}
