package zlimit_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/compare"
	"github.com/zlimit/zlimit-go/internal/proof/fields"
	"github.com/zlimit/zlimit-go/zlimit"
)

// TestEveryFieldOfAConfig writes configs and reads them again, as JSON and by the store, one field at a time. A field that a way leaves out
// is lost silently.
func TestEveryFieldOfAConfig(t *testing.T) {
	none, ctx := zlimit.Config{}, t.Context()
	fields.Each(t, func(t *testing.T, field string, at zlimit.Level, alone zlimit.Config) {
		if alone.IsZero() || alone.Same(&none) || none.Same(&alone) || !alone.Same(&alone) {
			t.Errorf("%+v is taken for an empty config", alone)
		}
		body := check.Call(json.Marshal(alone)).Must(t, "json.Marshal()")
		var got zlimit.Config
		if err := json.Unmarshal(body, &got); err != nil || !got.Same(&alone) {
			t.Errorf("by the JSON %s it is %+v, %v, want %+v", body, got, err, alone)
		}
		s := newMemory(t)
		l := newLimiter(t, s)
		check.Fatal(t, "Limits.Set()", l.Limits.Set(ctx, fields.Wider.Level, fields.Wider.Config))
		check.Fatal(t, "Limits.Set()", l.Limits.Set(ctx, at, alone))
		if got, err := newLimiter(t, s).Limits.Get(ctx, at); err != nil || !got.Same(&alone) {
			t.Errorf("%v: stored is %+v, %v, want %+v", at, got, err, alone)
		}
		about := zlimit.AuditSystem
		switch at.Source() {
		case zlimit.SourceResource:
			about = zlimit.AuditResource(at.Resource)
		case zlimit.SourceEntity, zlimit.SourceEntityDefault:
			about = at.Entity
		}
		details := collect(t, "Events()", l.Audit.Events(ctx, about, zlimit.AuditQuery{}))[0].Details
		delete(details, "config_version")
		if limits := details["limits"].([]any); len(limits) == 0 {
			delete(details, "limits")
		}
		if len(details) != 1 {
			t.Errorf("the event of %s has the details %v, want the field alone", field, details)
		}
	})
}

// everyLimit are limits that together have each field of a limit.
func everyLimit() []zlimit.Limit {
	return []zlimit.Limit{
		zlimit.Weekly("budget", 500, "Europe/Berlin").CarryOver(700).Floor("batch", 10),
		zlimit.PerMinute("rpm", 60, zlimit.Burst(90)).When("* 9-17 * * 1-5", "x2").In("Europe/Berlin").Floor("batch", 20).Floor("crawl", 50),
		zlimit.Session("sessions", 700, 5*time.Hour).When("* * * * 6,7", "to 900:").In("Europe/Berlin").Floor("batch", 30),
		zlimit.PerMinute("shadow", 60, zlimit.Burst(90)).When("* 9-17 * * 1-5", "x2").In("Europe/Berlin").Floor("batch", 20).Shadow(),
		zlimit.Slots("slots", 20, zlimit.Term(40*time.Second)),
		zlimit.Session("soft", 700, 5*time.Hour).When("* * * * 6,7", "to 900:").In("Europe/Berlin").Floor("batch", 30).Soft(),
		zlimit.Daily("tokens", 500, "Europe/Berlin").When("* * 1 * *", "x3").Floor("batch", 10),
	}
}

// TestEveryFieldOfALimit writes limits and reads them again, as text, as JSON and by the store. A field that a way leaves out is missing
// silently, so that a limit is taken for another one.
func TestEveryFieldOfALimit(t *testing.T) {
	limits := everyLimit()
	for i := range reflect.TypeFor[zlimit.Limit]().NumField() {
		set := false
		for _, l := range limits {
			set = set || !reflect.ValueOf(l).Field(i).IsZero()
		}
		if name := reflect.TypeFor[zlimit.Limit]().Field(i).Name; !set {
			t.Errorf("no limit of this test has %s", name)
		}
	}
	for _, want := range limits {
		var got zlimit.Limit
		if err := got.UnmarshalText([]byte(want.String())); err != nil || got != want {
			t.Errorf("by the text %q it is %+v, %v, want %+v", want, got, err, want)
		}
		body := check.Call(json.Marshal(want)).Must(t, "json.Marshal()")
		got = zlimit.Limit{}
		if err := json.Unmarshal(body, &got); err != nil || got != want {
			t.Errorf("by the JSON %s it is %+v, %v, want %+v", body, got, err, want)
		}
	}
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		c := newClock()
		l := newLimiter(t, s, zlimit.WithClock(c.now))
		for _, at := range []zlimit.Level{{}, {Resource: "gpt-4"}, {Entity: "key-1"}, {Entity: "key-1", Resource: "gpt-4"}} {
			setLimits(t, l, at, limits...)
			got, err := newLimiter(t, s, zlimit.WithClock(c.now)).Limits.Get(t.Context(), at)
			if err != nil || !reflect.DeepEqual(got.Limits, limits) {
				t.Errorf("%v: stored are %+v, %v, want %+v", at, got.Limits, err, limits)
			}
		}
		lease := acquire(t, l, ask(zlimit.Amounts{"rpm": 1, "sessions": 1, "tokens": 1}))
		for i, status := range lease.Statuses() {
			if status.Limit != limits[i] {
				t.Errorf("the lease tells of %+v, want %+v", status.Limit, limits[i])
			}
		}
		events := collect(t, "Events()", l.Audit.Events(t.Context(), "key-1", zlimit.AuditQuery{}))
		checkAudited(t, events[0].Details["limits"].([]any), limits)
	})
}

// checkAudited checks that an event has every field of each limit that has a value, and no other: by its name in snake case, and
// durations in seconds.
func checkAudited(t *testing.T, audited []any, limits []zlimit.Limit) {
	t.Helper()
	for i, l := range limits {
		want := map[string]any{}
		for field, value := range reflect.ValueOf(l).Fields() {
			name := strings.ToLower(wordStart.ReplaceAllString(field.Name, "${1}_$2"))
			switch d, isDuration := value.Interface().(time.Duration); {
			case value.IsZero():
			case isDuration:
				want[name+"_seconds"] = int64(d / time.Second)
			case value.Kind() == reflect.String:
				want[name] = value.String()
			default:
				want[name] = value.Interface()
			}
		}
		compare.Equal(t, fmt.Sprintf("the event of %v", l), want, audited[i])
	}
}

var wordStart = regexp.MustCompile(`([a-z])([A-Z])`)
