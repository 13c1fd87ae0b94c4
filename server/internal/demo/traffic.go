package demo

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/zlimit/zlimit-go/server/internal/token"
	"github.com/zlimit/zlimit-go/zlimit"
)

const dollar = 1e9 // nano-dollars

// heldFor is how long the leases of calls under way last.
const heldFor = 24 * time.Hour

// history charges what each team spent: every three hours, and every hour of the last eight days.
func (d *Demo) history(ctx context.Context, o Options) error {
	if o.Days == 0 {
		return nil
	}
	type slot struct {
		at    time.Time
		hours int
	}
	var slots []slot
	first := o.Now.AddDate(0, 0, -o.Days).Truncate(24 * time.Hour)
	for at := first; at.Before(o.Now.Add(-5 * time.Minute)); {
		hours := 3
		if o.Now.Sub(at) < 8*24*time.Hour {
			hours = 1
		}
		slots = append(slots, slot{at, hours})
		at = at.Add(time.Duration(hours) * time.Hour)
	}
	thisMonth := time.Date(o.Now.Year(), o.Now.Month(), 1, 0, 0, 0, 0, time.UTC)
	daysIn := float64(thisMonth.AddDate(0, 1, 0).Sub(thisMonth) / (24 * time.Hour))
	passed := o.Now.Sub(thisMonth).Hours() / 24
	all := teams()
	spent := make([][]float64, len(all))
	for i, t := range all {
		weights, now, before := make([]float64, len(slots)), 0.0, 0.0
		for j, s := range slots {
			weights[j] = d.weight(t.name, s.at, o.Now) * float64(s.hours)
			if s.at.Before(thisMonth) {
				before += weights[j]
			} else {
				now += weights[j]
			}
		}
		target := t.month
		if passed < 27 || passed > 28.9 { // the figures are of the 28th
			target *= passed / daysIn
		}
		lastPart := thisMonth.Sub(first).Hours() / 24 / 31
		spent[i] = make([]float64, len(slots))
		for j, s := range slots {
			if s.at.Before(thisMonth) {
				spent[i][j] = weights[j] / before * t.last * min(lastPart, 1)
			} else {
				spent[i][j] = weights[j] / now * target
			}
		}
	}
	for j, s := range slots {
		at := s.at.Add(2 * time.Minute)
		if err := d.until(ctx, at); err != nil {
			return err
		}
		d.clock.set(at)
		d.changed = d.Now().Truncate(time.Millisecond)
		for i, t := range all {
			if err := d.charge(ctx, &t, spent[i][j]); err != nil {
				return err
			}
		}
		if s.at.Hour()%12 == 0 {
			if err := d.counted(ctx); err != nil {
				return err
			}
		}
		if s.hours == 1 {
			tokens := int64(0.7e5 * (50 + 40*math.Sin(float64(s.at.Hour())/24*2*math.Pi) + 10*d.rng.Float64()))
			if err := d.spend(ctx, "ingest", zlimit.Amounts{"rpm": tokens / 30_000, "tpm": tokens}); err != nil {
				return err
			}
		}
	}
	return nil
}

// weight is how busy a team is: on working days, by day, and more lately.
func (d *Demo) weight(name string, at, now time.Time) float64 {
	w := 0.25 + 0.75*math.Exp(-math.Pow((float64(at.Hour())-13.5)/4.6, 2))
	if wd := at.Weekday(); wd == time.Saturday || wd == time.Sunday {
		w *= 0.3
	}
	age := now.Sub(at).Hours() / 24
	switch name {
	case "search":
		w *= 1 + 0.012*max(0, 28-age)
	case "evals":
		if age < 12 && age > 8 {
			w *= 2.2
		}
		if age < 0.14 {
			w *= 0.1 // it has no money left
		}
	default:
	}
	return w * (0.85 + 0.3*d.rng.Float64())
}

func (d *Demo) charge(ctx context.Context, t *team, dollars float64) error {
	return d.spend(ctx, t.name, zlimit.Amounts{
		"rpm": int64(dollars * t.perDollar / 2600), "tpm": int64(dollars * t.perDollar), "usd": int64(dollars * dollar),
	})
}

// spend charges amounts of any size: a call is admitted for one request, and settled for more.
func (d *Demo) spend(ctx context.Context, entity string, amounts zlimit.Amounts) error {
	lease, err := d.Limiter.Acquire(ctx, zlimit.Request{Entity: entity, Resource: Resource, Consume: zlimit.Amounts{"rpm": 0}})
	if err != nil {
		return fmt.Errorf("charge %s: %w", entity, err)
	}
	if err := lease.Adjust(amounts); err != nil {
		return errors.Join(err, lease.Rollback(ctx))
	}
	return lease.Commit(ctx)
}

// many adds entities that have a bucket, and little more.
func (d *Demo) many(ctx context.Context, o Options) error {
	for i := range o.Buckets {
		_, err := d.Limiter.Acquire(ctx, zlimit.Request{
			Entity: fmt.Sprintf("customer-%05d", i), Resource: Resource, Consume: zlimit.Amounts{"rpm": 1 + int64(i%300), "tpm": 40 * int64(i%5000)},
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// A deed is what an operator did at a time.
type deed struct {
	at  time.Time
	who string
	do  func(context.Context) error
}

func (d *Demo) plan(_ context.Context, o Options) error {
	limits := d.Limiter.Limits
	patch := func(entity string, limit zlimit.Limit) func(context.Context) error {
		return func(ctx context.Context) error {
			return limits.Patch(ctx, zlimit.Level{Entity: entity, Resource: Resource}, limit)
		}
	}
	d.deeds = []deed{
		{o.Now.AddDate(0, 0, -6), "sam", patch("", zlimit.Slots("slots", 24))},
		{o.Now.AddDate(0, 0, -2), "finance", patch("northwind", zlimit.PerMinute("tpm", 800_000))},
		{o.Now.Add(-26 * time.Hour), "dana", func(ctx context.Context) error {
			_, err := limits.TopUp(ctx, zlimit.TopUpRequest{Entity: "support", Resource: Resource, Amounts: zlimit.Amounts{"usd": 250 * dollar}, OperationID: "ticket-412"})
			return err
		}},
		{o.Now.Add(-3 * time.Hour), "sam", patch("acme", zlimit.PerMinute("rpm", 3600))},
		{o.Now.Add(-37 * time.Minute), "oncall", func(ctx context.Context) error {
			_, err := limits.Bypass(ctx, zlimit.Level{Entity: "trial-8841", Resource: Resource}, nil)
			return err
		}},
		{o.Now.Add(-14 * time.Minute), "dana", patch("copilot", zlimit.PerMinute("tpm", 500_000))},
	}
	return nil
}

// until does what was done before a time.
func (d *Demo) until(ctx context.Context, at time.Time) error {
	for len(d.deeds) > 0 && d.deeds[0].at.Before(at) {
		next := d.deeds[0]
		d.deeds = d.deeds[1:]
		if next.at.Before(d.Now()) {
			continue // before the history
		}
		d.clock.set(next.at)
		if err := next.do(zlimit.ContextWithPrincipal(ctx, next.who)); err != nil {
			return fmt.Errorf("by %s: %w", next.who, err)
		}
	}
	return nil
}

// lastMinutes are five minutes of calls, second by second.
func (d *Demo) lastMinutes(ctx context.Context, o Options) error {
	if o.Days == 0 {
		d.clock.set(o.Now)
		return d.spend(ctx, "support", zlimit.Amounts{"rpm": 12, "tpm": 9_000})
	}
	if err := d.until(ctx, o.Now); err != nil {
		return err
	}
	d.clock.set(o.Now.Add(-6 * time.Minute))
	if err := d.spend(ctx, "nightly-eval", zlimit.Amounts{"usd": 60 * dollar, "tpm": 20_000}); err != nil {
		return err
	}
	for s := 300; s > 0; s-- {
		d.clock.set(o.Now.Add(-time.Duration(s) * time.Second))
		if err := d.second(ctx, 300-s); err != nil {
			return err
		}
	}
	d.clock.set(o.Now)
	for _, b := range []struct {
		entity   string
		rpm, tpm int64
	}{{"copilot", 89, 134_000}, {"search", 388, 0}, {"support", 12, 9_000}, {"labs", 556, 369_000}, {"evals", 140, 60_000}, {"nightly-eval", 60, 304_000}, {"ingest", 0, 70_000}} {
		if err := d.spend(ctx, b.entity, zlimit.Amounts{"rpm": b.rpm, "tpm": b.tpm}); err != nil {
			return err
		}
	}
	for _, holder := range []struct {
		entity string
		slots  int
	}{{"copilot", 17}, {"search", 12}, {"support", 9}, {"ingest", 4}, {"labs", 3}} {
		for range holder.slots {
			amounts := zlimit.Amounts{"slots": 1}
			if holder.entity != "ingest" {
				amounts["usd"] = 1*dollar + d.rng.Int64N(5*dollar)
			}
			lease, err := d.Limiter.Acquire(ctx, zlimit.Request{Entity: holder.entity, Resource: Resource, Consume: amounts})
			if err != nil {
				if isRefused(err) {
					continue
				}
				return fmt.Errorf("hold a slot: %w", err)
			}
			d.held = append(d.held, lease)
			d.open.Add(&token.Claims{Expires: o.Now.Add(heldFor), Leases: []token.Lease{
				{Token: fmt.Sprint(len(d.held)), Entity: holder.entity, Resource: Resource, Amounts: amounts},
			}})
		}
	}
	return nil
}

// A caller is what someone asks for in a second.
type caller struct {
	entity      string
	perSecond   float64
	rpm, tokens int64
	waits       bool
}

var callers = []caller{
	{"copilot", 5, 1, 500, false},
	{"support", 3, 1, 300, false},
	{"search", 4, 1, 2500, true},
	{"labs", 8.5, 1, 600, false},
	{"evals", 0.4, 1, 900, false},
	{"nightly-eval", 1.5, 1, 4000, false},
	{"ingest", 6.6, 1, 700, false},
	{"trial-8841", 0.2, 1, 200, false},
}

// second makes the calls of one second; the later, the more.
func (d *Demo) second(ctx context.Context, at int) error {
	for _, c := range callers {
		rate := c.perSecond
		if c.waits && at > 200 {
			rate *= 1 + float64(at-200)/120
		}
		n := int(rate)
		if d.rng.Float64() < rate-float64(n) {
			n++
		}
		for range n {
			if err := d.call(ctx, &c); err != nil && !isRefused(err) {
				return err
			}
		}
	}
	return nil
}

func (d *Demo) call(ctx context.Context, c *caller) error {
	tokens := int64(float64(c.tokens) * (0.6 + 0.8*d.rng.Float64()))
	r := zlimit.Request{Entity: c.entity, Resource: Resource, Consume: zlimit.Amounts{"rpm": c.rpm, "tpm": tokens}}
	switch c.entity {
	case "nightly-eval", "evals":
		r.Consume = zlimit.Amounts{"rpm": c.rpm, "tpm": tokens, "usd": dollar / 4}
	case "ingest":
		r.Consume = zlimit.Amounts{"rpm": c.rpm, "tpm": tokens, "tpm-next": tokens}
	default:
	}
	if c.waits {
		_, err := d.Limiter.Reserve(ctx, r, zlimit.MaxWait(9*time.Second))
		return err
	}
	lease, err := d.Limiter.Acquire(ctx, r)
	if err != nil {
		return err
	}
	return lease.Commit(ctx)
}

func isRefused(err error) bool {
	var exceeded *zlimit.ExceededError
	return errors.As(err, &exceeded) || errors.Is(err, zlimit.ErrContended)
}

// traffic goes on with calls in real time.
func (d *Demo) traffic(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			_ = d.second(ctx, 240)
		}
	}
}

// counted waits until usage has all changes: the store forgets them a day later.
func (d *Demo) counted(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		for _, p := range d.aggregator.Status().Partitions {
			if !p.LastChange.Before(d.changed) {
				return nil
			}
		}
		if err := pause(ctx, time.Millisecond); err != nil {
			return fmt.Errorf("usage is not summed up: %w", err)
		}
	}
}
