package hindsight

import (
	"context"
	"encoding/json"
	"math"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

// maxLag is how far usage may be behind where it says what a period has used. It must have come beyond the cut in any case.
const maxLag = time.Minute

// A Cut is that of a budget which was lowered in its running period for a while. What it took from the balance does not come back with the raise.
type Cut struct {
	To          int64     // the least amount meanwhile, tokens
	From, Until time.Time // when the budget was less than that of the period
	Budget      int64     // what the period has without the cut, beside what top-ups and resets add, tokens
	Used        int64     // by the period, rounded up, tokens; as far as it is counted
	Unsure      int64     // of Used: in the hour in which the period began, so that a part may be of the period before, tokens
	Counted     time.Time // how far usage is counted; the zero time where it is not complete, and does not show Used and Missing
	Missing     int64     // that brings the balance to the budget and what was added before the cut ended, less what is used, tokens

	ended time.Time // when the budget was first back; what was added later makes up for the cut, though there may be another one
}

// CutOf returns the cut of a budget in its running period, and false if there is none, or usage shows that it took nothing. Where usage is not sure,
// Missing is the least. It costs what [Raised] costs, and the reads of [zlimit.UsageService.Completeness].
func CutOf(ctx context.Context, l *zlimit.RateLimiter, s *zlimit.Status, now time.Time) (c Cut, is bool, err error) {
	p, ids, all, err := inPeriod(ctx, l, s, now)
	if p == nil || err != nil {
		return c, false, err
	}
	if c, is = cutIn(all, s, now); !is {
		return c, false, nil
	}
	added := 0.0
	for _, id := range ids {
		more, err := p.added(ctx, id, s, c.ended)
		if err != nil {
			return c, false, err
		}
		added += more
	}
	c.Missing = c.Budget + s.Carried + int64(added) - s.Available // as if nothing were used
	if c.Missing <= 0 {
		return c, false, nil
	}
	complete, err := l.Usage.Completeness(ctx)
	if err != nil || complete.To.Before(now.Add(-maxLag)) || !complete.To.After(c.Until) || len(complete.Within(p.since, complete.To)) > 0 {
		c.Missing = 0
		return c, err == nil, err
	}
	c.Counted = complete.To
	used, unsure, err := p.used(ctx, ids, s, now)
	if err != nil {
		return c, false, err
	}
	c.Used, c.Unsure = int64(math.Ceil(used)), int64(math.Ceil(unsure))
	c.Missing -= c.Used
	return c, c.Missing+c.Unsure > 0, nil
}

// added returns what top-ups and resets of a bucket have added to a limit in the period, until a time, in tokens. Later ones make up for the cut.
func (p *past) added(ctx context.Context, entity string, s *zlimit.Status, until time.Time) (sum float64, err error) {
	events, err := p.all(ctx, entity)
	for i := range events {
		e := &events[i]
		isManual := e.Action == zlimit.ActionBucketToppedUp || e.Action == zlimit.ActionBucketReset
		if !isManual || e.Resource != s.Resource || e.Time.Before(p.since) {
			continue
		}
		more := 0.0
		amounts, _ := e.Details["amounts"].(map[string]any)
		switch n := amounts[s.Limit.Name].(type) {
		case int64:
			more = float64(n)
		case json.Number: // not whole
			if more, err = n.Float64(); err != nil {
				return 0, err
			}
		}
		if more < 0 || e.Time.Before(until) { // a reset may end a top-up
			sum += more
		}
	}
	return sum, err
}

// cutIn looks for amounts below the one before them, below the first one and below the present one.
func cutIn(all []Stretch, s *zlimit.Status, now time.Time) (c Cut, is bool) {
	c.To, c.Budget = s.Limit.Capacity, s.Limit.Capacity
	before := int64(0)
	for i := range all {
		limit := all[i].Limit
		switch {
		case limit == nil || limit.Resets != s.Limit.Resets || limit.Zone != s.Limit.Zone || limit.Session != s.Limit.Session || limit.Windows != "":
			return Cut{}, false
		case i == 0:
			c.Budget = min(c.Budget, limit.Capacity)
			c.To = c.Budget
		case limit.Capacity < before && limit.Capacity < c.To:
			if !is {
				c.From = all[i].From
			}
			c.To, is = limit.Capacity, true
		}
		switch {
		case !is:
		case limit.Capacity < c.Budget:
			if c.Until = all[i].To; c.Until.IsZero() {
				c.Until = now
			}
		case c.ended.IsZero():
			c.ended = c.Until
		}
		before = limit.Capacity
	}
	if c.ended.IsZero() {
		c.ended = c.Until
	}
	return c, is
}
