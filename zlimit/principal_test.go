package zlimit_test

import (
	"context"
	"strings"
	"testing"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
)

// TestPrincipalOfACall makes every kind of change for callers of a service, each with a context of its own.
func TestPrincipalOfACall(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		ctx := context.Background()
		l := newLimiter(t, s, zlimit.WithPrincipal("server"))
		olga, max := zlimit.ContextWithPrincipal(ctx, "olga"), zlimit.ContextWithPrincipal(ctx, "max")
		limits := zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 60)}}
		for i, do := range []func(context.Context) error{
			func(ctx context.Context) error {
				_, err := l.Entities.Create(ctx, zlimit.Entity{ID: "parent"})
				return err
			},
			func(ctx context.Context) error {
				_, err := l.Entities.Create(ctx, zlimit.Entity{ID: "e", ParentID: "parent"})
				return err
			},
			func(ctx context.Context) error {
				return l.Limits.Set(ctx, zlimit.Level{Entity: "e", Resource: "api"}, limits)
			},
			func(ctx context.Context) error {
				_, err := l.Limits.Reset(ctx, zlimit.ResetRequest{Entity: "e", Resource: "api"})
				return err
			},
			func(ctx context.Context) error {
				_, err := l.Limits.TopUp(ctx, zlimit.TopUpRequest{Entity: "e", Resource: "api", Amounts: zlimit.Amounts{"rpm": 1}})
				return err
			},
			func(ctx context.Context) error { _, err := l.Entities.SetParent(ctx, "e", ""); return err },
			func(ctx context.Context) error {
				return l.Limits.Delete(ctx, zlimit.Level{Entity: "e", Resource: "api"})
			},
			func(ctx context.Context) error { return l.Entities.Delete(ctx, "e") },
		} {
			by := []context.Context{olga, max, ctx, zlimit.ContextWithPrincipal(olga, "")}[i%4]
			want := []string{"olga", "max", "server", "server"}[i%4]
			if err := do(by); err != nil {
				t.Fatalf("change %d = %v", i, err)
			}
			var last zlimit.AuditEvent
			for _, e := range collect(t, "Audit.All()", l.Audit.All(ctx, zlimit.AuditQuery{Reverse: true, Limit: 1})) {
				last = e
			}
			if last.Principal != want {
				t.Errorf("change %d, %s, was made by %q, want %q", i, last.Action, last.Principal, want)
			}
		}
	})
}

// TestInvalidPrincipalOfACall checks that changes fail before they reach the store, and that other calls go on.
func TestInvalidPrincipalOfACall(t *testing.T) {
	ctx := context.Background()
	l := newLimiter(t, newMemory(t))
	level := zlimit.Level{Resource: "api"}
	limits := zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 60)}}
	check.Fatal(t, "Limits.Set()", l.Limits.Set(ctx, level, limits))
	for _, name := range []string{"a\nb", "\xff", strings.Repeat("x", 257)} {
		bad := zlimit.ContextWithPrincipal(ctx, name)
		run := l.Managed.Run(bad, func(context.Context, *zlimit.ManagedRun) error { return nil })
		for what, err := range map[string]error{
			"Set":    l.Limits.Set(bad, level, limits),
			"Delete": l.Limits.Delete(bad, level),
			"Setup":  l.Setup(bad),
			"Run":    run,
		} {
			if invalid(err).Field != "principal" || invalid(err).Value != name {
				t.Errorf("%s() by principal %q = %v, want a ValidationError", what, name, err)
			}
		}
		if _, err := l.Acquire(bad, zlimit.Request{Entity: "e", Resource: "api", Consume: zlimit.Amounts{"rpm": 1}}); err != nil {
			t.Errorf("Acquire() by principal %q = %v, want a lease", name, err)
		}
	}
	if got := events(t, l, zlimit.AuditResource("api"), zlimit.AuditQuery{}); len(got) != 1 {
		t.Errorf("%d changes are recorded, want the first one alone", len(got))
	}
}
