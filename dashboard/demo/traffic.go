package demo

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/leasetoken"
)

const dollar = 1e9 // nano-dollars

// heldFor is how long the leases of calls under way last.
const heldFor = 24 * time.Hour

// A slot is a part of the history.
type slot struct {
	at    time.Time
	hours int
}

// history charges what each entity spent: every three hours, and every hour of the last eight days.
func (d *Demo) history(ctx context.Context, days int) {
	var slots []slot
	first := d.begins.AddDate(0, 0, -days).Truncate(24 * time.Hour)
	for at := first; at.Before(d.begins.Add(-5 * time.Minute)); {
		hours := 3
		if d.begins.Sub(at) < 8*24*time.Hour {
			hours = 1
		}
		slots = append(slots, slot{at, hours})
		at = at.Add(time.Duration(hours) * time.Hour)
	}
	var spent [][]float64
	for i := range d.company.Entities {
		spent = append(spent, d.spending(&d.company.Entities[i], slots))
	}
	for j, s := range slots {
		at := s.at.Add(2 * time.Minute)
		d.until(ctx, at)
		d.clock.set(at)
		d.changed = d.Now().Truncate(time.Millisecond)
		for i, m := range d.company.Entities {
			if dollars := spent[i]; dollars != nil {
				tokens := dollars[j] * m.TokensPerDollar
				d.spend(ctx, m.ID, zlimit.Amounts{"rpm": int64(tokens / 2600), "tpm": int64(tokens), "usd": int64(dollars[j] * dollar)})
			}
		}
		if s.at.Hour()%12 == 0 {
			d.counted(ctx)
		}
		if s.hours == 1 {
			tokens := int64(0.7e5 * (50 + 40*math.Sin(float64(s.at.Hour())/24*2*math.Pi) + 10*d.rng.Float64()))
			d.spend(ctx, "ingest", zlimit.Amounts{"rpm": tokens / 30_000, "tpm": tokens})
		}
	}
}

// spending is what a member spent in each slot; nil for one that did not.
func (d *Demo) spending(m *member, slots []slot) []float64 {
	if m.Spent == 0 {
		return nil
	}
	month := time.Date(d.begins.Year(), d.begins.Month(), 1, 0, 0, 0, 0, time.UTC)
	spent, now, before := make([]float64, len(slots)), 0.0, 0.0
	for j, s := range slots {
		spent[j] = d.weight(m.ID, s.at, d.begins) * float64(s.hours)
		if s.at.Before(month) {
			before += spent[j]
		} else {
			now += spent[j]
		}
	}
	target, passed := m.Spent, d.begins.Sub(month).Hours()/24
	if passed < 27 || passed > 28.9 { // the figures are of the 28th
		target *= passed / float64(month.AddDate(0, 1, 0).Sub(month)/(24*time.Hour))
	}
	last := m.Before * min(month.Sub(slots[0].at).Hours()/24/31, 1)
	for j, s := range slots {
		if s.at.Before(month) {
			spent[j] *= last / before
		} else {
			spent[j] *= target / now
		}
	}
	return spent
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

// spend charges amounts of any size: a call is admitted for one request, and settled for more.
func (d *Demo) spend(ctx context.Context, entity string, amounts zlimit.Amounts) {
	d.play(func() error {
		lease, err := d.Limiter.Acquire(ctx, zlimit.Request{Entity: entity, Resource: Resource, Consume: zlimit.Amounts{"rpm": 0}})
		if err != nil {
			return fmt.Errorf("charge %s: %w", entity, err)
		}
		if err := lease.Adjust(amounts); err != nil {
			return errors.Join(err, lease.Rollback(ctx))
		}
		return lease.Commit(ctx)
	})
}

// until does what operators did before a time.
func (d *Demo) until(ctx context.Context, to time.Time) {
	for len(d.company.Deeds) > 0 {
		next := &d.company.Deeds[0]
		at := d.begins.Add(-next.Ago)
		if !at.Before(to) {
			break
		}
		d.company.Deeds = d.company.Deeds[1:]
		if !at.Before(d.Now()) { // and not before the history
			d.clock.set(at)
			d.play(func() error { return d.do(ctx, next) })
		}
	}
}

// lastMinutes are five minutes of calls, second by second, and what is taken then.
func (d *Demo) lastMinutes(ctx context.Context) {
	d.until(ctx, d.begins)
	d.clock.set(d.begins.Add(-6 * time.Minute))
	d.spend(ctx, "nightly-eval", zlimit.Amounts{"usd": 60 * dollar, "tpm": 20_000})
	for s := 300; s > 0; s-- {
		d.clock.set(d.begins.Add(-time.Duration(s) * time.Second))
		d.second(ctx, 300-s)
	}
	d.clock.set(d.begins)
	for _, taken := range d.company.Taken {
		d.spend(ctx, taken.Entity, taken.Amounts)
	}
	for _, holder := range d.company.Slots {
		for range holder.Calls {
			d.play(func() error { return d.hold(ctx, holder.Entity, holder.Paid) })
		}
	}
}

// hold holds a slot, if one is free.
func (d *Demo) hold(ctx context.Context, entity string, paid bool) error {
	amounts := zlimit.Amounts{"slots": 1}
	if paid {
		amounts["usd"] = 1*dollar + d.rng.Int64N(5*dollar)
	}
	lease, err := d.Limiter.Acquire(ctx, zlimit.Request{Entity: entity, Resource: Resource, Consume: amounts})
	if err != nil {
		return unlessRefused(err)
	}
	d.held = append(d.held, lease)
	d.open.Add(&leasetoken.Claims{Expires: d.begins.Add(heldFor), Leases: []leasetoken.Lease{{Token: fmt.Sprint(len(d.held)), Entity: entity, Resource: Resource, Amounts: amounts}}})
	return nil
}

// second makes the calls of one second; the later, the more.
func (d *Demo) second(ctx context.Context, at int) {
	for _, c := range d.company.Callers {
		rate := c.ASecond
		if c.Waits && at > 200 {
			rate *= 1 + float64(at-200)/120
		}
		n := int(rate)
		if d.rng.Float64() < rate-float64(n) {
			n++
		}
		for range n {
			d.play(func() error { return unlessRefused(d.call(ctx, &c)) })
		}
	}
}

func (d *Demo) call(ctx context.Context, c *caller) error {
	tokens := int64(c.Tokens * (0.6 + 0.8*d.rng.Float64()))
	amounts := zlimit.Amounts{"rpm": 1, "tpm": tokens}
	maps.Copy(amounts, c.More)
	if c.Next {
		amounts["tpm-next"] = tokens
	}
	r := zlimit.Request{Entity: c.Entity, Resource: Resource, Consume: amounts}
	if c.Waits {
		return ignored(d.Limiter.Reserve(ctx, r, zlimit.MaxWait(9*time.Second)))
	}
	lease, err := d.Limiter.Acquire(ctx, r)
	if err != nil {
		return err
	}
	return lease.Commit(ctx)
}

// unlessRefused returns an error that is no refusal.
func unlessRefused(err error) error {
	if errors.As(err, new(*zlimit.ExceededError)) || errors.Is(err, zlimit.ErrContended) {
		return nil
	}
	return err
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
			d.err = nil // what has failed is tried again
			d.second(ctx, 240)
		}
	}
}

// counted waits until usage has all changes: the store forgets them a day later.
func (d *Demo) counted(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for d.err == nil {
		for _, p := range d.aggregator.Status().Partitions {
			if !p.LastChange.Before(d.changed) {
				return
			}
		}
		d.play(func() error { return pause(ctx, time.Millisecond) })
	}
}
