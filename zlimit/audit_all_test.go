package zlimit_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
)

// TestAuditOfAll lists the events of a namespace over all subjects, by time, by principal and by resource, and none of another namespace.
func TestAuditOfAll(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		c := newClock()
		olga := newLimiter(t, s, zlimit.WithClock(c.now), zlimit.WithPrincipal("olga"), zlimit.WithNamespace("all"), zlimit.WithSetup())
		max := newLimiter(t, s, zlimit.WithClock(c.now), zlimit.WithPrincipal("max"), zlimit.WithNamespace("all"))
		other := newLimiter(t, s, zlimit.WithClock(c.now), zlimit.WithPrincipal("olga"), zlimit.WithNamespace("other"), zlimit.WithSetup())
		config := zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 60)}}
		for i, step := range []struct {
			l  *zlimit.RateLimiter
			at zlimit.Level
		}{
			{olga, zlimit.Level{Resource: "y"}},
			{max, zlimit.Level{Entity: "b"}},
			{other, zlimit.Level{Entity: "b"}},
			{max, zlimit.Level{}},
			{olga, zlimit.Level{Entity: "a", Resource: "x"}},
			{olga, zlimit.Level{Resource: "x"}},
		} {
			c.sleep(time.Minute)
			config.Limits[0].Capacity = int64(i + 100)
			check.Fatal(t, "Limits.Set()", step.l.Limits.Set(t.Context(), step.at, config))
		}
		end := c.now()
		for _, test := range []struct {
			q    zlimit.AuditQuery
			want string
		}{
			{zlimit.AuditQuery{}, "$RESOURCE:y b $SYSTEM a $RESOURCE:x"},
			{zlimit.AuditQuery{Reverse: true, Limit: 2}, "$RESOURCE:x a"},
			{zlimit.AuditQuery{Principal: "olga"}, "$RESOURCE:y a $RESOURCE:x"},
			{zlimit.AuditQuery{Principal: "olga", Limit: 1, Reverse: true, To: end}, "a"},
			{zlimit.AuditQuery{Resource: "x"}, "a $RESOURCE:x"},
			{zlimit.AuditQuery{From: end.Add(-4 * time.Minute), To: end}, "b $SYSTEM a"},
			{zlimit.AuditQuery{From: end.Add(time.Second)}, ""},
		} {
			var got []string
			for _, e := range collect(t, "Audit.All()", olga.Audit.All(t.Context(), test.q)) {
				got = append(got, e.Entity)
			}
			if strings.Join(got, " ") != test.want {
				t.Errorf("All(%+v) = %v, want %s", test.q, got, test.want)
			}
		}
		for e, err := range olga.Audit.Events(t.Context(), "b", zlimit.AuditQuery{Principal: "olga"}) {
			t.Errorf("Events() of another principal = %+v, %v", e, err)
		}
		for _, err := range olga.Audit.All(t.Context(), zlimit.AuditQuery{Limit: -1}) {
			if err == nil {
				t.Error("All() takes a negative limit")
			}
		}
		c.sleep(100 * 24 * time.Hour)
		for e := range olga.Audit.All(t.Context(), zlimit.AuditQuery{}) {
			t.Errorf("All() has %+v past its retention", e)
		}
	})
}

func ExampleAuditService_All() {
	ctx := context.Background()
	limiter, err := zlimit.Open(ctx, "memory:", zlimit.WithPrincipal("ops"))
	if err != nil {
		panic(err)
	}
	defer limiter.Close()

	hour := zlimit.Config{Limits: []zlimit.Limit{zlimit.PerHour("calls", 10)}}
	for _, at := range []zlimit.Level{{Resource: "search"}, {Entity: "alice"}} {
		if err := limiter.Limits.Set(ctx, at, hour); err != nil {
			panic(err)
		}
	}
	for event, err := range limiter.Audit.All(ctx, zlimit.AuditQuery{Principal: "ops", From: time.Now().Add(-time.Hour)}) {
		if err != nil {
			panic(err)
		}
		fmt.Println(event.Principal, event.Action, event.Entity)
	}
	// Output:
	// ops limits_set $RESOURCE:search
	// ops limits_set alice
}
