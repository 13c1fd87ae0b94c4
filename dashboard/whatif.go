package dashboard

import (
	"cmp"
	"context"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize/english"

	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/ledger"
)

// A whatIfBody is the screen that answers what another limit would have done.
type whatIfBody struct {
	choice

	Entities []string
	Entity   string
	Limit    string // as text
	Of       zlimit.Limit
	Replay   *ledger.Replay // nil for none
	Chart    charts
	Shadows  []shadowRow
	Error    string
	Has      string
}

// A shadowRow is a shadow limit, and the limits of such a name that hold beside it.
type shadowRow struct {
	*zlimit.Status
	Cell   cell
	Beside string
}

func (p *page) whatIf(ctx context.Context, q url.Values) (view, error) {
	c, err := p.choose(ctx, q, false)
	if err != nil || c.Resource == "" {
		return nothing, err
	}
	read, err := p.feed.buckets(ctx, c.Resource)
	if err != nil {
		return view{}, err
	}
	body := &whatIfBody{choice: c, Entity: q.Get("entity"), Limit: q.Get("limit")}
	v := view{At: read.At, Body: body}
	p.shadows(body, &read)
	for i := range read.Buckets[:min(len(read.Buckets), 200)] {
		body.Entities = append(body.Entities, read.Buckets[i].Entity)
	}
	asked := body.Limit != ""
	p.suggest(body, &read)
	var l zlimit.Limit
	if body.Limit != "" {
		if err := l.UnmarshalText([]byte(body.Limit)); err != nil {
			body.Error = "This is no limit: " + strings.TrimPrefix(err.Error(), "zlimit: ")
		} else if _, err := ledger.ReplayHours(l, nil, read.At, read.At); err != nil {
			body.Error = "Hours can be replayed against limits that refill and quotas, and not against slots or sessions."
		}
	}
	if body.Limit == "" || body.Error != "" {
		return v, nil
	}
	const days = 7
	now := p.Now()
	from := zlimit.WindowHourly.Start(now).Add(-days * 24 * time.Hour)
	hours := make([]float64, days*24+1) // the last one is under way
	if body.Entity != "" {
		if hours, err = p.hours(ctx, body.Entity, c.Resource, l.Name, from, len(hours)); err != nil {
			return v, err
		}
	}
	if !asked {
		narrower(&l, hours)
		body.Limit = l.String()
	}
	if body.Replay, err = ledger.ReplayHours(l, hours, from, now); err != nil {
		return v, err
	}
	body.Of = l
	body.Chart = drawReplay(body.Replay, &l, from)
	return v, nil
}

// suggest fills in the entity and the limit that a reader would ask for first: the busiest one, with a third less.
func (p *page) suggest(body *whatIfBody, read *reading) {
	var best *zlimit.Status
	most := zlimit.Quantity(-1)
	for b, st := range statuses(read.Buckets) {
		if body.Entity != "" && b.Entity != body.Entity || len(b.FromChildren) > 0 && body.Entity == "" {
			continue
		}
		if st.Limit.Term > 0 || isBudget(&st.Limit) || st.Limit.Mode != zlimit.ModeEnforced {
			continue
		}
		if n := b.Consumed[st.Limit.Name]; n > most {
			best, most = st, n
		}
	}
	if best == nil {
		return
	}
	body.Has = best.Limit.String()
	body.Entity, body.Limit = cmp.Or(body.Entity, best.Entity), cmp.Or(body.Limit, body.Has)
}

// narrower sets a limit to three quarters of the heaviest hour, so that the first look shows something.
func narrower(l *zlimit.Limit, hours []float64) {
	if most := slices.Max(hours); most > 0 && l.RefillPeriod > 0 {
		l.RefillAmount = max(int64(ledger.Rounded(0.75*most*float64(l.RefillPeriod)/float64(time.Hour))), 1)
		l.Capacity = l.RefillAmount
	}
}

func drawReplay(r *ledger.Replay, l *zlimit.Limit, from time.Time) charts {
	n, most := len(r.Fits), 0.0
	for i := range n {
		most = max(most, r.Fits[i]+r.Beyond[i])
	}
	wide := &chart{left: 58, right: 1306, top: 12, bottom: 200, slots: n, width: 1320, height: 226}
	small := &chart{left: 48, right: 334, top: 12, bottom: 160, slots: n, width: 340, height: 186}
	return drawTwice("What was used in each hour of seven days; red would not have fitted", wide, small, func(c *chart) {
		c.axis(most, 3, func(v float64) string { return axisAmount(l.Name, v) })
		stacked([]string{"have", "red"}, [][]float64{r.Fits, r.Beyond}, c.bars)
		for i := range n - 12 {
			if at := from.Add(time.Duration(i) * time.Hour); at.Hour() == 0 && (!c.small || at.YearDay()%2 == 0) {
				c.text(c.x(float64(i)), c.bottom+18, "", "", at.Format("2 Jan"))
				c.write(`<path class="grid" d="M%.1f %.0fV%.0f"/>`, c.x(float64(i)), c.bottom, c.bottom+5)
			}
		}
	})
}

// shadows are the shadow limits beside what they would refuse.
func (p *page) shadows(body *whatIfBody, read *reading) {
	for b, st := range statuses(read.Buckets) {
		if st.Limit.Mode != zlimit.ModeShadow {
			continue
		}
		var beside []string
		for k := range b.Statuses {
			if l := &b.Statuses[k].Limit; l.Mode == zlimit.ModeEnforced && l.Term == 0 && (strings.HasPrefix(st.Limit.Name, l.Name) || strings.HasPrefix(l.Name, st.Limit.Name)) {
				beside = append(beside, l.Name+" "+limitText(l))
			}
		}
		body.Shadows = append(body.Shadows, shadowRow{st, statusCell(st, p.Now()), cmp.Or(english.WordSeries(beside, "and"), "none of that name")})
	}
	slices.SortStableFunc(body.Shadows, func(a, b shadowRow) int {
		return cmp.Or(cmp.Compare(b.Refusals, a.Refusals), cmp.Compare(a.Entity, b.Entity))
	})
	body.Shadows = body.Shadows[:min(len(body.Shadows), topRows)]
}
