package provision_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"pgregory.net/rapid"

	"github.com/zlimit/zlimit-go/internal/declaration"
	"github.com/zlimit/zlimit-go/internal/deploy/provision"
	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A clock that tests move.
type clock struct{ millis atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.millis.Store(time.Date(2026, 2, 20, 12, 0, 0, 0, time.UTC).UnixMilli())
	return c
}

func (c *clock) now() time.Time        { return time.UnixMilli(c.millis.Load()).UTC() }
func (c *clock) sleep(d time.Duration) { c.millis.Add(d.Milliseconds()) }

// A spy is a store that a test looks into, and that may die. hook is asked before each call, and after it.
type spy struct {
	store.Store
	hook    func(before bool, writes []store.Write) error
	journal func(first store.Key, do func() bool) // nil for none
}

func (s *spy) around(writes []store.Write, do func() error) error {
	if s.hook == nil {
		return do()
	}
	if err := s.hook(true, writes); err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	return s.hook(false, writes)
}

func (s *spy) Read(ctx context.Context, keys []store.Key, consistent bool) (items []expr.Item, err error) {
	err = s.around(nil, func() error {
		items, err = s.Store.Read(ctx, keys, consistent)
		return err
	})
	return items, err
}

func (s *spy) Query(ctx context.Context, q store.Query) (page store.Page, err error) {
	err = s.around(nil, func() error {
		page, err = s.Store.Query(ctx, q)
		return err
	})
	return page, err
}

func (s *spy) Write(ctx context.Context, w store.Write) (result store.Result, err error) {
	err = s.around([]store.Write{w}, func() error {
		result, err = s.Store.Write(ctx, w)
		return err
	})
	return result, err
}

func (s *spy) Transact(ctx context.Context, writes []store.Write) (results []store.Result, err error) {
	err = s.around(writes, func() error {
		do := func() bool {
			results, err = s.Store.Transact(ctx, writes)
			return err == nil && !slices.ContainsFunc(results, func(r store.Result) bool { return !r.Applied })
		}
		if s.journal == nil {
			do()
		} else {
			s.journal(writes[0].Key, do)
		}
		return err
	})
	return results, err
}

// A testbed is a store with its clock.
type testbed struct {
	tb    rapid.TB
	clock *clock
	store zlimit.Store
}

func newTestbed(tb rapid.TB) *testbed {
	s := check.Call(zlimit.Memory()).Must(tb, "zlimit.Memory()")
	w := &testbed{tb, newClock(), s}
	check.Fatal(tb, "Setup()", w.limiter("setup", nil).Setup(context.Background()))
	return w
}

// limiter returns a limiter of a person or program, whose calls a hook sees.
func (w *testbed) limiter(who string, hook func(bool, []store.Write) error) *zlimit.RateLimiter {
	return w.spied(who, hook, nil)
}

func (w *testbed) spied(who string, hook func(bool, []store.Write) error, journal func(store.Key, func() bool)) *zlimit.RateLimiter {
	s := &spy{Store: store.Of(w.store), journal: journal}
	l := check.Call(zlimit.New(context.Background(), store.NewHandle(s, false), zlimit.WithSetup(), zlimit.WithClock(w.clock.now),
		zlimit.WithPrincipal(who), zlimit.WithConfigTTL(0))).Must(w.tb, "zlimit.New()")
	s.hook = hook
	return l
}

func (w *testbed) provisioner(who string, hook func(bool, []store.Write) error) *provision.Provisioner {
	return provision.New(w.limiter(who, hook), zlimit.DefaultNamespace, w.clock.now)
}

// load returns the levels of a document.
func load(tb rapid.TB, text string) []zlimit.Stored {
	tb.Helper()
	d := check.Call(declaration.Load("limits.yaml", []byte(text))).Must(tb, "declaration.Load()")
	return provision.Declared(d)
}

// stored returns what is stored in the namespace, as a document.
func (w *testbed) stored() string {
	d, _, err := w.provisioner("reader", nil).Import(context.Background())
	check.Fatal(w.tb, "Import()", err)
	text := check.Call(declaration.Format(d)).Must(w.tb, "declaration.Format()")
	return string(text)
}

func actions(plan *provision.Plan) []string {
	var all []string
	for _, c := range plan.Changes {
		all = append(all, string(c.Action)+" "+c.After.Level.String())
	}
	return all
}

const two = "resources: { a: { limits: { rpm: { rate: 1/s } } }, b: { limits: { rpm: { rate: 2/s } } } }\n"

// A content is what is stored at a level: the capacity of its limit, 0 for none, and its policy.
type content struct {
	capacity int64
	policy   zlimit.FailurePolicy
}

// contentOf returns what is stored once a level is.
func contentOf(l zlimit.Stored) content {
	c := content{policy: l.Config.OnUnavailable}
	if len(l.Config.Limits) > 0 {
		c.capacity = l.Config.Limits[0].Capacity
	}
	return c
}

// contents returns what is stored at each level that says something.
func (w *testbed) contents() map[zlimit.Level]content {
	found := check.Call(w.limiter("reader", nil).Managed.Read(context.Background(), places()...)).Must(w.tb, "Managed.Read()")
	stored := map[zlimit.Level]content{}
	for _, l := range found {
		if !l.Config.IsZero() {
			stored[l.Level] = contentOf(l)
		}
	}
	return stored
}

// levelAt returns the level that an item holds the config of.
func levelAt(key store.Key) (zlimit.Level, bool) {
	if _, ok := layout.ParseSystemConfigKey(key); ok {
		return zlimit.Level{}, true
	}
	if k, ok := layout.ParseResourceConfigKey(key); ok {
		return zlimit.Level{Resource: k.Resource}, true
	}
	k, ok := layout.ParseEntityConfigKey(key)
	if k.Resource == zlimit.DefaultResource {
		k.Resource = ""
	}
	return zlimit.Level{Entity: k.Entity, Resource: k.Resource}, ok
}

var errKilled = errors.New("killed")

// mortal returns the hook of a process that is killed at a call, before it is carried out or after.
func mortal(at int, after bool) (hook func(bool, []store.Write) error, died func() bool) {
	calls, dead := 0, false
	return func(before bool, _ []store.Write) error {
		if before {
			calls++
		}
		if dead = dead || calls == at && before != after; dead {
			return errKilled
		}
		return nil
	}, func() bool { return dead }
}
