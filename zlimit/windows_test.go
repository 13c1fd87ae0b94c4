package zlimit_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/zlimit"
)

// TestWindows follows a limit across the edges of its windows. The limit has what flows in at the rates of each
// window, and no more than it can hold.
func TestWindows(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		ctx := context.Background()
		c := newClock()
		l := newLimiter(t, s, zlimit.WithClock(c.now))
		now := c.now()
		c.sleep(now.Truncate(time.Hour).Add(time.Hour + time.Minute + 50*time.Second).Sub(now)) // an odd minute
		limit := zlimit.PerMinute("rpm", 60).When("*/2 * * * *", "x0.5")
		setLimits(t, l, zlimit.Level{Resource: "gpt-4"}, limit)
		got, err := l.Limits.Get(ctx, zlimit.Level{Resource: "gpt-4"})
		if err != nil || len(got.Limits) != 1 || got.Limits[0] != limit {
			t.Fatalf("stored are %+v, %v", got, err)
		}
		for _, step := range []struct {
			after     time.Duration
			take      int64
			available int64
			retry     time.Duration
		}{
			{0, 1, 59, 0},
			{10300 * time.Millisecond, 1, 29, 0},  // 60 are cut off at 30
			{60 * time.Second, 1, 29, 0},          // 30, and 0.3 s at 60 a minute
			{0, 60, 29, 30700 * time.Millisecond}, // not before the window closes and opens again
			{59700 * time.Millisecond, 30, 0, 0},  // 30 once more
		} {
			c.sleep(step.after)
			_, err := l.Acquire(ctx, ask(zlimit.Amounts{"rpm": step.take}))
			if errors.As(err, new(*zlimit.ExceededError)) != (step.retry > 0) || step.retry == 0 && err != nil {
				t.Fatalf("%+v: %v", step, err)
			}
			statuses, err := l.Available(ctx, zlimit.AvailableQuery{Entity: "key-1", Resource: "gpt-4"})
			if err != nil || statuses[0].Available != step.available {
				t.Fatalf("%+v: %+v, %v", step, statuses, err)
			}
		}
	})
}

// TestWindowsOfSibling reads an item and a level as zae-limiter 0.17 stores them: limits share windows that one does not have.
func TestWindowsOfSibling(t *testing.T) {
	c := newClock()
	s := newMemory(t)
	l := newLimiter(t, s, zlimit.WithClock(c.now))
	limits := []zlimit.Limit{zlimit.PerMinute("rpm", 100), zlimit.PerMinute("tpm", 1000)}
	setLimits(t, l, zlimit.Level{Resource: "gpt-4"}, limits...)
	acquire(t, l, ask(zlimit.Amounts{"rpm": 1, "tpm": 10}))
	mark(t, l, layout.ResourceConfigKey{NS: l.NS(), Resource: "gpt-4"}.Key(), text("l_rpm_sched", "1s500"), text("sched_tz", "Europe/Berlin"))
	mark(t, l, keyOfBucket(l), text("sched", "1s500"), text("b_tpm_sched", "-"), text("sched_tz", "Europe/Berlin"), integer("vu", 0))
	l.Limits.InvalidateAll()
	fresh := newLimiter(t, s, zlimit.WithClock(c.now))
	lease := acquire(t, fresh, ask(zlimit.Amounts{"rpm": 1, "tpm": 10}))
	statuses := lease.Statuses()
	rpm, _ := statuses.Limit("rpm")
	if rpm.Limit.Windows != "* * * * * x0.5" || rpm.Limit.Zone != "Europe/Berlin" {
		t.Errorf("the limit is %+v", rpm.Limit)
	}
	item := item(t, fresh)
	if item.Get("b_rpm_sched").Text() != "1s500" || item.Index("sched") >= 0 || item.Get("vu").Kind() != expr.N(0).Kind() {
		t.Errorf("the item is %v", item)
	}
	if tk, _ := item.Get("b_rpm_tk").Int(); tk != 49_000 {
		t.Errorf("%d millitokens are left, want 49000: 50000 is the capacity", tk)
	}
}

// TestStatusInWindows covers the status of a limit inside of a window, and behind its end, in Go and as JSON.
func TestStatusInWindows(t *testing.T) {
	ctx := context.Background()
	c := newClock()
	l := newLimiter(t, newMemory(t), zlimit.WithClock(c.now))
	c.sleep(c.now().Truncate(time.Hour).Add(time.Hour + 2*time.Minute).Sub(c.now()))
	limits := []zlimit.Limit{
		zlimit.PerMinute("rpm", 60).When("*/2 * * * *", "x2"), zlimit.PerMinute("tpm", 60).When("*/2 * * * *", "to 20:10/30s"),
		zlimit.Daily("rpd", 1000, "UTC").When("*/2 * * * *", "to 500:"),
	}
	setLimits(t, l, zlimit.Level{Resource: "gpt-4"}, limits...)
	acquire(t, l, ask(zlimit.Amounts{"rpm": 1}))
	for _, want := range [][]zlimit.Limit{
		{zlimit.PerMinute("rpm", 120), {Name: "tpm", Capacity: 20, RefillAmount: 10, RefillPeriod: 30 * time.Second}, zlimit.Daily("rpd", 500, "UTC")},
		limits,
	} {
		statuses, err := l.Available(ctx, zlimit.AvailableQuery{Entity: "key-1", Resource: "gpt-4"})
		if err != nil || len(statuses) != len(want) {
			t.Fatal(statuses, err)
		}
		for i, s := range statuses {
			at := slices.IndexFunc(want, func(l zlimit.Limit) bool { return l.Name == s.Limit.Name })
			if s.Now() != want[at] || s.Limit != limits[at] || (s.Window != nil) != (want[at].Windows == "") {
				t.Errorf("%+v holds %+v, want %+v", s, s.Now(), want[at])
			}
			body, err := json.Marshal(statuses[i])
			if err != nil || strings.Contains(string(body), `"window":{`) != (s.Window != nil) {
				t.Errorf("%s, %v", body, err)
			}
		}
		sum, err := l.Usage.Capacity(ctx, "gpt-4")
		if rpm, ok := sum.Limit("rpm"); err != nil || !ok || rpm.Capacity.Tokens() != want[0].Capacity {
			t.Errorf("capacity %+v, %v", sum, err)
		}
		_, err = l.Acquire(ctx, ask(zlimit.Amounts{"rpm": 110, "tpm": 30}))
		if !errors.As(err, new(*zlimit.ExceededError)) || !strings.Contains(err.Error(), "tpm (requested 30, available 20 of ") && want[1].Windows == "" {
			t.Errorf("error %v", err)
		}
		c.sleep(time.Minute)
	}
}

// TestWindowsRefused sets limits whose windows break a rule.
func TestWindowsRefused(t *testing.T) {
	l := newLimiter(t, newMemory(t))
	for _, test := range []struct {
		limit         zlimit.Limit
		field, reason string
	}{
		{zlimit.PerMinute("rpm", 60).When("0 * 9-17 * * 1-5", "x2"), "windows", "must have the five fields"},
		{zlimit.PerMinute("rpm", 60).When("* * * * *", "x2").In("Europe/Bonn"), "zone", "is not known"},
		{zlimit.PerMinute("rpm", 60).When("* * 30 2 *", "x2"), "windows", "is of no minute"},
		{zlimit.PerMinute("rpm", math.MaxInt64/1000).When("* * * * *", "x2"), "windows", "the multiplier x2 makes more than"},
		{zlimit.Daily("rpd", 60, "UTC").When("* * * * *", "to 5"), "windows", "a quota has no refill"},
	} {
		err := l.Limits.Set(context.Background(), zlimit.Level{Resource: "gpt-4"}, zlimit.Config{Limits: []zlimit.Limit{test.limit}})
		var invalid *zlimit.ValidationError
		if !errors.As(err, &invalid) || !strings.HasSuffix(invalid.Field, "["+test.limit.Name+"] "+test.field) || !strings.Contains(invalid.Reason, test.reason) {
			t.Errorf("%v: %v", test.limit, err)
		}
	}
}

// TestWindowsAsText writes and reads a limit with windows in each form.
func TestWindowsAsText(t *testing.T) {
	limit := zlimit.PerMinute("rpm", 60).When("* 9-17 * * 1-5", "x2").When("* 0-5 * * *", "to 20:10/30s").In("Europe/Berlin")
	for _, form := range []string{limit.String(), `"rpm=60/min when \"* 9-17 * * 1-5\" x2"`} {
		var again zlimit.Limit
		if strings.HasPrefix(form, `"`) {
			if err := json.Unmarshal([]byte(form), &again); err != nil || again.Windows != "* 9-17 * * 1-5 x2" {
				t.Errorf("%s: %+v, %v", form, again, err)
			}
		} else if err := again.UnmarshalText([]byte(form)); err != nil || again != limit {
			t.Errorf("%s: %+v, %v", form, again, err)
		}
	}
	body, err := json.Marshal(limit)
	var again zlimit.Limit
	if err != nil || json.Unmarshal(body, &again) != nil || again != limit {
		t.Errorf("%s: %+v, %v", body, again, err)
	}
}
