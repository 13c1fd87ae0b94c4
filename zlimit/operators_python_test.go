package zlimit_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
	"github.com/zlimit/zlimit-go/internal/proof/sibling"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/store/dynamo"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A mixedFleet is a limiter and zae-limiter 0.17 on one table, with one clock.
type mixedFleet struct {
	*testing.T
	clock  *clock
	l      *zlimit.RateLimiter
	other  *sibling.Process
	random *rand.Rand
}

func newMixedFleet(t *testing.T, seed uint64, opts ...zlimit.Option) *mixedFleet {
	t.Helper()
	engine := enginetest.Start(t)
	table := engine.Table(t)
	c := newClock()
	s := zlimit.StoreOn(dynamo.New(engine.Client(), table, layout.Table, withoutStream))
	l := newLimiter(t, s, append(opts, zlimit.WithClock(c.now))...)
	versioned{t, store.Of(s)}.write(zlimit.SchemaVersion, zlimit.ClientMinVersion, "0.17.0") // of an aggregator, for which zae-limiter asks
	return &mixedFleet{t, c, l, sibling.Start(t, table, zlimit.DefaultNamespace), rand.New(rand.NewPCG(seed, 17))}
}

// set makes one of the two programs store the limits of the resource.
func (f *mixedFleet) set(theirs bool, limits []zlimit.Limit, described ...sibling.Limit) {
	f.Helper()
	if theirs {
		f.other.Call(f.T, f.clock.now(), "set_resource_defaults", "gpt-4", described)
		return
	}
	setLimits(f, f.l, zlimit.Level{Resource: "gpt-4"}, limits...)
}

// take makes one of the two programs take, and give something back.
func (f *mixedFleet) take(theirs bool, amount, back int64) string {
	f.Helper()
	if theirs {
		return f.other.Take(f.T, f.clock.now(), sibling.Take{Consume: map[string]int64{"day": amount}, Back: map[string]int64{"day": back}})
	}
	lease, err := f.l.Acquire(context.Background(), ask(zlimit.Amounts{"day": amount}))
	switch {
	case errors.As(err, new(*zlimit.ExceededError)):
		return "rejected"
	case errors.Is(err, zlimit.ErrDisabled):
		return "disabled"
	case err != nil:
		f.Fatalf("Acquire() = %v", err)
	}
	check.Fatal(f, "Adjust() and Commit()", errors.Join(lease.Adjust(zlimit.Amounts{"day": -back}), lease.Commit(context.Background())))
	return "admitted"
}

// otherSwitches makes zae-limiter disable a level, bypass it, or leave that to wider levels.
func (f *mixedFleet) otherSwitches(how string, at zlimit.Level) {
	f.Helper()
	form := map[string]string{"disable": "disable_%s", "bypass": "bypass_%s", "leave": "clear_%s_disabled"}[how]
	what, arguments := "resource", []any{at.Resource}
	if at.Entity != "" {
		what, arguments = "entity", []any{at.Entity}
		if at.Resource != "" {
			arguments = append(arguments, at.Resource)
		}
	}
	f.other.Call(f.T, f.clock.now(), fmt.Sprintf(form, what), arguments...)
}

// In TestSessionsWithSibling, zlimit and zae-limiter take of one session quota by turns. Both open sessions, which the other one
// sees, and admit what is left of them.
func TestSessionsWithSibling(t *testing.T) {
	const amount, length = 20, time.Hour
	for seed := range uint64(2) {
		f := newMixedFleet(t, seed, zlimit.WithMixedFleet())
		f.set(seed == 1, []zlimit.Limit{zlimit.Session("day", amount, length)}, sibling.Limit{"name": "day", "amount": amount, "session": length.Seconds()})
		left, end := int64(amount), time.Time{}
		outcomes := map[string]int{}
		for step := range 40 {
			f.clock.sleep(time.Duration(f.random.IntN(20)) * time.Minute)
			take, want := 1+f.random.Int64N(14), "rejected"
			back := f.random.Int64N(take + 1)
			if !f.clock.now().Before(end) {
				left, end = amount, f.clock.now().Add(length)
			}
			if take <= left {
				want, left = "admitted", left-take+back
			}
			outcomes[want]++
			theirs := f.random.IntN(2) == 0
			if got := f.take(theirs, take, back); got != want {
				t.Fatalf("seed %d, step %d at %v: %d are %s, want %s; zae-limiter: %t", seed, step, f.clock.now(), take, got, want, theirs)
			}
		}
		if outcomes["admitted"] < 10 || outcomes["rejected"] < 3 {
			t.Errorf("seed %d: %v", seed, outcomes)
		}
	}
}

// In TestWindowsWithSibling, zlimit and zae-limiter take all that a limit holds, in its windows and outside of them.
func TestWindowsWithSibling(t *testing.T) {
	for seed := range uint64(2) {
		f := newMixedFleet(t, seed)
		f.set(seed == 1, []zlimit.Limit{zlimit.PerMinute("day", 60).When("* 9-17 * * *", "x0.5").In("America/New_York")},
			sibling.Limit{"name": "day", "amount": 60, "windows": []map[string]any{{"cron": "* 9-17 * * *", "tz": "America/New_York", "scale": 0.5}}})
		zone := check.Call(time.LoadLocation("America/New_York")).Must(t, "time.LoadLocation()")
		seen := map[int64]int{}
		for step := range 12 {
			f.clock.sleep(time.Duration(5+f.random.IntN(200)) * time.Minute)
			holds := int64(60)
			if hour := f.clock.now().In(zone).Hour(); 9 <= hour && hour <= 17 {
				holds = 30
			}
			seen[holds]++
			first := f.random.IntN(2) == 0
			if got := f.take(first, holds+1, 0); got != "rejected" {
				t.Fatalf("seed %d, step %d at %v: %d of %d are %s; zae-limiter: %t", seed, step, f.clock.now(), holds+1, holds, got, first)
			}
			f.clock.sleep(time.Second)
			if got := f.take(!first, holds, 0); got != "admitted" {
				t.Fatalf("seed %d, step %d at %v: %d are %s; zae-limiter: %t", seed, step, f.clock.now(), holds, got, !first)
			}
		}
		if len(seen) != 2 {
			t.Errorf("seed %d: %v", seed, seen)
		}
	}
}

// In TestSwitchesWithSibling, zlimit and zae-limiter each disable an entity, a resource, and an entity for a resource. The other
// one, which knows the bucket, refuses the next request, and serves one a second after the level is enabled.
func TestSwitchesWithSibling(t *testing.T) {
	f := newMixedFleet(t, 1, zlimit.WithMixedFleet()) // zae-limiter finds the buckets of a resource by the index
	f.set(false, []zlimit.Limit{zlimit.PerMinute("day", 1000)})
	ctx := context.Background()
	for _, theirs := range []bool{false, true} {
		for _, at := range []zlimit.Level{{Entity: "key-1"}, {Resource: "gpt-4"}, {Entity: "key-1", Resource: "gpt-4"}} {
			f.clock.sleep(5 * time.Second)
			for _, by := range []bool{false, true} {
				if got := f.take(by, 1, 0); got != "admitted" {
					t.Fatalf("%v: before, a request is %s; zae-limiter: %t", at, got, by)
				}
			}
			turn := func(how string) {
				t.Helper()
				if theirs {
					f.otherSwitches(how, at)
					return
				}
				var err error
				switch how {
				case "disable":
					_, err = f.l.Limits.Disable(ctx, at, nil)
				default:
					_, err = f.l.Limits.LeaveSwitch(ctx, at, nil)
				}
				check.Fatal(t, how, err)
			}
			turn("disable")
			for range 2 {
				for _, by := range []bool{false, true} {
					if got := f.take(by, 1, 0); got != "disabled" {
						t.Errorf("%v: a request is %s; zae-limiter: %t, disabled by it: %t", at, got, by, theirs)
					}
				}
				f.clock.sleep(2 * time.Second)
			}
			turn("leave")
			f.clock.sleep(2 * time.Second)
		}
	}
}

// In TestManualWithSibling, zlimit and zae-limiter each reset a bucket, and top it up, between takes of both. What is left is as
// they report, and an operation ID counts once.
func TestManualWithSibling(t *testing.T) {
	const amount = 20
	for seed := range uint64(2) {
		f := newMixedFleet(t, seed, zlimit.WithMixedFleet())
		f.set(seed == 1, []zlimit.Limit{zlimit.Cron("day", amount, "0 0 1 1 *", "UTC")}, sibling.Limit{"name": "day", "amount": amount, "cron": "0 0 1 1 *", "zone": "UTC"})
		ctx := context.Background()
		left, outcomes := int64(amount), map[string]int{}
		f.take(false, 1, 0)
		left--
		for step := range 40 {
			f.clock.sleep(time.Duration(f.random.IntN(100)) * time.Second)
			theirs := f.random.IntN(2) == 0
			switch id := fmt.Sprint("op-", step); f.random.IntN(6) {
			case 0:
				for range 2 { // the second one changes nothing
					if theirs {
						f.other.Call(t, f.clock.now(), "reset_bucket", "key-1", "gpt-4", []string{"day"}, sibling.Named{"idempotency_key": id})
					} else if _, err := f.l.Limits.Reset(ctx, zlimit.ResetRequest{Entity: "key-1", Resource: "gpt-4", OperationID: id}); err != nil {
						t.Fatalf("Limits.Reset() = %v", err)
					}
				}
				left = amount
				outcomes["reset"]++
			case 1:
				more := 1 + f.random.Int64N(5)
				for range 2 {
					if theirs {
						f.other.Call(t, f.clock.now(), "top_up", "key-1", "gpt-4", map[string]int64{"day": more}, sibling.Named{"idempotency_key": id})
					} else if _, err := f.l.Limits.TopUp(ctx, zlimit.TopUpRequest{Entity: "key-1", Resource: "gpt-4", Amounts: zlimit.Amounts{"day": more}, OperationID: id}); err != nil {
						t.Fatalf("Limits.TopUp() = %v", err)
					}
				}
				left += more
				outcomes["top up"]++
			default:
				take, want := 1+f.random.Int64N(14), "rejected"
				back := f.random.Int64N(take + 1)
				if take <= left {
					want, left = "admitted", left-take+back
				}
				outcomes[want]++
				if got := f.take(theirs, take, back); got != want {
					t.Fatalf("seed %d, step %d: %d are %s, want %s with %d left; zae-limiter: %t", seed, step, take, got, want, left, theirs)
				}
			}
		}
		for _, what := range []string{"reset", "top up", "admitted", "rejected"} {
			if outcomes[what] < 2 {
				t.Errorf("seed %d: %v", seed, outcomes)
			}
		}
	}
}
