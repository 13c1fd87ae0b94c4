package migrate

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/compare"
	"github.com/zlimit/zlimit-go/internal/store"
)

// shown returns the contents of a store as text.
func shown(t *testing.T, s store.Store) (lines []string) {
	t.Helper()
	for _, item := range contents(t, s) {
		lines = append(lines, fmt.Sprintf("%v %v", store.KeyOf(item), item))
	}
	slices.Sort(lines)
	return lines
}

// TestAbortInPlace aborts a migration in place at whatever call it is killed, while programs write: the table is as it
// would be without it.
func TestAbortInPlace(t *testing.T) {
	for _, release := range []string{"0.9", "0.10.0"} {
		for at := 1; ; at++ {
			done := false
			synctest.Test(t, func(t *testing.T) {
				w := newTestbedInPlace(t, release)
				run := &process{writer: w.write}
				m, err := Start(t.Context(), w.config(run))
				if err == nil {
					err = errors.Join(m.Copy(t.Context()), m.CatchUp(t.Context()), m.Release(t.Context()))
				}
				check.Fatal(t, "Start()", err)
				abort := func(p *process) (deleted int64, err error) {
					m, err := Resume(t.Context(), w.config(p))
					if err != nil {
						return 0, err
					}
					return m.Abort(t.Context())
				}
				p := &process{killAt: at, after: at%2 == 0, writer: w.write}
				_, err = abort(p)
				if done = !p.dead; !done {
					if _, err = abort(&process{}); errors.Is(err, ErrNone) {
						err = nil
					}
				}
				if err != nil {
					t.Fatalf("%s, killed at call %d: %v", release, at, err)
				}
				if diff := cmp.Diff(shown(t, w.source), shown(t, w.place)); diff != "" {
					t.Errorf("%s, killed at call %d: the table (-without +got):\n%s", release, at, diff)
				}
			})
			if done || t.Failed() {
				break
			}
		}
	}
}

// TestInPlaceDeletesLast asks that no item of the source goes, or changes, before the end.
func TestInPlaceDeletesLast(t *testing.T) {
	for _, release := range releases {
		synctest.Test(t, func(t *testing.T) {
			w := newTestbedInPlace(t, release)
			p := &process{writer: w.write}
			m, err := Start(t.Context(), w.config(p))
			if err == nil {
				err = m.Copy(t.Context())
			}
			if p.writer = nil; err == nil {
				err = m.CatchUp(t.Context())
			}
			check.Fatal(t, "Start()", err)
			have := map[store.Key]expr.Item{}
			for _, item := range contents(t, w.place) {
				have[store.KeyOf(item)] = item
			}
			for _, item := range contents(t, w.source) {
				if key := store.KeyOf(item); !have[key].Equal(item) && key != (layout.VersionKey{}).Key() {
					t.Errorf("%s: %v is %v, want %v", release, key, have[key], item)
				}
			}
			unknown := int64(0)
			for _, l := range derive(w.rules(), contents(t, w.source)).Losses {
				if l.Reason == lostUnknown {
					unknown++
				}
			}
			if v, err := m.Verify(t.Context()); err != nil || !v.Exact() || v.Items == 0 || v.Losses[lostUnknown] != unknown {
				t.Errorf("%s: Verify() = %+v, %v", release, v, err)
			}
		})
	}
}

// TestVerifyInPlace changes what a migration in place has added, in every way. What programs of 0.10.0 may delete is restored by the
// changes that are applied between two looks.
func TestVerifyInPlace(t *testing.T) {
	for name, test := range map[string]struct {
		change func(layout.BucketKey) store.Write
		want   Verification
	}{
		"a missing item": {func(k layout.BucketKey) store.Write { return store.Write{Kind: store.Delete, Key: k.Key()} }, Verification{Different: 1}},
		"another item": {func(k layout.BucketKey) store.Write {
			return store.Write{Kind: store.Put, Key: k.Key(), Item: expr.Item{{Name: "rf", Value: expr.N(1)}}}
		}, Verification{Different: 1}},
		"one more": {func(k layout.BucketKey) store.Write {
			k.Entity = "other"
			return store.Write{Kind: store.Put, Key: k.Key(), Item: expr.Item{{Name: "rf", Value: expr.N(1)}}}
		}, Verification{Extra: 1}},
	} {
		for _, release := range []string{"0.7", "0.10.0"} {
			synctest.Test(t, func(t *testing.T) {
				w := newTestbedInPlace(t, release)
				m, err := Start(t.Context(), w.config(&process{}))
				if err == nil {
					err = errors.Join(m.Copy(t.Context()), m.CatchUp(t.Context()))
				}
				check.Fatal(t, "Start()", err)
				change := test.change(layout.BucketKey{NS: w.rules().NS, Entity: "key-1", Resource: "gpt-4"})
				if _, err := w.place.Write(t.Context(), change); err != nil {
					t.Fatalf("Write() = %v", err)
				}
				before := len(contents(t, w.place))
				want := test.want
				if release == "0.10.0" && name == "a missing item" {
					want.Different = 0
				}
				v, err := m.Verify(t.Context())
				if err != nil || v.Different != want.Different || v.Extra != want.Extra {
					t.Errorf("%s, %s: Verify() = %+v, %v", release, name, v, err)
				}
				if _, err := m.Finish(t.Context()); release == "0.7" && !errors.Is(err, ErrDiffers) {
					t.Errorf("%s, %s: Finish() = %v", release, name, err)
				}
				if release == "0.7" && len(contents(t, w.place)) < before {
					t.Errorf("%s, %s: items were deleted though the table differs", release, name)
				}
			})
		}
	}
}

// In TestInPlaceRestores, programs of 0.10.0 delete what was added, together with an entity and by itself.
func TestInPlaceRestores(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTestbedInPlace(t, "0.10.0")
		m, err := Start(t.Context(), w.config(&process{}))
		if err == nil {
			err = m.Copy(t.Context())
		}
		check.Fatal(t, "Start()", err)
		removed := 0
		for _, item := range contents(t, w.place) {
			if key := store.KeyOf(item); isMoved(key) {
				removed++
				check.Fatal(t, "Delete()", w.place.Delete(t.Context(), []store.Key{key}))
			}
		}
		if _, err := m.Finish(t.Context()); err != nil || removed < 2 {
			t.Fatalf("Finish() = %v after %d items were removed", err, removed)
		}
		w.check()
	})
}

// TestInPlaceRefusals asks for tables that cannot be migrated in place, which are left as they are.
func TestInPlaceRefusals(t *testing.T) {
	later := layout.BucketKey{NS: "a7x3kq_w-Zs", Entity: "x", Resource: "y"}
	for name, test := range map[string]struct {
		release string
		item    expr.Item
		want    error
	}{
		"a bucket of a later release":                             {"0.10.0", later.Key().Join((&layout.Bucket{Key: later, RefilledAt: 5}).Encode()), ErrNotEmpty},
		"items without a namespace beside those of the namespace": {"0.10.0", fixture(t, "0.9")[0], ErrMixed},
	} {
		w := newTestbedInPlace(t, test.release)
		fill(t, w.place, []expr.Item{test.item})
		before := shown(t, w.place)
		if _, err := Start(t.Context(), w.config(&process{})); !errors.Is(err, test.want) {
			t.Errorf("%s: Start() = %v, want %v", name, err, test.want)
		}
		compare.Equal(t, fmt.Sprintf("%s: the table", name), before, shown(t, w.place))
	}
}

// TestPlanInPlace compares the plan with what the migration then does.
func TestPlanInPlace(t *testing.T) {
	for _, release := range releases {
		synctest.Test(t, func(t *testing.T) {
			w := newTestbedInPlace(t, release)
			p := check.Call(MakePlan(t.Context(), w.config(&process{}), 1000)).Must(t, "MakePlan()")
			check.Fatal(t, "run()", w.run(&process{}))
			_, counts, err := Find(t.Context(), Config{Target: w.place})
			if err != nil || counts[CountWritten] != p.Targets || counts[CountDeleted] == 0 || p.InPlace.Delete.Write == 0 {
				t.Errorf("%s: %d items written and %d deleted, %v; the plan said %d", release, counts[CountWritten], counts[CountDeleted], err, p.Targets)
			}
		})
	}
}

// TestMixed refuses a namespace that has items, where leftovers of a release without namespaces would join it. Two buckets
// could have the same key. The table to migrate to is as it was.
func TestMixed(t *testing.T) {
	for _, leftover := range fixture(t, "0.9") {
		if !isBare(store.KeyOf(leftover)) {
			continue
		}
		w := newTestbed(t, "0.10.0")
		fill(t, w.source, []expr.Item{leftover})
		key := store.KeyOf(leftover)
		for namespace, mixed := range map[string]bool{"default": true, "another": false} {
			c := w.config(&process{})
			c.Namespace = namespace
			id, ok, err := NamespaceIn(t.Context(), c, namespace)
			if err != nil || ok != mixed || ok && id != w.rules().NS {
				t.Fatalf("NamespaceIn(%s) = %q, %t, %v", namespace, id, ok, err)
			}
			p, err := MakePlan(t.Context(), c, 1000)
			if err != nil || (p.Mix != nil) != mixed {
				t.Fatalf("%v, %s: plan %+v, %v", key, namespace, p, err)
			}
			if !mixed {
				continue
			}
			if p.Mix.Bare != key || !strings.HasPrefix(p.Mix.With.PK, id+"/") || p.Mix.Namespace != namespace {
				t.Errorf("%v: the plan says %+v", key, p.Mix)
			}
			c.Rules.NS = id
			err = CheckMixed(t.Context(), c)
			if !errors.Is(err, ErrMixed) || !strings.Contains(err.Error(), fmt.Sprintf("PK %q, SK %q", key.PK, key.SK)) {
				t.Errorf("%v: CheckMixed() = %v", key, err)
			}
		}
	}
	for _, release := range releases { // without leftovers, or without a namespace
		w := newTestbed(t, release)
		c := w.config(&process{})
		c.Namespace = "default"
		if p, err := MakePlan(t.Context(), c, 1000); err != nil || p.Mix != nil {
			t.Errorf("%s: plan %+v, %v", release, p, err)
		}
		if err := CheckMixed(t.Context(), c); err != nil {
			t.Errorf("%s: CheckMixed() = %v", release, err)
		}
	}
}
