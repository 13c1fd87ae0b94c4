package page

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/recent"
)

// A feed reads the store once for all who look, and only while someone does.
type feed struct {
	p *page

	mu       sync.Mutex
	memories map[string]*memory
}

// A memory is the last answer to a question.
type memory struct {
	lock   chan struct{} // holds a value while someone reads
	value  any
	at     time.Time // when it was read, by the clock of the machine
	next   time.Time // before which it is not read again
	failed error
}

const mostMemories = 4096

func newFeed(p *page) feed { return feed{p: p, memories: map[string]*memory{}} }

func (f *feed) memory(key string) *memory {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.memories[key]
	if m == nil {
		if len(f.memories) >= mostMemories {
			clear(f.memories) // who still looks reads again
		}
		m = &memory{lock: make(chan struct{}, 1)}
		f.memories[key] = m
	}
	return m
}

// forget makes the next look at anything read again: someone changed something here.
func (f *feed) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.memories)
}

// once returns the answer to a question, from memory for a time. A failure is remembered for a second, so that an outage is not hammered.
func once[T any](ctx context.Context, f *feed, key string, keep time.Duration, read func(context.Context) (T, error)) (value T, at time.Time, err error) {
	return onceFor(ctx, f, key, func(T) time.Duration { return keep }, read)
}

// onceFor is [once] for a time that depends on the answer.
func onceFor[T any](ctx context.Context, f *feed, key string, keep func(T) time.Duration, read func(context.Context) (T, error)) (value T, at time.Time, err error) {
	m := f.memory(key)
	select { // a reading that hangs holds no one up for longer than their own time
	case m.lock <- struct{}{}:
		defer func() { <-m.lock }()
	case <-ctx.Done():
		return value, time.Time{}, ctx.Err()
	}
	begin := time.Now()
	if begin.Before(m.next) {
		if m.failed != nil {
			return value, m.at, m.failed
		}
		return m.value.(T), m.at, nil
	}
	value, err = read(ctx)
	if err != nil {
		if !errors.Is(ctx.Err(), context.Canceled) { // by a browser that is gone
			m.failed, m.next = err, time.Now().Add(time.Second)
		}
		return value, m.at, err
	}
	took := time.Since(begin)
	m.value, m.failed, m.at = value, nil, f.p.Now()
	m.next = time.Now().Add(max(keep(value), 4*took)) // at most a fifth of the time is spent reading
	return value, m.at, nil
}

// A reading is the buckets of a resource at a time.
type reading struct {
	Buckets  []zlimit.Bucket
	Coverage zlimit.Coverage
}

func (f *feed) buckets(ctx context.Context, resource string) (reading, time.Time, error) {
	keep := f.p.Every - 100*time.Millisecond
	return onceFor(ctx, f, "buckets "+resource, func(r reading) time.Duration {
		if f.p.BucketsPerSecond > 0 {
			keep = max(keep, time.Duration(float64(len(r.Buckets))/f.p.BucketsPerSecond*float64(time.Second)))
		}
		return keep
	}, func(ctx context.Context) (r reading, err error) {
		if r.Buckets, err = first(0, f.p.Limiter.Usage.Buckets(ctx, resource)); err != nil {
			return r, err
		}
		r.Coverage, _, err = once(ctx, f, "coverage "+resource, time.Minute, func(ctx context.Context) (zlimit.Coverage, error) {
			return f.p.Limiter.Usage.Coverage(ctx, resource)
		})
		return r, err
	})
}

// resources are the names of resources with usage, with limits of their own, or with calls of this process.
func (f *feed) resources(ctx context.Context) ([]string, error) {
	stored, _, err := once(ctx, f, "resources", 10*time.Second, func(ctx context.Context) ([]string, error) {
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
	r, _, err := once(ctx, f, "rejected "+resource, 10*time.Second, func(ctx context.Context) (zlimit.Rejections, error) {
		to := f.p.Now().Truncate(time.Minute)
		return f.p.Limiter.Usage.Rejected(ctx, zlimit.RejectedQuery{From: to.Add(-time.Minute), To: to, Resource: resource})
	})
	return r, err
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

// A relation is where an entity is in the tree.
type relation struct {
	Parent   string
	Children int
	Known    bool // whether the entity is stored
}

const (
	mostChildren = 1000
	mostParents  = 8
)

func (f *feed) relation(ctx context.Context, entity string, isParent bool) (relation, error) {
	key := "relation " + entity
	if isParent {
		key = "parent " + entity
	}
	r, _, err := once(ctx, f, key, time.Minute, func(ctx context.Context) (r relation, err error) {
		e, err := f.p.Limiter.Entities.Get(ctx, entity)
		if err == nil {
			r.Parent, r.Known = e.ParentID, true
		} else if !isNotFound(err) {
			return r, err
		}
		if !isParent {
			return r, nil
		}
		children, err := first(mostChildren, f.p.Limiter.Entities.Children(ctx, entity))
		r.Children = len(children)
		return r, err
	})
	return r, err
}

// lineage are an entity and its parents, the nearest first; none of "".
func (f *feed) lineage(ctx context.Context, entity string) (all []string, err error) {
	for entity != "" && len(all) <= mostParents {
		all = append(all, entity)
		r, err := f.relation(ctx, entity, false)
		if err != nil {
			return nil, err
		}
		entity = r.Parent
	}
	return all, nil
}

// changes are the last changes of the namespace, the latest first.
func (f *feed) changes(ctx context.Context, since time.Duration, most int) ([]zlimit.AuditEvent, error) {
	events, _, err := once(ctx, f, "changes "+since.String(), 10*time.Second, func(ctx context.Context) ([]zlimit.AuditEvent, error) {
		return first(0, f.p.Limiter.Audit.All(ctx, zlimit.AuditQuery{From: f.p.Now().Add(-since), Limit: most, Reverse: true}))
	})
	return events, err
}
