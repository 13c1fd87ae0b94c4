package hindsight_test

import (
	"errors"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/hindsight"
)

// A yard is a namespace with entities and resources above one another, at 09:30: key is of team, team of firm, chat within models, and
// loose has a parent that is not charged.
type yard struct {
	t     *testing.T
	l     *zlimit.RateLimiter
	now   time.Time
	limit zlimit.Limit
}

func newYard(t *testing.T) *yard {
	t.Helper()
	y := &yard{t: t, now: time.Date(2026, 2, 20, 9, 30, 0, 0, time.UTC), limit: zlimit.PerMinute("rpm", 100)}
	y.l = check.Call(zlimit.Open(t.Context(), "memory:", zlimit.WithClock(func() time.Time { return y.now }), zlimit.WithPrincipal("ann"),
		zlimit.WithRejectionReports(zlimit.RejectionReports{}))).Must(t, "zlimit.Open()")
	t.Cleanup(func() { _ = y.l.Close() })
	for _, e := range []zlimit.Entity{
		{ID: "firm"}, {ID: "firm-2"}, {ID: "team", ParentID: "firm", Cascade: true}, {ID: "key", ParentID: "team", Cascade: true}, {ID: "loose", ParentID: "team"},
	} {
		check.Call(y.l.Entities.Create(t.Context(), e)).Must(t, "Entities.Create()")
	}
	for _, resource := range []string{"chat", "models"} {
		y.set(zlimit.Level{Resource: resource}, y.limit)
	}
	check.Fatal(t, "Resources.Put()", y.l.Resources.Put(t.Context(), zlimit.Resource{ID: "chat", Within: "models"}))
	return y
}

// at sets the clock to a time of the day.
func (y *yard) at(clock string) *yard {
	at := check.Call(time.Parse(time.TimeOnly, clock)).Must(y.t, "time.Parse()")
	y.now = time.Date(2026, 2, 20, at.Hour(), at.Minute(), at.Second(), 0, time.UTC)
	return y
}

func (y *yard) set(at zlimit.Level, limits ...zlimit.Limit) {
	y.t.Helper()
	check.Fatal(y.t, "Limits.Set()", y.l.Limits.Set(y.t.Context(), at, zlimit.Config{Limits: limits}))
}

func (y *yard) disable(at zlimit.Level) {
	y.t.Helper()
	check.Call(y.l.Limits.Disable(y.t.Context(), at, nil)).Must(y.t, "Limits.Disable()")
}

func (y *yard) leave(at zlimit.Level) {
	y.t.Helper()
	check.Call(y.l.Limits.LeaveSwitch(y.t.Context(), at, nil)).Must(y.t, "Limits.LeaveSwitch()")
}

// refused reports whether a request is refused by a switch.
func (y *yard) refused(entity string) bool {
	y.t.Helper()
	_, err := y.l.Acquire(y.t.Context(), zlimit.Request{Entity: entity, Resource: "chat", Consume: zlimit.Amounts{"rpm": 1}})
	if err != nil && !errors.Is(err, zlimit.ErrDisabled) {
		y.t.Fatalf("Acquire() = %v", err)
	}
	return err != nil
}

// answer answers for an entity and chat, for the minute or the second of a clock.
func (y *yard) answer(entity, clock string) hindsight.Answer {
	y.t.Helper()
	form := time.TimeOnly
	if len(clock) == len("15:04") {
		form = "15:04"
	}
	parsed := check.Call(time.Parse(form, clock)).Must(y.t, "time.Parse()")
	at := time.Date(2026, 2, 20, parsed.Hour(), parsed.Minute(), parsed.Second(), 0, time.UTC)
	q := hindsight.Question{Entity: entity, Resource: "chat", At: at, Now: y.now}
	if form == time.TimeOnly { // a second, also if it is the first one of a minute
		q.End = at
	}
	return check.Call(hindsight.Explain(y.t.Context(), y.l, q)).Must(y.t, "Explain()").Answer
}

// TestSwitchAtEachLevel sets a switch at each level that a request is charged to. The limiter refuses the request, and the answer names the
// level, the author and the time, also for an entity that was never seen.
func TestSwitchAtEachLevel(t *testing.T) {
	for _, c := range []struct {
		at     zlimit.Level
		entity string
	}{
		{zlimit.Level{Entity: "key", Resource: "chat"}, "key"},
		{zlimit.Level{Entity: "key"}, "key"},
		{zlimit.Level{Entity: "key", Resource: "models"}, "key"},
		{zlimit.Level{Entity: "team", Resource: "chat"}, "key"},
		{zlimit.Level{Entity: "team"}, "key"},
		{zlimit.Level{Entity: "firm"}, "key"},
		{zlimit.Level{Entity: "firm", Resource: "models"}, "key"},
		{zlimit.Level{Resource: "chat"}, "key"},
		{zlimit.Level{Resource: "models"}, "key"},
		{zlimit.Level{Resource: "chat"}, "never-seen"},
		{zlimit.Level{Resource: "models"}, "never-seen"},
	} {
		t.Run(c.at.String()+" for "+c.entity, func(t *testing.T) {
			y := newYard(t).at("09:40:10")
			y.disable(c.at)
			if !y.at("09:42:30").refused(c.entity) {
				t.Fatal("the limiter admits the request")
			}
			s := y.answer(c.entity, "09:42").Off
			if s == nil || s.At != c.at || !s.Whole() || s.By == nil || s.By.Principal != "ann" {
				t.Errorf("the switch of 09:42 is %+v, want that at %v all the time, by ann", s, c.at)
			}
			if s := y.answer(c.entity, "09:40").Off; s == nil || s.Whole() || s.From.Second() != 10 || !s.To.IsZero() {
				t.Errorf("the switch of 09:40 is %+v, want it from 09:40:10 on", s)
			}
			if s := y.answer(c.entity, "09:39").Off; s != nil {
				t.Errorf("the switch of 09:39 is %+v, want none", s)
			}
		})
	}
}

// TestSwitchThatDoesNotCount sets switches that refuse nothing.
func TestSwitchThatDoesNotCount(t *testing.T) {
	for name, set := range map[string]func(y *yard){
		"of a parent that is not charged": func(y *yard) { y.disable(zlimit.Level{Entity: "team"}) },
		"that a narrower level is exempt from": func(y *yard) {
			y.disable(zlimit.Level{Resource: "chat"})
			check.Call(y.l.Limits.Enable(y.t.Context(), zlimit.Level{Entity: "loose", Resource: "chat"}, nil)).Must(y.t, "Limits.Enable()")
		},
		"of another resource": func(y *yard) { y.disable(zlimit.Level{Entity: "loose", Resource: "voice"}) },
	} {
		t.Run(name, func(t *testing.T) {
			y := newYard(t).at("09:40:10")
			set(y)
			if y.at("09:42:30").refused("loose") {
				t.Fatal("the limiter refuses the request")
			}
			if a := y.answer("loose", "09:42"); a.Off != nil || a.Late != nil {
				t.Errorf("the switch is %+v, %+v, want none", a.Off, a.Late)
			}
		})
	}
}

// TestSwitchWithinAMinute sets a switch and lifts it 12 seconds later. The minute has it, and so have its seconds. For a minute after it,
// processes may not know that it was lifted.
func TestSwitchWithinAMinute(t *testing.T) {
	y := newYard(t).at("09:40:10")
	y.disable(zlimit.Level{Entity: "team"})
	y.at("09:40:22").leave(zlimit.Level{Entity: "team"})
	y.at("09:50:00")
	if s := y.answer("key", "09:40").Off; s == nil || s.From.Second() != 10 || s.To.Second() != 22 || s.Lifted == nil || s.Lifted.Principal != "ann" {
		t.Errorf("the switch of the minute is %+v, want it from second 10 to 22, lifted by ann", s)
	}
	if s := y.answer("key", "09:40:15").Off; s == nil || !s.Whole() {
		t.Errorf("the switch of a second in between is %+v", s)
	}
	for clock, late := range map[string]bool{"09:40:05": false, "09:40:30": true, "09:41": true, "09:42": false} {
		a := y.answer("key", clock)
		if a.Off != nil || (a.Late != nil) != late {
			t.Errorf("at %s the switch is %+v, and the late one %+v, want a late one: %t", clock, a.Off, a.Late, late)
		}
	}
}

// TestSwitchOfAFormerParent moves an entity from a parent that is disabled to another one that is, until that is enabled, as a rotation
// does. Each time has the switch of the parent that was charged.
func TestSwitchOfAFormerParent(t *testing.T) {
	y := newYard(t).at("09:38:00")
	y.disable(zlimit.Level{Entity: "firm-2"})
	y.at("09:40:00").disable(zlimit.Level{Entity: "firm"})
	check.Call(y.at("09:42:30").l.Entities.SetParent(t.Context(), "team", "firm-2")).Must(t, "Entities.SetParent()")
	y.at("09:44:00").leave(zlimit.Level{Entity: "firm-2"})
	y.at("09:50:00")
	for clock, want := range map[string]string{"09:39": "", "09:41": "firm", "09:43": "firm-2", "09:46": ""} {
		got := ""
		if s := y.answer("key", clock).Off; s != nil {
			got = s.At.Entity
		}
		if got != want {
			t.Errorf("at %s the switch is of %q, want %q", clock, got, want)
		}
	}
	if s := y.answer("key", "09:42").Off; s == nil || s.Whole() {
		t.Errorf("in the minute of the move the switch is %+v, want one that held for a part of it", s)
	}
}

// TestRefusedByAWiderResource: where several resources have a limit of one name, a refusal names the resource of the one that refused. Where
// a report does not say it, it is the resource that had such a limit.
func TestRefusedByAWiderResource(t *testing.T) {
	y := newYard(t)
	y.set(zlimit.Level{Resource: "models"}, zlimit.PerMinute("rpm", 2), zlimit.PerMinute("tokens", 5))
	y.at("09:40:00")
	for range 4 {
		_, _ = y.l.Acquire(t.Context(), zlimit.Request{Entity: "key", Resource: "chat", Consume: zlimit.Amounts{"rpm": 1}})
	}
	y.at("09:40:20")
	words := &hindsight.Words{
		Limit:  func(l *zlimit.Limit, at *hindsight.Level) string { return l.String() + " of " + at.At.String() },
		Who:    func(e *zlimit.AuditEvent) string { return e.Principal },
		Moment: func(t time.Time) string { return t.Format(time.TimeOnly) },
		Second: func(t time.Time) string { return t.Format("05") },
	}
	a := y.answer("key", "09:40")
	if len(a.During) != 1 || a.During[0].LimitResource != "models" || a.During[0].Impossible {
		t.Fatalf("the refusals are %+v, want those of models", a.During)
	}
	if text, want := words.Then(&a.During[0]), " The limit was rpm=2/min of resource models, set by ann at 09:30:00, as now."; text != want {
		t.Errorf("Then() = %q, want %q", text, want)
	}
	minute := time.Date(2026, 2, 20, 9, 40, 0, 0, time.UTC)
	old := hindsight.Refused{Rejection: zlimit.Rejection{Entity: "key", Resource: "chat", Limit: "tokens", LimitEntity: "key", LimitResource: "chat", Count: 1}, Minute: minute, Until: minute.Add(time.Minute)}
	answered, err := hindsight.AnswerOf(t.Context(), y.l, hindsight.Question{Entity: "key", Resource: "chat", At: minute, Now: y.now}, old)
	if err != nil || answered.During[0].LimitResource != "models" {
		t.Errorf("a refusal of an older report is by %+v, %v, want by models", answered.During, err)
	}
}

// TestImpossible: explain distinguishes requests that ask for more than a limit can hold.
func TestImpossible(t *testing.T) {
	y := newYard(t).at("09:40:00")
	for _, n := range []int64{1000, 1000, 60, 60} {
		_, _ = y.l.Acquire(t.Context(), zlimit.Request{Entity: "key", Resource: "chat", Consume: zlimit.Amounts{"rpm": n}})
	}
	a := y.at("09:40:20").answer("key", "09:40")
	if len(a.During) != 1 || a.During[0].Impossible || a.During[0].Count != 3 || a.During[0].TooLarge != 2 {
		t.Errorf("the refusals are %+v, want three, of which two were too large", a.During)
	}
}

// TestUnlimited: nothing that a request is charged to had limits, or some of it had.
func TestUnlimited(t *testing.T) {
	y := newYard(t).at("09:40:00")
	y.set(zlimit.Level{Entity: "firm", Resource: "voice"}, y.limit)
	y.at("09:50:00")
	for _, c := range []struct {
		entity, resource string
		want             bool
	}{{"key", "chat", false}, {"never-seen", "voice", true}, {"key", "voice", false}, {"loose", "voice", true}} {
		a, err := hindsight.Explain(t.Context(), y.l, hindsight.Question{Entity: c.entity, Resource: c.resource, At: y.now, Now: y.now})
		if err != nil || a.Unlimited != c.want {
			t.Errorf("%s for %s: unlimited %t, %v, want %t", c.entity, c.resource, a.Unlimited, err, c.want)
		}
	}
}
