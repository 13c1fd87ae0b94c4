package demo

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"time"

	"github.com/zlimit/zlimit-go/server/internal/token"
	"github.com/zlimit/zlimit-go/zlimit"
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
func (d *Demo) history(ctx context.Context, days int) error {
	if days == 0 {
		return nil
	}
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
		if err := d.until(ctx, at); err != nil {
			return err
		}
		d.clock.set(at)
		d.changed = d.Now().Truncate(time.Millisecond)
		for i, m := range d.company.Entities {
			if dollars := spent[i]; dollars != nil {
				tokens := dollars[j] * m.TokensPerDollar
				if err := d.spend(ctx, m.ID, zlimit.Amounts{"rpm": int64(tokens / 2600), "tpm": int64(tokens), "usd": int64(dollars[j] * dollar)}); err != nil {
					return err
				}
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

// until does what operators did before a time.
func (d *Demo) until(ctx context.Context, to time.Time) error {
	for len(d.company.Deeds) > 0 {
		next := &d.company.Deeds[0]
		at := d.begins.Add(-next.Ago)
		if !at.Before(to) {
			break
		}
		d.company.Deeds = d.company.Deeds[1:]
		if at.Before(d.Now()) {
			continue // before the history
		}
		d.clock.set(at)
		if err := d.do(ctx, next); err != nil {
			return fmt.Errorf("by %s: %w", next.By, err)
		}
	}
	return nil
}

// lastMinutes are five minutes of calls, second by second, and what is taken then.
func (d *Demo) lastMinutes(ctx context.Context, days int) error {
	if days == 0 {
		d.clock.set(d.begins)
		return d.spend(ctx, "support", zlimit.Amounts{"rpm": 12, "tpm": 9_000})
	}
	if err := d.until(ctx, d.begins); err != nil {
		return err
	}
	d.clock.set(d.begins.Add(-6 * time.Minute))
	if err := d.spend(ctx, "nightly-eval", zlimit.Amounts{"usd": 60 * dollar, "tpm": 20_000}); err != nil {
		return err
	}
	for s := 300; s > 0; s-- {
		d.clock.set(d.begins.Add(-time.Duration(s) * time.Second))
		if err := d.second(ctx, 300-s); err != nil {
			return err
		}
	}
	d.clock.set(d.begins)
	for _, taken := range d.company.Taken {
		if err := d.spend(ctx, taken.Entity, taken.Amounts); err != nil {
			return err
		}
	}
	for _, holder := range d.company.Slots {
		for range holder.Calls {
			amounts := zlimit.Amounts{"slots": 1}
			if holder.Paid {
				amounts["usd"] = 1*dollar + d.rng.Int64N(5*dollar)
			}
			lease, err := d.Limiter.Acquire(ctx, zlimit.Request{Entity: holder.Entity, Resource: Resource, Consume: amounts})
			if isRefused(err) {
				continue
			}
			if err != nil {
				return fmt.Errorf("hold a slot: %w", err)
			}
			d.held = append(d.held, lease)
			d.open.Add(&token.Claims{Expires: d.begins.Add(heldFor), Leases: []token.Lease{
				{Token: fmt.Sprint(len(d.held)), Entity: holder.Entity, Resource: Resource, Amounts: amounts},
			}})
		}
	}
	return nil
}

// second makes the calls of one second; the later, the more.
func (d *Demo) second(ctx context.Context, at int) error {
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
			if err := d.call(ctx, &c); err != nil && !isRefused(err) {
				return err
			}
		}
	}
	return nil
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
