package zlimit_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A hooked store counts calls, and asks a hook before each call that writes; an error of the hook takes the place of the call.
type hooked struct {
	store.Around
	late   time.Duration        // what each call that writes takes
	counts func(store.Key) bool // the writes that the hook is asked before; nil for all
	hook   atomic.Pointer[func(writes ...store.Write) error]
	reads  atomic.Int64
	writes atomic.Int64
}

// hook returns a store without a hook yet.
func hook(s zlimit.Store) *hooked { return hookOn(store.Of(s)) }

func hookOn(s store.Store) *hooked {
	h := &hooked{}
	h.Around = store.Around{Store: s, Call: h.call}
	return h
}

// hookBuckets returns a store whose hook is asked before writes of buckets.
func hookBuckets(s store.Store) *hooked {
	h := hookOn(s)
	h.counts = func(key store.Key) bool {
		_, ok := layout.ParseBucketKey(key)
		return ok
	}
	return h
}

// set sets the hook.
func (h *hooked) set(f func(writes ...store.Write) error) { h.hook.Store(&f) }

// once sets a function to call before the next write.
func (h *hooked) once(do func()) {
	var hook func(writes ...store.Write) error
	hook = func(...store.Write) error {
		if h.hook.CompareAndSwap(&hook, nil) {
			do()
		}
		return nil
	}
	h.hook.Store(&hook)
}

// unset takes the hook away.
func (h *hooked) unset() { h.hook.Store(nil) }

func (h *hooked) call(ctx context.Context, c *store.Call, do func(context.Context) error) error {
	writes := c.Writes
	switch c.Operation {
	case "read":
		h.reads.Add(1)
		return do(ctx)
	case "query":
		return do(ctx)
	case "delete":
		for _, k := range c.Keys {
			writes = append(writes, store.Write{Kind: store.Delete, Key: k})
		}
	}
	h.writes.Add(1)
	time.Sleep(h.late)
	asks := h.counts == nil || slices.ContainsFunc(writes, func(w store.Write) bool { return h.counts(w.Key) })
	if f := h.hook.Load(); f != nil && asks {
		if err := (*f)(writes...); err != nil {
			return err
		}
	}
	return do(ctx)
}

// times returns a hook that returns an error so many times.
func times(n int64, err error) func(...store.Write) error {
	var calls atomic.Int64
	return func(...store.Write) error {
		if calls.Add(1) <= n {
			return err
		}
		return nil
	}
}

// A throttledReads is a store that is asked to read too often.
type throttledReads struct {
	*hooked
	on      atomic.Bool
	buckets bool // throttle those of buckets alone
}

func (r *throttledReads) Read(ctx context.Context, keys []store.Key, consistent bool) ([]expr.Item, error) {
	isBucket := func(k store.Key) bool { return strings.Contains(k.PK, "BUCKET#") }
	if r.on.Load() && (!r.buckets || slices.ContainsFunc(keys, isBucket)) {
		return nil, &store.Error{Op: "BatchGetItem", Unavailable: true, Throttled: true, Err: errors.New("slow down")}
	}
	return r.hooked.Read(ctx, keys, consistent)
}

// A slowReads is a store on whose replies something happens before they arrive.
type slowReads struct {
	*hooked
	meanwhile func()
}

func (r *slowReads) Read(ctx context.Context, keys []store.Key, consistent bool) ([]expr.Item, error) {
	items, err := r.hooked.Read(ctx, keys, consistent)
	if r.meanwhile != nil {
		r.meanwhile()
	}
	return items, err
}

// A lagged store answers eventual reads, once it is frozen, by what the reads before found.
type lagged struct {
	store.Store
	mu     sync.Mutex
	frozen bool
	items  map[store.Key]expr.Item
}

func (s *lagged) freeze() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.frozen = true
}

func (s *lagged) Read(ctx context.Context, keys []store.Key, consistent bool) ([]expr.Item, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	items, err := s.Store.Read(ctx, keys, consistent)
	for i, key := range keys {
		if old, ok := s.items[key]; ok && s.frozen && !consistent {
			items[i] = old
		} else if err == nil && !s.frozen {
			s.items[key] = items[i]
		}
	}
	return items, err
}

// A heldReads store keeps the reply of one read back when it is asked to.
type heldReads struct {
	store.Store
	mu         sync.Mutex
	read, goOn chan struct{} // nil for nothing to keep back
}

// hold keeps the reply of the next read back: it closes read when there is one, until goOn is closed.
func (h *heldReads) hold() (read, goOn chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.read, h.goOn = make(chan struct{}), make(chan struct{})
	return h.read, h.goOn
}

func (h *heldReads) Read(ctx context.Context, keys []store.Key, consistent bool) ([]expr.Item, error) {
	items, err := h.Store.Read(ctx, keys, consistent)
	h.mu.Lock()
	read, goOn := h.read, h.goOn
	h.read, h.goOn = nil, nil
	h.mu.Unlock()
	if read != nil {
		close(read)
		<-goOn
	}
	return items, err
}

// A behind store does not know any item yet when it is not asked for consistency.
type behind struct{ store.Store }

func (b behind) Read(ctx context.Context, keys []store.Key, consistent bool) ([]expr.Item, error) {
	if !consistent {
		return make([]expr.Item, len(keys)), nil
	}
	return b.Store.Read(ctx, keys, consistent)
}
