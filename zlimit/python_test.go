package zlimit_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/calendar"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
	"github.com/zlimit/zlimit-go/internal/proof/sibling"
	"github.com/zlimit/zlimit-go/internal/store/dynamo"
	"github.com/zlimit/zlimit-go/zlimit"
)

// In TestQuotasWithSibling, zlimit and zae-limiter 0.17 take of one quota by turns, which either of them has stored. Both admit what is
// left of the period, and no more.
func TestQuotasWithSibling(t *testing.T) {
	for seed := range uint64(4) {
		random := rand.New(rand.NewPCG(seed, 17))
		engine := enginetest.Start(t)
		table := engine.Table(t)
		s := zlimit.StoreOn(dynamo.New(engine.Client(), table, layout.Table, withoutStream))
		ctx, c := context.Background(), newClock()
		opts := []zlimit.Option{zlimit.WithClock(c.now), zlimit.WithConfigTTL(0)}
		if seed%2 == 0 {
			opts = append(opts, zlimit.WithMixedFleet())
		}
		l := newLimiter(t, s, opts...)
		other := sibling.Start(t, table, zlimit.DefaultNamespace)
		const amount, cron, zone = 20, "0 */3 * * *", "America/New_York"
		switch {
		case seed < 2:
			limits := []zlimit.Limit{zlimit.Cron("day", amount, cron, zone), zlimit.PerMinute("rpm", 60)}
			setLimits(t, l, zlimit.Level{Resource: "gpt-4"}, limits...)
		default:
			other.Call(t, c.now(), "set_resource_defaults", "gpt-4", []sibling.Limit{
				{"name": "day", "amount": amount, "cron": cron, "zone": zone}, {"name": "rpm", "amount": 60},
			})
		}
		times := check.Call(calendar.Parse(cron, zone)).Must(t, "calendar.Parse()")
		left, admitted, rejected := int64(amount), 0, 0
		for step := range 80 {
			before := c.now()
			c.sleep(time.Duration(random.IntN(40)) * time.Minute)
			if times.Between(before.UnixMilli(), c.now().UnixMilli()) {
				left = amount
			}
			take := 1 + random.Int64N(14)
			back := random.Int64N(take + 1)
			answer := "admitted"
			if random.IntN(2) == 0 {
				answer = other.Take(t, c.now(), sibling.Take{Consume: map[string]int64{"day": take, "rpm": 1}, Back: map[string]int64{"day": back}})
			} else {
				lease, err := l.Acquire(ctx, ask(zlimit.Amounts{"day": take, "rpm": 1}))
				switch {
				case errors.As(err, new(*zlimit.ExceededError)):
					answer = "rejected"
				case err != nil:
					t.Fatalf("Acquire() = %v", err)
				default:
					check.Fatal(t, "Adjust() and Commit()", errors.Join(lease.Adjust(zlimit.Amounts{"day": -back}), lease.Commit(ctx)))
				}
			}
			want := "rejected"
			if take <= left {
				want, left = "admitted", left-take+back
				admitted++
			} else {
				rejected++
			}
			if answer != want {
				t.Fatalf("seed %d, step %d at %v: %d of %d are %s", seed, step, c.now(), take, left, answer)
			}
		}
		if admitted < 20 || rejected < 3 {
			t.Errorf("seed %d: %d are admitted and %d rejected", seed, admitted, rejected)
		}
	}
}

// TestMovesWithSibling moves an entity while zae-limiter 0.17 takes of its bucket. Either of them charges the parent that the entity has by
// then.
func TestMovesWithSibling(t *testing.T) {
	engine := enginetest.Start(t)
	table := engine.Table(t)
	s := zlimit.StoreOn(dynamo.New(engine.Client(), table, layout.Table, withoutStream))
	ctx, c := context.Background(), newClock()
	l := newLimiter(t, s, zlimit.WithClock(c.now), zlimit.WithMixedFleet())
	newChains(t, l, []string{"one", "key-1"}, []string{"two"})
	setSystem(t, l, zlimit.PerDay("day", 1000), zlimit.PerDay("rpm", 1000))
	other := sibling.Start(t, table, zlimit.DefaultNamespace)
	want := map[string]int64{}
	for step, parent := range []string{"one", "two", "", "one"} {
		if _, err := l.Entities.SetParent(ctx, "key-1", parent); err != nil {
			t.Fatalf("Entities.SetParent() = %v", err)
		}
		for take := range int64(3) {
			if answer := other.Take(t, c.now(), sibling.Take{Consume: map[string]int64{"day": 5 + take}, Back: map[string]int64{"day": take}}); answer != "admitted" {
				t.Fatalf("step %d: zae-limiter is %s", step, answer)
			}
			acquire(t, l, ask(zlimit.Amounts{"day": 2}))
			want["key-1"] += 7
			want[parent] += 7
			c.sleep(time.Second)
		}
		for _, entity := range []string{"key-1", "one", "two"} {
			got := int64(0)
			for _, b := range collect(t, "Entities.Buckets()", l.Entities.Buckets(ctx, entity)) {
				got += b.Consumed["day"].Tokens()
			}
			if got != want[entity] {
				t.Errorf("step %d, moved to %q: %s has consumed %d, want %d", step, parent, entity, got, want[entity])
			}
		}
	}
}
