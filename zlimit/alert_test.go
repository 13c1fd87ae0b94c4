package zlimit_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/compare"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// notices collects alerts.
type notices struct {
	mu  sync.Mutex
	all []zlimit.BudgetAlert
}

func (n *notices) add(_ context.Context, a zlimit.BudgetAlert) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = append(n.all, a)
	return nil
}

// take returns who has come to which threshold, and forgets it.
func (n *notices) take() map[string]int {
	n.mu.Lock()
	defer n.mu.Unlock()
	got := map[string]int{}
	for _, a := range n.all {
		got[a.ID]++
	}
	n.all = nil
	return got
}

// In TestBudgetAlerts, three processes use up budgets of a day, of a session and of a prepaid credit, of an entity and of its parent. Each
// threshold notifies once a period over all of them.
func TestBudgetAlerts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMemory(t)
		var n notices
		var events int
		var limiters []*zlimit.RateLimiter
		for range 3 {
			l, err := zlimit.New(t.Context(), s, zlimit.WithBudgetAlerts(n.add, 50, 90), zlimit.WithObserver(func(_ context.Context, e zlimit.Event) {
				if e.Kind == zlimit.EventAlert {
					n.mu.Lock()
					events++
					n.mu.Unlock()
				}
			}))
			check.Fatal(t, "zlimit.New()", err)
			defer l.Close()
			limiters = append(limiters, l)
		}
		l := limiters[0]
		create(t, l, zlimit.Entity{ID: "team"})
		create(t, l, zlimit.Entity{ID: "key", ParentID: "team", Cascade: true})
		set := func(entity string, limits ...zlimit.Limit) {
			t.Helper()
			setLimits(t, l, zlimit.Level{Entity: entity, Resource: "gpt"}, limits...)
		}
		day, session, credit := zlimit.Daily("day", 100, "UTC"), zlimit.Session("session", 100, time.Hour), zlimit.Prepaid("credit", 100)
		rate := zlimit.PerMinute("rate", 100) // no budget
		set("key", day, session, credit, rate)
		set("team", zlimit.Daily("day", 1000, "UTC"))
		use := func(who int, limit string, amount int64) *zlimit.Lease {
			t.Helper()
			lease := acquire(t, limiters[who], zlimit.Request{Entity: "key", Resource: "gpt", Consume: zlimit.Amounts{limit: amount}})
			synctest.Wait()
			return lease
		}
		began := time.Now().UTC().Truncate(24 * time.Hour)
		id := func(entity, limit string, since int64, threshold string) string {
			return entity + "/gpt/" + limit + "/" + strconv.FormatInt(since, 10) + "/" + threshold
		}
		expect := func(what string, want ...string) {
			t.Helper()
			once := map[string]int{}
			for _, id := range want {
				once[id] = 1
			}
			compare.Equal(t, what, once, n.take())
		}
		use(0, "day", 49)
		use(0, "rate", 100)
		expect("below all thresholds")
		use(0, "day", 1)
		expect("half of the day", id("key", "day", began.UnixMilli(), "50"))
		use(1, "day", 2)
		use(2, "day", 2)
		use(0, "day", 2)
		expect("other processes come to it later")
		lease := use(1, "day", 2)
		check.Fatal(t, "Adjust()", lease.Adjust(zlimit.Amounts{"day": 40}))
		check.Fatal(t, "Commit()", lease.Commit(t.Context()))
		synctest.Wait()
		expect("the settlement of a lease", id("key", "day", began.UnixMilli(), "90"))
		for i := range 3 {
			use(i, "credit", 30)
		}
		expect("a credit", id("key", "credit", 0, "50"), id("key", "credit", 0, "90"))
		use(0, "session", 60)
		if got := n.take(); len(got) != 1 {
			t.Errorf("half of a session: %v", got)
		}
		time.Sleep(24 * time.Hour)
		use(2, "day", 95)
		next := began.AddDate(0, 0, 1).UnixMilli()
		expect("both thresholds of the next day", id("key", "day", next, "50"), id("key", "day", next, "90"))
		if events != 7 {
			t.Errorf("%d events, want 7", events)
		}
		alerts, err := l.Usage.Alerts(t.Context(), "key", "gpt")
		if err != nil || len(alerts) != 7 {
			t.Errorf("Alerts() = %d, %v, want 7", len(alerts), err)
		}
	})
}

// TestBudgetAlertOfEachWay charges 60 of 100 in each way that a budget can be charged, 10 of them when the request is admitted where it is
// settled later. The process that charges them, which may know nothing of the bucket, notifies of the entity and its parent.
func TestBudgetAlertOfEachWay(t *testing.T) {
	type processes struct{ first, second *zlimit.RateLimiter }
	request := func(amount int64) zlimit.Request {
		return zlimit.Request{Entity: "key", Resource: "gpt", Consume: zlimit.Amounts{"day": amount}}
	}
	token := func(opts ...zlimit.SettleOption) func(context.Context, processes) error {
		return func(ctx context.Context, p processes) error {
			lease, err := p.first.Acquire(ctx, request(10))
			if err != nil {
				return err
			}
			token, err := lease.Token(time.Hour)
			if err != nil {
				return err
			}
			return p.second.Settle(ctx, token, zlimit.Amounts{"day": 60}, opts...)
		}
	}
	settled := func(id string) func(context.Context, processes) error {
		return func(ctx context.Context, p processes) error {
			r := request(10)
			r.ID = id
			lease, err := p.first.Acquire(ctx, r)
			if err != nil {
				return err
			}
			if err := lease.Adjust(zlimit.Amounts{"day": 50}); err != nil {
				return err
			}
			return lease.Commit(ctx)
		}
	}
	for name, charge := range map[string]func(context.Context, processes) error{
		"a request": func(ctx context.Context, p processes) error {
			_, err := p.second.Acquire(ctx, request(60))
			return err
		},
		"a request that waits": func(ctx context.Context, p processes) error {
			_, err := p.second.Wait(ctx, request(60), zlimit.MaxWait(time.Minute))
			return err
		},
		"a request with an ID": func(ctx context.Context, p processes) error {
			r := request(60)
			r.ID = "call-1"
			_, err := p.second.Acquire(ctx, r)
			return err
		},
		"requests together": func(ctx context.Context, p processes) error {
			_, err := p.second.AcquireAll(ctx, []zlimit.Request{request(30), request(30)})
			return err
		},
		"more for a lease": func(ctx context.Context, p processes) error {
			lease, err := p.second.Acquire(ctx, request(10))
			if err != nil {
				return err
			}
			return lease.Consume(ctx, zlimit.Amounts{"day": 50})
		},
		"a lease":                      settled(""),
		"a lease of a request with ID": settled("call-1"),
		"a token":                      token(),
		"a token, exactly":             token(zlimit.SettleExactly()),
		"a token, trusted":             token(zlimit.SettleTrusted()),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, p, got := newMemory(t), processes{}, notices{}
				for _, l := range []**zlimit.RateLimiter{&p.first, &p.second} {
					var err error
					if *l, err = zlimit.New(t.Context(), s, zlimit.WithBudgetAlerts(got.add, 50)); err != nil {
						t.Fatalf("zlimit.New() = %v", err)
					}
					defer (*l).Close()
				}
				for _, e := range []zlimit.Entity{{ID: "team"}, {ID: "key", ParentID: "team", Cascade: true}} {
					create(t, p.first, e)
				}
				limits := []zlimit.Limit{zlimit.Daily("day", 100, "UTC")}
				setLimits(t, p.first, zlimit.Level{Resource: "gpt"}, limits...)
				check.Fatal(t, "charge()", charge(t.Context(), p))
				synctest.Wait()
				since := strconv.FormatInt(time.Now().UTC().Truncate(24*time.Hour).UnixMilli(), 10)
				want := map[string]int{"key/gpt/day/" + since + "/50": 1, "team/gpt/day/" + since + "/50": 1}
				compare.Equal(t, "alerts", want, got.take())
			})
		})
	}
}

// TestBudgetAlertIsTriedAgain notes a budget once the store takes it, and tries once a minute until then.
func TestBudgetAlertIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := hook(newMemory(t))
		var refused atomic.Int64
		s.set(func(w ...store.Write) error {
			if _, ok := layout.ParseAlertKey(w[0].Key); !ok {
				return nil
			}
			refused.Add(1)
			return &store.Error{Op: "write", Err: errors.New("not now")}
		})
		var n notices
		l, err := zlimit.New(t.Context(), store.NewHandle(s, false), zlimit.WithSetup(), zlimit.WithBudgetAlerts(n.add, 50))
		check.Fatal(t, "zlimit.New()", err)
		defer l.Close()
		limits := []zlimit.Limit{zlimit.Daily("day", 100, "UTC")}
		setLimits(t, l, zlimit.Level{Resource: "gpt"}, limits...)
		use := func() {
			t.Helper()
			acquire(t, l, zlimit.Request{Entity: "key", Resource: "gpt", Consume: zlimit.Amounts{"day": 5}})
			synctest.Wait()
		}
		for range 15 {
			use()
		}
		first := refused.Load()
		time.Sleep(2 * time.Minute)
		use()
		if again := refused.Load(); first == 0 || again != 2*first || len(n.take()) > 0 {
			t.Errorf("%d writes at first, and %d a minute later, want as many once more", first, again-first)
		}
		s.unset()
		time.Sleep(2 * time.Minute)
		use()
		use()
		if got := n.take(); len(got) != 1 {
			t.Errorf("alerts = %v, want one", got)
		}
	})
}

func TestBudgetAlertsValidate(t *testing.T) {
	var n notices
	for name, o := range map[string]zlimit.Option{
		"no function":    zlimit.WithBudgetAlerts(nil, 50),
		"no threshold":   zlimit.WithBudgetAlerts(n.add),
		"a wrong order":  zlimit.WithBudgetAlerts(n.add, 90, 50),
		"more than all":  zlimit.WithBudgetAlerts(n.add, 101),
		"none of it":     zlimit.WithBudgetAlerts(n.add, 0),
		"one twice":      zlimit.WithBudgetAlerts(n.add, 50, 50),
		"too many of it": zlimit.WithBudgetAlerts(n.add, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11),
	} {
		if _, err := zlimit.New(t.Context(), newMemory(t), o); !errors.As(err, new(*zlimit.ValidationError)) {
			t.Errorf("%s: %v, want a ValidationError", name, err)
		}
	}
}
