package zlimit_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// others returns the attributes that other programs keep in an item, and this module has no use for: those of zae-limiter 0.17, and one of
// a later release.
func others(key store.Key) []expr.Attribute {
	all := []expr.Attribute{text("x_later", "kept")}
	switch {
	case key.SK == "#STATE":
		all = append(all, integer("b_day_gc", 1), integer("b_day_rn", 7), integer("b_ses_gc", 1))
	case strings.HasPrefix(key.SK, "#USAGE#"):
		all = append(all, integer("day#od", 3))
	}
	return all
}

// everything returns all items of a store.
func everything(t *testing.T, s zlimit.Store) map[store.Key]expr.Item {
	t.Helper()
	all := map[store.Key]expr.Item{}
	for q := (store.Scan{}); ; {
		page := check.Call(store.Of(s).(store.Scanner).Scan(context.Background(), q)).Must(t, "Scan()")
		for _, item := range page.Items {
			all[store.KeyOf(item)] = item
		}
		if q.Continue = page.Next; page.Next == nil {
			return all
		}
	}
}

// In TestAttributesOfOthersStay, each writer of a limiter changes items in which other programs keep attributes. Items that remain
// afterwards still have all of these.
func TestAttributesOfOthersStay(t *testing.T) {
	ctx, c, s := context.Background(), newClock(), newMemory(t)
	open := func() *zlimit.RateLimiter { return newLimiter(t, s, zlimit.WithClock(c.now), zlimit.WithConfigTTL(0)) }
	l := open()
	pair, entity, resource := zlimit.Level{Entity: "key-1", Resource: "gpt-4"}, zlimit.Level{Entity: "key-1"}, zlimit.Level{Resource: "gpt-4"}
	limits := []zlimit.Limit{zlimit.Monthly("day", 100, "UTC"), zlimit.Session("ses", 100, time.Hour), zlimit.PerMinute("rpm", 60)}
	config := zlimit.Config{Limits: limits}
	newChains(t, l, []string{"org", "key-1"}, []string{"two"})
	for _, at := range []zlimit.Level{{}, resource, entity, pair} {
		check.Fatal(t, "Limits.Set()", l.Limits.Set(ctx, at, config))
	}
	declare := func(limits []zlimit.Limit) error {
		_, err := l.Limits.Apply(ctx, zlimit.Declaration{Resource: "gpt-5", Limits: limits})
		return err
	}
	manage := func(rpm int64) error {
		return l.Managed.Run(ctx, func(ctx context.Context, run *zlimit.ManagedRun) error {
			found, err := l.Managed.Read(ctx, resource, entity)
			for i := 0; i < len(found) && err == nil; i++ {
				want := found[i]
				want.Config.Limits = append(slices.Clone(limits[:2]), zlimit.PerMinute("rpm", rpm))
				_, err = run.Replace(ctx, found[i], want)
			}
			return errors.Join(err, run.Record(ctx, zlimit.ManagedSet{Levels: []zlimit.Level{resource, entity}, Manager: "limits.yaml"}))
		})
	}
	check.Fatal(t, "declare() and manage()", errors.Join(declare(limits), manage(120)))
	ask := ask(zlimit.Amounts{"day": 2, "ses": 2, "rpm": 2})
	switched := func(_ zlimit.SwitchReport, err error) error { return err }
	changed := func(_ zlimit.BucketChange, err error) error { return err }
	for _, writer := range []struct {
		name  string
		write func() error
	}{
		{"creation", func() error { return acquire(t, l, ask).Commit(ctx) }},
		{"spend", func() error { return acquire(t, l, ask).Commit(ctx) }},
		{"refund", func() error { return acquire(t, l, ask).Rollback(ctx) }},
		{"refill", func() error {
			c.sleep(30 * time.Second)
			return acquire(t, l, ask).Commit(ctx)
		}},
		{"session", func() error {
			c.sleep(2 * time.Hour)
			return acquire(t, l, ask).Commit(ctx)
		}},
		{"period", func() error {
			c.sleep(31 * 24 * time.Hour)
			return acquire(t, l, ask).Commit(ctx)
		}},
		{"limits", func() error {
			config.Limits = append(slices.Clone(limits[:2]), zlimit.PerMinute("rpm", 70), zlimit.PerMinute("tpm", 10))
			return errors.Join(l.Limits.Set(ctx, pair, config), acquire(t, l, ask).Commit(ctx))
		}},
		{"fewer limits", func() error {
			config.Limits = limits
			return errors.Join(l.Limits.Set(ctx, pair, config), acquire(t, l, ask).Commit(ctx))
		}},
		{"update", func() error {
			return l.Limits.Update(ctx, resource, func(c *zlimit.Config) error {
				c.OnUnavailable = zlimit.PolicyBlock
				return nil
			})
		}},
		{"system", func() error {
			config := zlimit.Config{Limits: limits, AuditRetention: 240 * time.Hour}
			return errors.Join(l.Limits.Set(ctx, zlimit.Level{}, config), l.SetAuditRetention(ctx, 480*time.Hour))
		}},
		{"patch", func() error {
			return errors.Join(l.Limits.Patch(ctx, pair, zlimit.PerMinute("rpm", 80), zlimit.PerMinute("tpm", 80)), l.Limits.Exclude(ctx, pair, "rpm"),
				l.Limits.Inherit(ctx, pair, "rpm"))
		}},
		{"declaration", func() error { return declare(limits[:2]) }},
		{"managed levels", func() error { return manage(240) }},
		{"resource", func() error {
			return l.Resources.Put(ctx, zlimit.Resource{ID: "gpt-4", Cascade: zlimit.CascadeNever})
		}},
		{"disable", func() error { return switched(l.Limits.Disable(ctx, resource, nil)) }},
		{"enable", func() error { return switched(l.Limits.Enable(ctx, pair, nil)) }},
		{"bypass", func() error { return switched(l.Limits.Bypass(ctx, entity, nil)) }},
		{"leave", func() error {
			for _, at := range []zlimit.Level{resource, pair, entity} {
				if err := switched(l.Limits.LeaveSwitch(ctx, at, nil)); err != nil {
					return err
				}
			}
			return acquire(t, l, ask).Commit(ctx)
		}},
		{"reset", func() error {
			return changed(l.Limits.Reset(ctx, zlimit.ResetRequest{Entity: "key-1", Resource: "gpt-4"}))
		}},
		{"top-up", func() error {
			return changed(l.Limits.TopUp(ctx, zlimit.TopUpRequest{Entity: "key-1", Resource: "gpt-4", Amounts: zlimit.Amounts{"day": 5}}))
		}},
		{"move", func() error { return switched(l.Entities.SetParent(ctx, "key-1", "two")) }},
		{"charge", func() error { return acquire(t, open(), ask).Commit(ctx) }},
		{"entity", func() error {
			e, err := l.Entities.Get(ctx, "key-1")
			if err == nil {
				e.Name = "another"
				_, err = l.Entities.Update(ctx, e)
			}
			return err
		}},
		{"child", func() error {
			_, err := l.Entities.Create(ctx, zlimit.Entity{ID: "key-2", ParentID: "two"})
			return err
		}},
		{"namespaces", func() error {
			n, err := l.Namespaces.Register(ctx, "staging")
			if err == nil {
				_, err = l.Namespaces.Delete(ctx, "staging")
			}
			if err == nil {
				_, err = l.Namespaces.Recover(ctx, n.ID)
			}
			return err
		}},
	} {
		before := everything(t, s)
		for key := range before {
			mark(t, l, key, others(key)...)
			before[key] = stored(t, l, key)
		}
		if err := writer.write(); err != nil {
			t.Fatalf("%s: %v", writer.name, err)
		}
		after, changed := everything(t, s), 0
		for key, item := range after {
			was, had := before[key]
			if !had {
				continue
			}
			for _, a := range others(key) {
				if v := item.Get(a.Name); !v.Equal(a.Value) {
					t.Errorf("%s: %s of PK %q, SK %q is %v", writer.name, a.Name, key.PK, key.SK, v)
				}
			}
			if !item.Equal(was) {
				changed++
			}
		}
		if changed == 0 && !slices.Contains([]string{"creation", "namespaces"}, writer.name) {
			t.Errorf("%s changes nothing", writer.name)
		}
	}
}
