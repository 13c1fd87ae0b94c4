package dashboard_test

import (
	"strings"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
)

// TestWhyAtTheRefusal lowers a limit for 15 seconds, in which it refuses. Whatever time is asked for, the screen says what the limit was in
// the minute of the refusals: both values where they changed in it, and neither of those that it had before and afterwards.
func TestWhyAtTheRefusal(t *testing.T) {
	handle := newStore(t)
	now := time.Date(2026, 2, 20, 9, 0, 0, 0, time.UTC)
	clock := func() time.Time { return now }
	v := visitAt(t, handle, clock)
	v.signIn(t, "viewer")
	ctx := zlimit.ContextWithPrincipal(t.Context(), "olga")
	for _, e := range []zlimit.Entity{{ID: "team"}, {ID: "alice", ParentID: "team", Cascade: true}} {
		if _, err := v.limiter.Entities.Create(ctx, e); err != nil {
			t.Fatalf("Entities.Create() = %v", err)
		}
	}
	at := func(text string) {
		t.Helper()
		clock := check.Call(time.Parse(time.TimeOnly, text)).Must(t, "time.Parse()")
		now = time.Date(2026, 2, 20, clock.Hour(), clock.Minute(), clock.Second(), 0, time.UTC)
	}
	set := func(when string, n int64) {
		t.Helper()
		at(when)
		err := v.limiter.Limits.Set(ctx, zlimit.Level{Entity: "team", Resource: "gpt"}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("rpm", n)}})
		check.Fatal(t, "Limits.Set()", err)
	}
	set("09:30:00", 100)
	set("09:40:02", 3)
	at("09:40:10")
	reporting, err := zlimit.New(ctx, handle, zlimit.WithRejectionReports(zlimit.RejectionReports{}), zlimit.WithClock(clock))
	check.Fatal(t, "zlimit.New()", err)
	for range 5 {
		_, _ = reporting.Acquire(ctx, zlimit.Request{Entity: "alice", Resource: "gpt", Consume: zlimit.Amounts{"rpm": 1}})
	}
	check.Fatal(t, "Close()", reporting.Close())
	at("09:42:00")
	v.screen(t, "/why?id=alice&resource=gpt&at=09:40", "It was refused 2 times in the minute. The limit was 100 a minute until 09:40:02, and 3 a minute from 09:40:02, set by olga, as now.")

	set("09:40:17", 100)
	const both = "The limit was 3 a minute from 09:40:02 to 09:40:17, set by olga, and 100 a minute before and after, as now."
	at("09:42:00")
	v.screen(t, "/why?id=alice&resource=gpt&at=09:40", "alice was refused at 09:40 by rpm of team", both)
	v.screen(t, "/why?id=alice&resource=gpt&at=09:38:53", "No refusal of alice is reported at 09:38:53. The nearest was at 09:40", both)
	v.screen(t, "/why?id=alice&resource=gpt&at=09:40", "09:40:17 changed team rpm 3 → 100 a minute by olga, for gpt 09:40 refused team 2 times by rpm, in the minute from here 09:40 asked")
	set("09:45:00", 50)
	at("09:47:00")
	text := v.screen(t, "/why?id=alice&resource=gpt&at=09:46", "The nearest was at 09:40", strings.Replace(both, ", as now.", ", and is 50 a minute now.", 1))
	if strings.Contains(text, "The limit was 50") {
		t.Errorf("the limit of the asked minute is that of the refusal: %s", text)
	}
}

// TestWhyDisabledLater disables an entity in the minute in which a limit refused it. Both may have refused, and the limit is reported.
func TestWhyDisabledLater(t *testing.T) {
	handle := newStore(t)
	now := time.Date(2026, 2, 20, 9, 40, 5, 0, time.UTC)
	clock := func() time.Time { return now }
	v := visitAt(t, handle, clock)
	v.signIn(t, "viewer")
	reporting, err := zlimit.New(t.Context(), handle, zlimit.WithRejectionReports(zlimit.RejectionReports{}), zlimit.WithClock(clock))
	check.Fatal(t, "zlimit.New()", err)
	for range 12 {
		_, err = reporting.Acquire(t.Context(), zlimit.Request{Entity: "alice", Resource: "gpt", Consume: zlimit.Amounts{"rpm": 1}})
	}
	if err == nil {
		t.Fatal("nothing was refused")
	}
	check.Fatal(t, "Close()", reporting.Close())
	now = now.Add(30 * time.Second)
	if _, err := v.limiter.Limits.Disable(t.Context(), zlimit.Level{Entity: "alice"}, nil); err != nil {
		t.Fatalf("Limits.Disable() = %v", err)
	}
	now = now.Add(2 * time.Minute)
	for at, want := range map[string]string{"09:40": "alice was refused at 09:40 by rpm", "09:41": "alice was disabled for gpt at 09:41"} {
		if got := v.headline(t, "/why?id=alice&resource=gpt&at="+at); got != want {
			t.Errorf("at %s the headline is %q, want %q", at, got, want)
		}
	}
}

// TestWhyElsewhere: the screen names a switch at a parent and at a wider resource, for a part of a minute, and a limit of a wider resource.
func TestWhyElsewhere(t *testing.T) {
	handle := newStore(t)
	now := time.Date(2026, 2, 20, 9, 30, 0, 0, time.UTC)
	clock := func() time.Time { return now }
	v := visitAt(t, handle, clock)
	v.signIn(t, "viewer")
	ctx := zlimit.ContextWithPrincipal(t.Context(), "olga")
	for _, e := range []zlimit.Entity{{ID: "team"}, {ID: "alice", ParentID: "team", Cascade: true}} {
		check.Call(v.limiter.Entities.Create(ctx, e)).Must(t, "Entities.Create()")
	}
	check.Fatal(t, "Limits.Set()", v.limiter.Limits.Set(ctx, zlimit.Level{Resource: "models"}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("tpm", 2)}}))
	check.Fatal(t, "Limits.Set()", v.limiter.Limits.Set(ctx, zlimit.Level{Resource: "chat"}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 2000)}}))
	check.Fatal(t, "Resources.Put()", v.limiter.Resources.Put(ctx, zlimit.Resource{ID: "chat", Within: "models"}))
	now = now.Add(10 * time.Minute)
	reporting, err := zlimit.New(ctx, handle, zlimit.WithRejectionReports(zlimit.RejectionReports{}), zlimit.WithClock(clock))
	check.Fatal(t, "zlimit.New()", err)
	for _, n := range []int64{1, 2, 7} {
		_, _ = reporting.Acquire(ctx, zlimit.Request{Entity: "alice", Resource: "chat", Consume: zlimit.Amounts{"tpm": n}})
	}
	check.Fatal(t, "Close()", reporting.Close())
	now = now.Add(5*time.Minute + 5*time.Second)
	for _, at := range []zlimit.Level{{Entity: "team"}, {Resource: "models"}} {
		check.Call(v.limiter.Limits.Disable(ctx, at, nil)).Must(t, "Limits.Disable()")
		now = now.Add(12 * time.Second)
		check.Call(v.limiter.Limits.LeaveSwitch(ctx, at, nil)).Must(t, "Limits.LeaveSwitch()")
		now = now.Add(5*time.Minute - 12*time.Second)
	}
	v.screen(t, "/why?id=alice&resource=chat&at=09:40", "alice was refused at 09:40 by tpm for models", "2 times in the minute. The limit was 2 a minute , set by olga at 09:30, as now. Of the requests 1 asked for more than the limit can hold")
	v.screen(t, "/why?id=alice&resource=chat&at=09:45", "alice was disabled for chat at 09:45",
		"Requests were rejected from 09:45:05 to 09:45:17, and processes may have rejected some for another minute. The switch was at the default level of team , set by olga at 09:45, lifted by olga.")
	v.screen(t, "/why?id=alice&resource=chat&at=09:50", "alice was disabled for chat at 09:50", "The switch was at the resource models , set by olga")
	v.screen(t, "/why?id=alice&resource=chat&at=09:51", "alice was disabled for chat until 09:50:17", "A process may reject requests for another minute.")
	v.screen(t, "/why?id=nobody&resource=nothing&at=09:51", "No limits of nobody for nothing were stored at 09:51")
}
