package hindsight_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/hindsight"
)

// TestSentence says what a limit was in minutes with up to five changes, at levels of its own and wider ones.
func TestSentence(t *testing.T) {
	now := time.Date(2026, 2, 20, 9, 30, 0, 0, time.UTC)
	words := &hindsight.Words{
		Limit:  func(l *zlimit.Limit, _ *hindsight.Level) string { return fmt.Sprint(l.Capacity) },
		Who:    func(e *zlimit.AuditEvent) string { return e.Principal },
		Moment: func(t time.Time) string { return t.Format(time.TimeOnly) },
		Second: func(t time.Time) string { return t.Format("05") },
	}
	own, wide := zlimit.Level{Entity: "alice", Resource: "gpt"}, zlimit.Level{Resource: "gpt"}
	type change struct {
		second int
		level  zlimit.Level
		n      int64 // 0 deletes
	}
	for name, c := range map[string]struct {
		changes []change // the first second is an hour before
		want    string
	}{
		"none":                 {nil, ""},
		"before":               {[]change{{-9, own, 5}}, "The limit was 5, set by ann at 09:39:51, as now."},
		"set":                  {[]change{{10, own, 5}}, "The limit was 5, set by ann at 09:40:10, as now."},
		"deleted":              {[]change{{-9, own, 5}, {10, own, 0}}, "The limit was 5, set by ann at 09:39:51, and is none now."},
		"changed":              {[]change{{-9, own, 5}, {10, own, 7}}, "The limit was 5 until 10, and 7 from 10, set by ann, as now."},
		"later":                {[]change{{-9, own, 5}, {90, own, 7}}, "The limit was 5, set by ann at 09:39:51, and is 7 now."},
		"of a wider level":     {[]change{{-9, wide, 9}, {10, own, 5}, {20, own, 0}}, "The limit was 5 from 10 to 20, set by ann, and 9 before and after, as now."},
		"hidden by its own":    {[]change{{-9, own, 5}, {10, wide, 9}}, "The limit was 5, set by ann at 09:39:51, as now."},
		"twice":                {[]change{{-9, own, 5}, {10, own, 6}, {20, own, 7}}, "The limit was 5 until 10, 6 from 10 to 20, set by ann, and 7 from 20, set by ann, as now."},
		"none in between":      {[]change{{-9, own, 5}, {10, own, 0}, {20, own, 7}}, "The limit was 5 until 10, none from 10 to 20, and 7 from 20, set by ann, as now."},
		"four times":           {[]change{{-9, own, 5}, {1, own, 6}, {2, own, 7}, {3, own, 8}, {4, own, 9}}, "The limit was 5 until 01, then 3 other values, and 9 from 04, set by ann, as now."},
		"to the same again":    {[]change{{-9, own, 5}, {10, own, 5}}, "The limit was 5, set by ann at 09:39:51, as now."},
		"at the end, too late": {[]change{{-9, own, 5}, {60, own, 7}}, "The limit was 5, set by ann at 09:39:51, and is 7 now."},
	} {
		t.Run(name, func(t *testing.T) {
			minute := time.Date(2026, 2, 20, 9, 40, 0, 0, time.UTC)
			l, err := zlimit.Open(t.Context(), "memory:", zlimit.WithClock(func() time.Time { return now }), zlimit.WithPrincipal("ann"))
			check.Fatal(t, "zlimit.Open()", err)
			t.Cleanup(func() { _ = l.Close() })
			for _, change := range c.changes {
				if now = minute.Add(time.Duration(change.second) * time.Second); change.n == 0 {
					err = l.Limits.Delete(t.Context(), change.level)
				} else {
					err = l.Limits.Set(t.Context(), change.level, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("rpm", change.n)}})
				}
				check.Fatal(t, "Limits.Delete() or Limits.Set()", err)
			}
			if got := check.Call(hindsight.Was(t.Context(), l, words, own, "rpm", minute, now)).Must(t, "Was()"); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}
