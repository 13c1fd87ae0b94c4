package zlimit_test

import (
	"errors"
	"fmt"
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

// rejectSome sends requests of an entity, of which a limit of two a day rejects all but two.
func rejectSome(t *testing.T, l *zlimit.RateLimiter, entity string, rejections int) {
	t.Helper()
	for i := range rejections + 2 {
		_, err := l.Acquire(t.Context(), zlimit.Request{
			Entity: entity, Resource: "gpt", Consume: zlimit.Amounts{"rpd": 1}, Limits: []zlimit.Limit{zlimit.PerDay("rpd", 2)},
		})
		if rejected := errors.As(err, new(*zlimit.ExceededError)); rejected != (i >= 2) || err != nil && !rejected {
			t.Fatalf("request %d of %s = %v", i, entity, err)
		}
	}
}

// In TestRejectionsAreReported, two processes report a minute each. Reports add up, and a minute without rejections costs no write.
func TestRejectionsAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMemory(t)
		var writes int
		open := func(r zlimit.RejectionReports) *zlimit.RateLimiter {
			return check.Call(zlimit.New(t.Context(), s, zlimit.WithRejectionReports(r), zlimit.WithCoalescing())).Must(t, "zlimit.New()")
		}
		one, two := open(zlimit.RejectionReports{}), open(zlimit.RejectionReports{Top: 1})
		begin := time.Now()
		rejectSome(t, one, "acme", 5)
		rejectSome(t, one, "globex", 3)
		rejectSome(t, two, "initech", 7)
		rejectSome(t, two, "umbrella", 2)
		if got := one.Rejected(); got.Total != 8 || len(got.Heaviest) != 2 || got.Heaviest[0].Entity != "acme" {
			t.Errorf("Rejected() of the process = %+v", got)
		}
		items := func() int {
			t.Helper()
			page := check.Call(store.Of(s).(store.Scanner).Scan(t.Context(), store.Scan{})).Must(t, "Scan()")
			return len(page.Items)
		}
		before := items()
		time.Sleep(61 * time.Second)
		if writes = items() - before; writes != 2 {
			t.Errorf("%d items after a minute, want a report of each process", writes)
		}
		time.Sleep(10 * time.Minute)
		if writes = items() - before; writes != 2 {
			t.Errorf("%d items after minutes without rejections, want none more", writes)
		}
		got, err := one.Usage.Rejected(t.Context(), zlimit.RejectedQuery{From: begin, To: begin.Add(time.Hour)})
		check.Fatal(t, "Usage.Rejected()", err)
		row := func(entity string, count, most int64) zlimit.Rejection {
			return zlimit.Rejection{Entity: entity, Resource: "gpt", Limit: "rpd", LimitEntity: entity, LimitResource: "gpt", Count: count, AtLeast: count, AtMost: most}
		}
		want := zlimit.Rejections{
			From: begin.UTC(), To: begin.Add(time.Hour).UTC(), Total: 17, Reports: 2,
			// The second process does not list an entity that it rejected twice.
			Heaviest: []zlimit.Rejection{row("initech", 7, 7), row("acme", 5, 7), row("globex", 3, 5)},
		}
		compare.Equal(t, "Rejected()", want, got)
		for _, test := range []struct {
			q    zlimit.RejectedQuery
			want int
		}{
			{zlimit.RejectedQuery{From: begin, To: begin.Add(time.Hour), Max: 1}, 1},
			{zlimit.RejectedQuery{From: begin, To: begin.Add(time.Hour), Entity: "globex"}, 1},
			{zlimit.RejectedQuery{From: begin, To: begin.Add(time.Hour), Resource: "other"}, 0},
			{zlimit.RejectedQuery{}, 0}, // the last ten minutes
		} {
			if got, err := one.Usage.Rejected(t.Context(), test.q); err != nil || len(got.Heaviest) != test.want {
				t.Errorf("Rejected(%+v) = %v, %v, want %d rows", test.q, got.Heaviest, err, test.want)
			}
		}
		rejectSome(t, two, fmt.Sprint("late-", 1), 1)
		for _, l := range []*zlimit.RateLimiter{one, two} {
			check.Error(t, "Close()", l.Close())
		}
		if writes = items() - before; writes != 4 { // the bucket of the late one, and its report
			t.Errorf("%d items after Close, want the last rejections reported", writes)
		}
	})
}

func TestRejectedValidates(t *testing.T) {
	l := newLimiter(t, newMemory(t))
	now := time.Now()
	for _, q := range []zlimit.RejectedQuery{
		{From: now, To: now}, {From: now.AddDate(0, -2, 0), To: now}, {Max: -1}, {Entity: "a#b"}, {Resource: "a#b"},
	} {
		if _, err := l.Usage.Rejected(t.Context(), q); !errors.As(err, new(*zlimit.ValidationError)) {
			t.Errorf("Rejected(%+v) = %v, want a ValidationError", q, err)
		}
	}
	for _, r := range []zlimit.RejectionReports{{Top: 101}, {Top: -1}, {Keep: time.Minute}, {Keep: 1000 * time.Hour}} {
		if _, err := zlimit.New(t.Context(), newMemory(t), zlimit.WithRejectionReports(r)); !errors.As(err, new(*zlimit.ValidationError)) {
			t.Errorf("WithRejectionReports(%+v): %v, want a ValidationError", r, err)
		}
	}
}

// TestRejectionsOfFailedReport reports rejections later that a report could not be written of, and also rejections during that write.
func TestRejectionsOfFailedReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := hook(newMemory(t))
		l, err := zlimit.New(t.Context(), store.NewHandle(s, false), zlimit.WithSetup(), zlimit.WithRejectionReports(zlimit.RejectionReports{}))
		check.Fatal(t, "zlimit.New()", err)
		defer l.Close()
		var writes atomic.Int64
		begin := time.Now()
		s.set(func(w ...store.Write) error {
			if _, ok := layout.ParseRejectionReportKey(w[0].Key); !ok {
				return nil
			}
			if writes.Add(1) == 1 {
				rejectSome(t, l, "during", 3)
			}
			return &store.Error{Op: "write", Err: errors.New("not now")}
		})
		rejectSome(t, l, "before", 5)
		time.Sleep(90 * time.Second)
		s.unset()
		rejectSome(t, l, "after", 2)
		time.Sleep(5 * time.Minute)
		got, err := l.Usage.Rejected(t.Context(), zlimit.RejectedQuery{From: begin, To: begin.Add(time.Hour)})
		if err != nil || writes.Load() == 0 || got.Total != 10 || len(got.Heaviest) != 3 || got.Heaviest[1].Entity != "during" {
			t.Errorf("Rejected() = %+v, %v, want 10 of three entities after %d failed writes", got, err, writes.Load())
		}
	})
}
