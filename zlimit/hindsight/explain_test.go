package hindsight_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/hindsight"
)

// TestMoments checks that an explanation has the changes of a range in their order, the last one of each kind before it, and refusals behind the changes
// in their minute.
func TestMoments(t *testing.T) {
	now := time.Date(2026, 2, 20, 8, 0, 0, 0, time.UTC)
	l, err := zlimit.Open(t.Context(), "memory:", zlimit.WithClock(func() time.Time { return now }), zlimit.WithRejectionReports(zlimit.RejectionReports{}))
	check.Fatal(t, "zlimit.Open()", err)
	defer l.Close()
	at := func(clock string) time.Time {
		return check.Call(time.Parse(time.DateTime, "2026-02-20 "+clock)).Must(t, "time.Parse()")
	}
	set := func(clock string, n int64) {
		now = at(clock)
		check.Fatal(t, "Limits.Set()", l.Limits.Set(t.Context(), zlimit.Level{Entity: "alice", Resource: "gpt"},
			zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("rpm", n)}}))
	}
	check.Call(l.Entities.Create(t.Context(), zlimit.Entity{ID: "alice"})).Must(t, "Entities.Create()")
	set("08:30:00", 9)
	set("08:40:00", 8)
	set("09:29:55", 1)
	now = at("09:30:10")
	for range 3 {
		_, _ = l.Acquire(t.Context(), zlimit.Request{Entity: "alice", Resource: "gpt", Consume: zlimit.Amounts{"rpm": 1}})
	}
	set("09:30:40", 2)
	set("09:30:40", 3)
	now = at("09:32:00")
	found := check.Call(hindsight.Explain(t.Context(), l, hindsight.Question{Entity: "alice", Resource: "gpt", At: at("09:30:00"), Now: now})).Must(t, "Explain()")
	var got []string
	for _, m := range found.Moments {
		text := m.Time.Format(time.TimeOnly)
		switch {
		case m.Change != nil:
			text += fmt.Sprint(" ", hindsight.Limits(m.Change.Details)["rpm"].Capacity)
		case m.Refused != nil:
			text += fmt.Sprint(" refused ", m.Refused.Count)
		}
		got = append(got, text)
	}
	want := []string{"08:40:00 8", "09:29:55 1", "09:30:40 2", "09:30:40 3", "09:30:00 refused 2"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("moments (-want +got):\n%s", diff)
	}
	if found.Asked != len(want) { // a whole minute is behind its refusals
		t.Errorf("%d moments are before the minute in question, want all", found.Asked)
	}
	second := check.Call(hindsight.Explain(t.Context(), l, hindsight.Question{Entity: "alice", Resource: "gpt", At: at("09:30:05"), Now: now})).Must(t, "Explain()")
	if second.Asked != 2 {
		t.Errorf("%d moments are before a second of it, want the 2 of before", second.Asked)
	}
	if !found.Reported || !found.Changed || found.Counted || !found.ByLimit() {
		t.Errorf("reported %v, changed %v, counted %v, by a limit %v, want all but counted", found.Reported, found.Changed, found.Counted, found.ByLimit())
	}
}

// TestInvalidQuestions asks about nothing, and about no time. Each error names the field, and no store is called: the limiter is closed.
func TestInvalidQuestions(t *testing.T) {
	l := check.Call(zlimit.Open(t.Context(), "memory:")).Must(t, "Open()")
	check.Fatal(t, "Close()", l.Close())
	now := time.Date(2026, time.March, 12, 12, 30, 0, 0, time.UTC)
	for field, change := range map[string]func(*hindsight.Question){
		"question entity":   func(q *hindsight.Question) { q.Entity = "" },
		"question resource": func(q *hindsight.Question) { q.Resource = "" },
		"question at":       func(q *hindsight.Question) { q.At = time.Time{} },
		"question now":      func(q *hindsight.Question) { q.Now = time.Time{} },
		"question to":       func(q *hindsight.Question) { q.From, q.To = now, now.Add(-time.Hour) },
	} {
		q := hindsight.Question{Entity: "acme", Resource: "gpt", At: now, Now: now}
		change(&q)
		_, err := hindsight.Explain(t.Context(), l, q)
		if invalid, ok := errors.AsType[*zlimit.ValidationError](err); !ok || invalid.Field != field {
			t.Errorf("%s: %v, want an error of the field", field, err)
		}
	}
}
