package ledger_test

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/aggregator"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/ledger"
)

// A firm has the teams ann and ben, whose requests are charged to it, and a budget for a month. Its clock stands at the end of the last day that was
// played.
type firm struct {
	t   *testing.T
	l   *zlimit.RateLimiter
	now atomic.Pointer[time.Time]
	a   *aggregator.Aggregator
}

func newFirm(t *testing.T, begin time.Time, budget int64) *firm {
	t.Helper()
	f := &firm{t: t}
	f.now.Store(&begin)
	clock := func() time.Time { return *f.now.Load() }
	store := check.Call(zlimit.MemoryAt(clock)).Must(t, "MemoryAt()")
	f.l = check.Call(zlimit.New(t.Context(), store, zlimit.WithClock(clock), zlimit.WithFreshness(0))).Must(t, "zlimit.New()")
	f.a = check.Call(aggregator.New(store, aggregator.WithClock(clock), aggregator.WithPoll(time.Millisecond))).Must(t, "aggregator.New()")
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- f.a.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		check.Error(t, "Run(), Close()", errors.Join(<-done, f.l.Close(), store.Close()))
	})
	for len(f.a.Status().Partitions) == 0 {
		time.Sleep(time.Millisecond)
	}
	for _, e := range []zlimit.Entity{{ID: "firm"}, {ID: "ann", ParentID: "firm", Cascade: true}, {ID: "ben", ParentID: "firm", Cascade: true}} {
		check.Call(f.l.Entities.Create(t.Context(), e)).Must(t, "Create()")
	}
	f.set("firm", budget)
	for _, team := range []string{"ann", "ben"} {
		f.set(team, 1_000_000)
	}
	return f
}

func (f *firm) set(entity string, budget int64) {
	f.t.Helper()
	check.Fatal(f.t, "Set()", f.l.Limits.Set(f.t.Context(), zlimit.Level{Entity: entity, Resource: "gpt"}, zlimit.Config{Limits: []zlimit.Limit{zlimit.Monthly("calls", budget, "UTC")}}))
}

// day plays a day at half past noon: each team uses so much. It waits until that is counted.
func (f *firm) day(at time.Time, ann, ben int64) {
	f.t.Helper()
	at = at.Add(12*time.Hour + 30*time.Minute)
	f.now.Store(&at)
	for team, n := range map[string]int64{"ann": ann, "ben": ben} {
		if n > 0 {
			check.Call(f.l.Acquire(f.t.Context(), zlimit.Request{Entity: team, Resource: "gpt", Consume: zlimit.Amounts{"calls": n}})).Must(f.t, "Acquire()")
		}
	}
	for f.a.Status().Partitions[0].LastChange.Before(at) {
		time.Sleep(time.Millisecond)
	}
}

// TestRead plays a month and twelve days. A ledger of the firm and one of everyone say the same.
func TestRead(t *testing.T) {
	begin := time.Date(2026, time.March, 1, 0, 0, 0, 0, time.UTC)
	f := newFirm(t, begin, 1000)
	for day := range 31 + 12 {
		if at := begin.AddDate(0, 0, day); day < 31 {
			f.day(at, 10, 20)
		} else {
			f.day(at, 40, 20)
		}
	}
	now := *f.now.Load() // on the twelfth
	const passed = 11 + 12.5/24
	q := ledger.Query{Entity: "firm", Resources: []string{"gpt"}, Limit: "calls", From: ledger.Begin(now), Now: now}
	everyone := q
	everyone.Entity = ""
	all := check.Call(ledger.Read(t.Context(), f.l, everyone)).Must(t, "Read()")
	m := check.Call(ledger.Read(t.Context(), f.l, q)).Must(t, "Read()")
	for _, m := range []*ledger.Month{m, all} {
		if m.Before != 31 || len(m.Total) != 61 || m.Spent() != 12*60 || m.SpentBefore() != 31*30 || m.Total[30] != 30 || m.Total[31] != 60 || m.Total[42] != 60 || m.Total[43] != 0 {
			t.Errorf("%d days before, %d in all, spent %v and %v before: %v", m.Before, len(m.Total), m.Spent(), m.SpentBefore(), m.Total)
		}
		if m.Budget != 1000 || m.Available != 280 || !m.Ends.Equal(q.To()) || m.Early {
			t.Errorf("the budget is %v until %v, available %v, early %t", m.Budget, m.Ends, m.Available, m.Early)
		}
	}
	if len(all.Groups) != 1 || all.Groups[0].Entity != "firm" || all.Groups[0].Forecast == nil {
		t.Errorf("the groups of everyone are %+v", all.Groups)
	}
	if len(m.Groups) != 2 || m.Groups[0].Entity != "ann" || m.In(m.Groups[0].Days) != 480 || math.Abs(m.SameDays(m.Groups[0].Days)-passed*10) > 1e-9 || m.In(m.Others(1)) != 240 {
		t.Errorf("the groups are %+v, and the others %v", m.Groups, m.Others(1))
	}
	if got := m.Outlook(&m.Forecast, m.Total); got != ledger.OutlookEndsEarly || m.Forecast.UsedUp.Day() != 17 && m.Forecast.UsedUp.Day() != 16 {
		t.Errorf("the outlook is %q, used up at %v", got, m.Forecast.UsedUp)
	}
	if want := 720 + (30-passed)*60; math.Abs(m.Likely-want) > 1 || len(m.Path) != 19 || m.AtEnd[0] > m.Likely || m.AtEnd[1] < m.Likely {
		t.Errorf("the month will have %v, %v, %d days, want %v", m.Likely, m.AtEnd, len(m.Path), want)
	}
	c := m.Cause()
	if c.Group == nil || c.Group.Entity != "ann" || !c.Alone || math.Abs(c.More-(480-passed*10)) > 1e-9 || c.Over != ledger.Rounded(m.Likely-1000) || c.May != 0 {
		t.Errorf("the cause is %+v", c)
	}
	if v := all.Verdicts(); v.N != 1 || len(v.EndEarly) != 1 || v.EndEarly[0].Entity != "firm" {
		t.Errorf("the verdicts are %+v", v)
	}
	past := q
	past.From = begin
	if m := check.Call(ledger.Read(t.Context(), f.l, past)).Must(t, "Read()"); m.Spent() != 31*30 || m.SpentBefore() != 0 || m.Budget != 0 || len(m.Path) != 0 || m.Query.Present() {
		t.Errorf("the month before has %v, %v before, budget %v, path %v", m.Spent(), m.SpentBefore(), m.Budget, m.Path)
	}
	zoned := q
	zoned.From = ledger.Begin(now.In(time.FixedZone("UTC+13", 13*3600)))
	if m := check.Call(ledger.Read(t.Context(), f.l, zoned)).Must(t, "Read()"); m.Total[31] != 30 || m.Total[32] != 60 || m.Spent() != 12*60+30 {
		t.Errorf("in a zone in which noon is the next day, the days are %v", m.Total[30:34])
	}
	f.set("firm", 3000) // which holds from the next month on
	if m := check.Call(ledger.Read(t.Context(), f.l, q)).Must(t, "Read()"); m.Budget != 1000 {
		t.Errorf("after a raise the budget of the month is %v, want 1000 as before", m.Budget)
	}
}

// TestReadSeries plays two days. A request of a team is charged to the firm, too, and counts once in the sum.
func TestReadSeries(t *testing.T) {
	begin := time.Date(2026, time.March, 1, 0, 0, 0, 0, time.UTC)
	f := newFirm(t, begin, 1000)
	f.day(begin, 10, 20)
	f.day(begin.AddDate(0, 0, 2), 40, 0)
	q := zlimit.UsageQuery{Resource: "gpt", Window: zlimit.WindowHourly, From: begin.Add(12 * time.Hour), To: begin.AddDate(0, 0, 3)}
	for _, resources := range [][]string{nil, {"gpt"}, {"gpt", "voice"}} {
		s := check.Call(ledger.ReadSeries(t.Context(), f.l, q, resources...)).Must(t, "ReadSeries()")
		token := func(n int64) zlimit.Quantity { return zlimit.Quantity(n) * zlimit.Token }
		by, sum := s.By["calls"], s.Sum("calls")
		if len(s.Starts) != 60 || by["ann"][0] != token(10) || by["ann"][48] != token(40) || by["ben"][0] != token(20) || by["firm"][0] != 0 || sum[0] != token(30) || sum[48] != token(40) || sum[1] != 0 || s.FromChildren["calls"][0] != token(30) {
			t.Errorf("%q: the series of %d hours is %v", resources, len(s.Starts), s)
		}
	}
	q.Entity = "firm" // which was charged all
	if s := check.Call(ledger.ReadSeries(t.Context(), f.l, q)).Must(t, "ReadSeries()"); s.By["calls"]["firm"][0] != 30*zlimit.Token {
		t.Errorf("the series of the firm is %v", s)
	}
}

// TestOutlook covers each outlook of a budget.
func TestOutlook(t *testing.T) {
	from := time.Date(2026, time.November, 1, 0, 0, 0, 0, time.UTC)
	q := ledger.Query{From: from, Now: from.AddDate(0, 0, 20)}
	for _, c := range []struct {
		used      int // days
		available int64
		usedUp    time.Time
		want      ledger.Outlook
	}{
		{13, 500, time.Time{}, ledger.OutlookTooEarly},
		{13, 500, q.Now.AddDate(0, 0, 2), ledger.OutlookTooEarly},
		{14, 500, time.Time{}, ledger.OutlookLasts},
		{14, 500, q.Now.AddDate(0, 0, 2), ledger.OutlookEndsEarly},
		{3, 0, time.Time{}, ledger.OutlookUsedUp},
	} {
		m := &ledger.Month{Query: q, Before: 31, Total: make([]float64, 61)}
		for i := range c.used {
			m.Total[31+19-i] = 10
		}
		f := zlimit.Forecast{Capacity: 1000, Available: c.available, UsedUp: c.usedUp}
		if got := m.Outlook(&f, m.Total); got != c.want {
			t.Errorf("%d days used, %d available, used up at %v: %q, want %q", c.used, c.available, c.usedUp, got, c.want)
		}
		m.Groups = []ledger.Group{{Entity: "a", Days: m.Total, Forecast: &f}, {Entity: "b", Days: m.Total}}
		v := m.Verdicts()
		if v.N != 1 || (v.TooEarly == 1) != (c.want == ledger.OutlookTooEarly) || (len(v.UsedUp) == 1) != (c.want == ledger.OutlookUsedUp) || (len(v.EndEarly) == 1) != (c.want == ledger.OutlookEndsEarly) {
			t.Errorf("%q: the verdicts are %+v", c.want, v)
		}
		for _, none := range []*zlimit.Forecast{nil, {}} {
			if got := m.Outlook(none, m.Total); got != ledger.OutlookNone {
				t.Errorf("without a budget the outlook is %q", got)
			}
		}
	}
}

func TestRounded(t *testing.T) {
	for v, want := range map[float64]float64{-3: 0, 0: 0, 1.234: 1.2, 98.7: 99, 12_345: 12_000} {
		if got := ledger.Rounded(v); math.Abs(got-want) > 1e-9 {
			t.Errorf("Rounded(%v) = %v, want %v", v, got, want)
		}
	}
}
