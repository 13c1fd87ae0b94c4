package zlimit_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/user"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/oklog/ulid/v2"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/compare"
	"github.com/zlimit/zlimit-go/internal/proof/soak"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// events returns the events of an entity that a query asks for.
func events(tb testing.TB, l *zlimit.RateLimiter, entity string, q zlimit.AuditQuery) []zlimit.AuditEvent {
	tb.Helper()
	return collect(tb, "Events()", l.Audit.Events(context.Background(), entity, q))
}

// TestEveryChangeHasAnEvent makes each kind of change, and refused ones, which have none.
func TestEveryChangeHasAnEvent(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		ctx := context.Background()
		c := newClock()
		l := newLimiter(t, s, zlimit.WithClock(c.now), zlimit.WithPrincipal("arn:aws:iam::1:user/Žofie"))
		start := c.now()
		for i, do := range []func() error{
			func() error { _, err := l.Entities.Create(ctx, zlimit.Entity{ID: "p", Name: "Parent"}); return err },
			func() error {
				_, err := l.Entities.Create(ctx, zlimit.Entity{ID: "e", ParentID: "p", Cascade: true, Metadata: map[string]string{"plan": "gold"}})
				return err
			},
			func() error {
				return l.Limits.Set(ctx, zlimit.Level{Entity: "e"}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerDay("rpd", 5), zlimit.PerMinute("a.b-c", 3, zlimit.Burst(9))}})
			},
			func() error {
				return l.Limits.Set(ctx, zlimit.Level{Entity: "e"}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerDay("rpd", 6)}})
			},
			func() error { return l.Limits.Delete(ctx, zlimit.Level{Entity: "e"}) },
			func() error {
				return l.Limits.Set(ctx, zlimit.Level{Resource: "gpt-4"}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerDay("rpd", 7)}})
			},
			func() error { return l.Limits.Delete(ctx, zlimit.Level{Resource: "gpt-4"}) },
			func() error {
				return l.Limits.Set(ctx, zlimit.Level{}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerDay("rpd", 8)}, OnUnavailable: zlimit.PolicyAllow, AuditRetention: 30 * zlimit.Day})
			},
			func() error {
				return l.Limits.Set(ctx, zlimit.Level{}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerDay("rpd", 9)}})
			},
			func() error { return l.Limits.Delete(ctx, zlimit.Level{}) },
			func() error { return l.Entities.Delete(ctx, "e") },
			func() error { _, err := l.Entities.Create(ctx, zlimit.Entity{ID: "m"}); return err },
			func() error { _, err := l.Entities.SetParent(ctx, "m", "p"); return err },
		} {
			c.sleep(time.Minute)
			if err := do(); err != nil {
				t.Fatalf("change %d = %v", i, err)
			}
		}
		for i, do := range []func() error{
			func() error { _, err := l.Entities.Create(ctx, zlimit.Entity{ID: "p"}); return err },
			func() error { _, err := l.Entities.Create(ctx, zlimit.Entity{ID: "x", ParentID: "e"}); return err },
			func() error { return l.Entities.Delete(ctx, "e") },
			func() error { _, err := l.Entities.SetParent(ctx, "p", "m"); return err },
			func() error { return l.Limits.Set(ctx, zlimit.Level{Resource: "gpt-4"}, zlimit.Config{Limits: nil}) },
		} {
			if err := do(); err == nil {
				t.Errorf("change %d was not refused", i)
			}
		}
		for _, remove := range []func() error{ // of nothing
			func() error { return l.Limits.Delete(ctx, zlimit.Level{}) },
			func() error { return l.Limits.Delete(ctx, zlimit.Level{Resource: "gpt-4"}) },
			func() error { return l.Limits.Delete(ctx, zlimit.Level{Entity: "e", Resource: "gpt-4"}) },
		} {
			check.Error(t, "remove()", remove())
		}

		limit := func(name string, capacity, refill, seconds int64) map[string]any {
			return map[string]any{"name": name, "capacity": capacity, "refill_amount": refill, "refill_period_seconds": seconds}
		}
		config := func(version int64, limits ...any) map[string]any {
			return map[string]any{"config_version": version, "limits": append([]any{}, limits...)}
		}
		with := func(details map[string]any, name string, value any) map[string]any {
			details[name] = value
			return details
		}
		want := map[string][]zlimit.AuditEvent{
			"p": {{Time: start.Add(time.Minute), Action: zlimit.ActionEntityCreated, Details: map[string]any{"name": "Parent", "parent_id": nil, "cascade": false, "metadata": map[string]any{}}}},
			"e": {
				{Time: start.Add(2 * time.Minute), Action: zlimit.ActionEntityCreated, Details: map[string]any{"name": "e", "parent_id": "p", "cascade": true, "metadata": map[string]any{"plan": "gold"}}},
				{Time: start.Add(3 * time.Minute), Action: zlimit.ActionLimitsSet, Resource: zlimit.DefaultResource, Details: config(1, limit("a.b-c", 9, 3, 60), limit("rpd", 5, 5, 86400))},
				{Time: start.Add(4 * time.Minute), Action: zlimit.ActionLimitsSet, Resource: zlimit.DefaultResource, Details: with(config(2, limit("rpd", 6, 6, 86400)), "before", config(1, limit("a.b-c", 9, 3, 60), limit("rpd", 5, 5, 86400)))},
				{Time: start.Add(5 * time.Minute), Action: zlimit.ActionLimitsDeleted, Resource: zlimit.DefaultResource, Details: config(2, limit("rpd", 6, 6, 86400))},
				{Time: start.Add(11 * time.Minute), Action: zlimit.ActionEntityDeleted, Details: map[string]any{"name": "e", "parent_id": "p", "cascade": true, "metadata": map[string]any{"plan": "gold"}}},
			},
			"m": {
				{Time: start.Add(12 * time.Minute), Action: zlimit.ActionEntityCreated, Details: map[string]any{"name": "m", "parent_id": nil, "cascade": false, "metadata": map[string]any{}}},
				{Time: start.Add(13 * time.Minute), Action: zlimit.ActionEntityMoved, Details: map[string]any{"old_parent_id": nil, "parent_id": "p", "pgen": start.Add(13 * time.Minute).UnixMilli(), "before": map[string]any{"parent_id": nil}}},
			},
			zlimit.AuditResource("gpt-4"): {
				{Time: start.Add(6 * time.Minute), Action: zlimit.ActionLimitsSet, Resource: "gpt-4", Details: config(1, limit("rpd", 7, 7, 86400))},
				{Time: start.Add(7 * time.Minute), Action: zlimit.ActionLimitsDeleted, Resource: "gpt-4", Details: config(1, limit("rpd", 7, 7, 86400))},
			},
			zlimit.AuditSystem: {
				{Time: start.Add(8 * time.Minute), Action: zlimit.ActionLimitsSet, Details: with(with(config(1, limit("rpd", 8, 8, 86400)), "on_unavailable", "allow"), "audit_retention_days", int64(30))},
				{Time: start.Add(9 * time.Minute), Action: zlimit.ActionLimitsSet, Details: with(config(2, limit("rpd", 9, 9, 86400)), "before", with(with(config(1, limit("rpd", 8, 8, 86400)), "on_unavailable", "allow"), "audit_retention_days", int64(30)))},
				{Time: start.Add(10 * time.Minute), Action: zlimit.ActionLimitsDeleted, Details: config(2, limit("rpd", 9, 9, 86400))},
			},
			"x": nil,
		}
		for entity, want := range want {
			got := events(t, l, entity, zlimit.AuditQuery{})
			for i := range got {
				if _, err := ulid.ParseStrict(got[i].ID); err != nil {
					t.Errorf("event ID %q: %v", got[i].ID, err)
				}
				got[i].ID = ""
			}
			for i := range want {
				want[i].Entity, want[i].Principal = entity, "arn:aws:iam::1:user/Žofie"
			}
			compare.Equal(t, fmt.Sprintf("events of %s", entity), want, got)
		}
	})
}

// TestAuditQueries compares queries with what a filter makes of all events.
func TestAuditQueries(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		ctx := context.Background()
		c := newClock()
		l := newLimiter(t, s, zlimit.WithClock(c.now))
		start := c.now()
		for i := range 230 { // more than two pages; now and then several in a millisecond
			resource := []string{"gpt-4", "gpt-5", ""}[i%3]
			setLimits(t, l, zlimit.Level{Entity: "e", Resource: resource}, zlimit.PerDay("rpd", int64(i)+1))
			if i%4 > 0 {
				c.sleep(time.Duration(rand.N(3000)) * time.Millisecond)
			}
		}
		all := events(t, l, "e", zlimit.AuditQuery{})
		if len(all) != 230 || !slices.IsSortedFunc(all, func(a, b zlimit.AuditEvent) int { return strings.Compare(a.ID, b.ID) }) {
			t.Fatalf("%d events, want 230 in order", len(all))
		}
		for i, e := range all {
			if got := e.Details["limits"].([]any)[0].(map[string]any)["capacity"]; got != int64(i)+1 {
				t.Fatalf("event %d is of change %v", i, got)
			}
		}
		moment := func() time.Time {
			switch rand.N(6) {
			case 0:
				return time.Time{}
			case 1:
				return all[rand.N(len(all))].Time // on the dot
			case 2:
				return all[rand.N(len(all))].Time.Add(time.Nanosecond)
			case 3:
				return []time.Time{time.Unix(-1e9, 0), start, time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(200_000, 1, 1, 0, 0, 0, 0, time.UTC)}[rand.N(4)]
			default:
				return start.Add(time.Duration(rand.Int64N(int64(c.now().Sub(start)))))
			}
		}
		for range soak.Pick(25, 150) {
			q := zlimit.AuditQuery{From: moment(), To: moment(), Reverse: rand.N(2) == 0, Limit: []int{0, 0, 1, 7, 100, 101, 1000}[rand.N(7)]}
			if rand.N(3) == 0 {
				q.Resource = []string{"gpt-4", "gpt-5", zlimit.DefaultResource, "o3"}[rand.N(4)]
			}
			want := slices.DeleteFunc(slices.Clone(all), func(e zlimit.AuditEvent) bool {
				return q.Resource != "" && e.Resource != q.Resource ||
					!q.From.IsZero() && e.Time.Before(q.From) || !q.To.IsZero() && !e.Time.Before(q.To)
			})
			if q.Reverse {
				slices.Reverse(want)
			}
			if q.Limit > 0 && len(want) > q.Limit {
				want = want[:q.Limit]
			}
			got := events(t, l, "e", q)
			if len(got) != len(want) || len(got) > 0 && !cmp.Equal(want, got) {
				t.Fatalf("Events(%+v) = %d events, want %d", q, len(got), len(want))
			}
		}
		for e := range l.Audit.Events(ctx, "e", zlimit.AuditQuery{}) {
			if e.ID != all[0].ID {
				t.Errorf("the loop went on to %v", e)
			}
			break
		}
		if got := events(t, l, "other", zlimit.AuditQuery{}); got != nil {
			t.Errorf("events of another entity: %v", got)
		}
	})
}

func TestAuditValidation(t *testing.T) {
	l := newLimiter(t, newMemory(t))
	for entity, q := range map[string]zlimit.AuditQuery{
		"":                        {},
		"a#b":                     {},
		"$SYSTEMS":                {},
		zlimit.AuditResource(""):  {},
		zlimit.AuditResource("#"): {},
		"e":                       {Limit: -1},
		"f":                       {Resource: "#"},
		"$RESOURCE":               {},
		"$RESOURCE:gpt-4#1":       {},
	} {
		if err := endOf(l.Audit.Events(context.Background(), entity, q)); !errors.As(err, new(*zlimit.ValidationError)) {
			t.Errorf("Events(%q, %+v) = %v, want a ValidationError", entity, q, err)
		}
	}
	for _, retention := range []time.Duration{-zlimit.Day, time.Hour, 25 * time.Hour, (zlimit.MaxRetentionDays + 1) * zlimit.Day} {
		var invalid *zlimit.ValidationError
		err := l.Limits.Set(context.Background(), zlimit.Level{}, zlimit.Config{AuditRetention: retention})
		if !errors.As(err, &invalid) || invalid.Field != "audit retention" {
			t.Errorf("Set() with a retention of %v = %v, want a ValidationError", retention, err)
		}
	}
	for _, principal := range []string{"a\nb", "\xff", strings.Repeat("x", 257)} {
		if _, err := zlimit.Open(context.Background(), "memory:", zlimit.WithPrincipal(principal)); !errors.As(err, new(*zlimit.ValidationError)) {
			t.Errorf("Open() with principal %q = %v, want a ValidationError", principal, err)
		}
	}
}

// In TestAuditRetention, another process changes the retention, and the clock advances.
func TestAuditRetention(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		ctx := context.Background()
		c := newClock()
		l, other := newLimiter(t, s, zlimit.WithClock(c.now)), newLimiter(t, s, zlimit.WithClock(c.now))
		last := func(entity string) (days int64) {
			t.Helper()
			last := events(t, l, entity, zlimit.AuditQuery{Reverse: true, Limit: 1})[0]
			item, err := layout.DecodeAudit(stored(t, l, layout.AuditKey{NS: l.NS(), Entity: last.Entity, EventID: last.ID}.Key()))
			if err != nil || item.Timestamp != c.now().Format(layout.TimeFormat) {
				t.Fatalf("event %+v: %v", item, err)
			}
			return (item.ExpiresAt - c.now().Unix()) / 86400
		}
		kept := func() (days int64) {
			t.Helper()
			setLimits(t, l, zlimit.Level{Resource: "gpt-4"}, zlimit.PerDay("rpd", 1))
			return last(zlimit.AuditResource("gpt-4"))
		}
		if got := kept(); got != 90 {
			t.Errorf("events are kept %d days, want 90", got)
		}
		set := zlimit.Config{Limits: []zlimit.Limit{zlimit.PerDay("rpd", 1)}, AuditRetention: 10 * zlimit.Day}
		check.Fatal(t, "Limits.Set()", other.Limits.Set(ctx, zlimit.Level{}, set))
		if got, err := l.Limits.Get(ctx, zlimit.Level{}); err != nil || got.AuditRetention != 10*zlimit.Day {
			t.Errorf("System() = %+v, %v, want a retention of 10 days", got, err)
		}
		c.sleep(time.Minute)
		if got := kept(); got != 10 {
			t.Errorf("events are kept %d days a minute after the change, want 10", got)
		}
		check.Fatal(t, "Limits.Set()", l.Limits.Set(ctx, zlimit.Level{}, zlimit.Config{AuditRetention: 1000 * zlimit.Day}))
		if got := last(zlimit.AuditSystem); got != 1000 {
			t.Errorf("the event of the change itself is kept %d days, want 1000", got)
		}
		if got := kept(); got != 1000 {
			t.Errorf("events are kept %d days right after the own change, want 1000", got)
		}
		check.Fatal(t, "Limits.Delete()", l.Limits.Delete(ctx, zlimit.Level{}))
		if got := kept(); got != 90 {
			t.Errorf("events are kept %d days without a system config, want 90", got)
		}

		shown := func() int { return len(events(t, l, zlimit.AuditResource("gpt-4"), zlimit.AuditQuery{})) }
		for _, step := range []struct {
			sleep time.Duration
			want  int
		}{
			{0, 4},
			{10 * zlimit.Day, 3}, // the second event's end
			{80 * zlimit.Day, 1}, // the first and the last one's
			{910 * zlimit.Day, 0},
		} {
			c.sleep(step.sleep)
			if got := shown(); got != step.want {
				t.Errorf("%v later %d events, want %d", step.sleep, got, step.want)
			}
		}
	})
}

// TestTableAuditRetention sets the retention of the table: a namespace that says nothing has it, another one its own.
func TestTableAuditRetention(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		ctx := context.Background()
		c := newClock()
		l, other := newLimiter(t, s, zlimit.WithClock(c.now)), newLimiter(t, s, zlimit.WithClock(c.now))
		kept := func(change func() error, entity string) (days int64) {
			t.Helper()
			check.Fatal(t, "change()", change())
			last := events(t, l, entity, zlimit.AuditQuery{Reverse: true, Limit: 1})[0]
			item, err := layout.DecodeAudit(stored(t, l, layout.AuditKey{NS: l.NS(), Entity: last.Entity, EventID: last.ID}.Key()))
			check.Fatal(t, "layout.DecodeAudit()", err)
			return (item.ExpiresAt - c.now().Unix()) / 86400
		}
		resource := func() error {
			return l.Limits.Set(ctx, zlimit.Level{Resource: "gpt-4"}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerDay("rpd", 1)}})
		}
		system := func(days int) func() error {
			return func() error {
				return l.Limits.Set(ctx, zlimit.Level{}, zlimit.Config{OnUnavailable: zlimit.PolicyBlock, AuditRetention: time.Duration(days) * zlimit.Day})
			}
		}
		table := func(l *zlimit.RateLimiter, days int) func() error {
			return func() error { return l.SetAuditRetention(ctx, time.Duration(days)*zlimit.Day) }
		}
		for _, step := range []struct {
			name   string
			sleep  time.Duration
			before func() error
			change func() error
			entity string
			want   int64
		}{
			{"the table says what is so already", 0, table(l, 0), resource, zlimit.AuditResource("gpt-4"), 90},
			{"another process sets that of the table", time.Minute, table(other, 30), resource, zlimit.AuditResource("gpt-4"), 30},
			{"and the namespace its own", 0, nil, system(7), zlimit.AuditSystem, 7},
			{"which holds from then on", 0, nil, resource, zlimit.AuditResource("gpt-4"), 7},
			{"the table has another one", time.Minute, table(other, 400), resource, zlimit.AuditResource("gpt-4"), 7},
			{"the namespace has none again", 0, nil, system(0), zlimit.AuditSystem, 400},
			{"so that of the table holds", 0, nil, resource, zlimit.AuditResource("gpt-4"), 400},
			{"the process itself sets that of the table", 0, table(l, 5), resource, zlimit.AuditResource("gpt-4"), 5},
			{"the table has none again", time.Minute, table(other, 0), resource, zlimit.AuditResource("gpt-4"), 90},
		} {
			if step.before != nil {
				if err := step.before(); err != nil {
					t.Fatalf("%s: SetAuditRetention() = %v", step.name, err)
				}
			}
			c.sleep(step.sleep)
			if got := kept(step.change, step.entity); got != step.want {
				t.Errorf("%s: events are kept %d days, want %d", step.name, got, step.want)
			}
		}
		for _, d := range []time.Duration{-zlimit.Day, time.Hour, (zlimit.MaxRetentionDays + 1) * zlimit.Day} {
			if err := l.SetAuditRetention(ctx, d); invalid(err).Field != "audit retention" {
				t.Errorf("SetAuditRetention(%v) = %v, want a ValidationError", d, err)
			}
		}
	})
}

// In TestSetAuditRetentionOfAnother, another process sets the retention between the look and the write. Neither write is
// lost, and the last one holds.
func TestSetAuditRetentionOfAnother(t *testing.T) {
	p := hook(newMemory(t))
	l, other := newLimiter(t, zlimit.StoreOn(p)), newLimiter(t, zlimit.StoreOn(p.Store))
	for i, days := range []time.Duration{30, 60} { // a new record, and one that is there
		p.once(func() {
			check.Error(t, "SetAuditRetention()", other.SetAuditRetention(context.Background(), (days+1)*zlimit.Day))
		})
		check.Fatal(t, "SetAuditRetention()", l.SetAuditRetention(context.Background(), days*zlimit.Day))
		items := check.Call(p.Read(context.Background(), []store.Key{layout.SystemConfigKey{NS: "_"}.Key()}, true)).Must(t, "Read()")
		item, err := layout.DecodeSystemConfig(items[0])
		if want := int64(2 * (i + 1)); err != nil || item.AuditRetentionDays != int64(days) || item.ConfigVersion != want {
			t.Errorf("the table has %d days in version %d, %v, want %d in version %d", item.AuditRetentionDays, item.ConfigVersion, err, days, want)
		}
	}
}

// A known store is one that knows its caller, at times.
type known struct {
	store.Store
	names []string // answers, "" for an error; then the last one
	asked int
}

func (k *known) Identity(context.Context) (string, error) {
	k.asked++
	name := k.names[min(k.asked, len(k.names))-1]
	if name == "" {
		return "", errors.New("no answer")
	}
	return name, nil
}

// TestPrincipals finds out who makes a change.
func TestPrincipals(t *testing.T) {
	ctx := context.Background()
	c := newClock()
	s := &known{Store: store.Of(newMemory(t)), names: []string{"", "", "arn:aws:sts::1:assumed-role/ops/me"}}
	l := newLimiter(t, zlimit.StoreOn(s), zlimit.WithClock(c.now)) // the version record is the first change
	last := func(l *zlimit.RateLimiter) string {
		t.Helper()
		check.Fatal(t, "Limits.Set()", l.Limits.Set(ctx, zlimit.Level{}, zlimit.Config{OnUnavailable: zlimit.PolicyBlock}))
		return events(t, l, zlimit.AuditSystem, zlimit.AuditQuery{Reverse: true, Limit: 1})[0].Principal
	}
	for i, step := range []struct {
		sleep time.Duration
		want  string
		asked int
	}{
		{0, "", 1}, {59 * time.Second, "", 1}, {time.Second, "", 2}, {time.Minute, s.names[2], 3}, {time.Hour, s.names[2], 3},
	} {
		c.sleep(step.sleep)
		if got := last(l); got != step.want || s.asked != step.asked {
			t.Errorf("change %d was made by %q, asked %d times, want %q and %d", i, got, s.asked, step.want, step.asked)
		}
	}
	scope := check.Call(l.Namespace(ctx, "other", zlimit.WithSetup())).Must(t, "Namespace()")
	if got := last(scope); got != s.names[2] || s.asked != 3 {
		t.Errorf("a change in another namespace was made by %q, asked %d times", got, s.asked)
	}
	named := check.Call(l.Namespace(ctx, "other", zlimit.WithPrincipal("deploy"))).Must(t, "Namespace()")
	if got := last(named); got != "deploy" {
		t.Errorf("a change with WithPrincipal was made by %q", got)
	}
	check.Error(t, "Close() and Close()", errors.Join(scope.Close(), named.Close()))

	me, err := user.Current()
	if err != nil {
		t.Skip("the machine does not know its users")
	}
	if got := last(newLimiter(t, newMemory(t))); got != me.Username {
		t.Errorf("a change of an embedded store was made by %q, want %q", got, me.Username)
	}
	table, _ := newTable(t)
	if got := last(newLimiter(t, table)); got != "" {
		t.Errorf("a change through somebody's client was made by %q, want nobody", got)
	}
}

// In TestEventsFollowVersions, goroutines change one config. The order of the events is the order of the versions.
func TestEventsFollowVersions(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		l := newLimiter(t, s, zlimit.WithClock(newClock().now)) // all in one millisecond
		var group sync.WaitGroup
		for range 6 {
			group.Go(func() {
				for range 5 {
					setLimits(t, l, zlimit.Level{Resource: "gpt-4"}, zlimit.PerDay("rpd", 1))
				}
			})
		}
		group.Wait()
		got := events(t, l, zlimit.AuditResource("gpt-4"), zlimit.AuditQuery{})
		for i, e := range got {
			if e.Details["config_version"] != int64(i)+1 {
				t.Errorf("event %d is of version %v", i+1, e.Details["config_version"])
			}
		}
		if len(got) != 30 {
			t.Errorf("%d events of 30 changes", len(got))
		}
	})
}

// TestEventsOfOthers reads an event as other programs may write it.
func TestEventsOfOthers(t *testing.T) {
	ctx := context.Background()
	l := newLimiter(t, newMemory(t))
	half := check.Call(expr.ParseNumber("0.5")).Must(t, "expr.ParseNumber()")
	key := layout.AuditKey{NS: l.NS(), Entity: "e", EventID: "2026-01-02T03:04:05Z"}
	if _, err := l.Calls().Write(ctx, store.Write{Kind: store.Put, Key: key.Key(), Item: expr.Item{
		{Name: "timestamp", Value: expr.S("2026-01-02T03:04:05Z")},
		{Name: "action", Value: expr.S("entity_renamed")},
		{Name: "principal", Value: expr.Null()},
		{Name: "details", Value: expr.Map(expr.Item{
			{Name: "ratio", Value: half},
			{Name: "n", Value: expr.N(1)},
			{Name: "ok", Value: expr.Bool(true)},
			{Name: "none", Value: expr.Null()},
			{Name: "set", Value: expr.Strings("a", "b")},
			{Name: "list", Value: expr.List(expr.S("x"), expr.Map(nil))},
		})},
	}}); err != nil {
		t.Fatalf("Write() = %v", err)
	}
	want := []zlimit.AuditEvent{{
		ID: key.EventID, Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Entity: "e", Action: "entity_renamed",
		Details: map[string]any{
			"ratio": json.Number("0.5"), "n": int64(1), "ok": true, "none": nil,
			"set": []any{"a", "b"}, "list": []any{"x", map[string]any{}},
		},
	}}
	compare.Equal(t, "Events()", want, events(t, l, "e", zlimit.AuditQuery{}))
}
