package zlimit_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
)

// TestPatch changes single limits of levels. The table holds the limits of a level as a whole, so that other programs read the same.
func TestPatch(t *testing.T) {
	ctx := context.Background()
	l := newLimiter(t, newMemory(t))
	alice, model := zlimit.Level{Entity: "alice", Resource: "gpt-4"}, zlimit.Level{Resource: "gpt-4"}
	rpm := func(n int64) zlimit.Limit { return zlimit.PerMinute("rpm", n) }
	err := errors.Join(
		l.Limits.Set(ctx, zlimit.Level{}, zlimit.Config{Limits: []zlimit.Limit{rpm(10), zlimit.PerMinute("tpm", 100)}}),
		l.Limits.Set(ctx, zlimit.Level{Resource: "models"}, zlimit.Config{Limits: []zlimit.Limit{rpm(10)}}),
		l.Limits.Update(ctx, model, func(c *zlimit.Config) error {
			c.OnUnavailable, c.Within = zlimit.PolicyAllow, "models"
			return nil
		}),
	)
	check.Fatal(t, "Limits.Set() and Limits.Set() and Limits.Update()", err)
	for _, step := range []struct {
		what string
		do   func() error
		want string // the levels with limits, the one of alice first
	}{
		{"a copy of the system", func() error { return l.Limits.Patch(ctx, model, rpm(20)) }, "[] [rpm=20/min tpm=100/min]"},
		{"the wider one changes", func() error { return l.Limits.Patch(ctx, zlimit.Level{}, zlimit.PerMinute("tpm", 200)) }, "[] [rpm=20/min tpm=100/min]"},
		{"one is read again", func() error { return l.Limits.Inherit(ctx, model, "tpm") }, "[] [rpm=20/min tpm=200/min]"},
		{"a copy of the model", func() error { return l.Limits.Exclude(ctx, alice, "rpm") }, "[tpm=200/min] [rpm=20/min tpm=200/min]"},
		{"one more", func() error { return l.Limits.Patch(ctx, alice, zlimit.PerDay("rpd", 5), rpm(1)) }, "[rpd=5/d rpm=1/min tpm=200/min] [rpm=20/min tpm=200/min]"},
		{"back to the model", func() error { return l.Limits.Inherit(ctx, alice, "rpm", "rpd") }, "[] [rpm=20/min tpm=200/min]"},
		{"nothing of its own", func() error { return l.Limits.Inherit(ctx, alice, "rpm") }, "[] [rpm=20/min tpm=200/min]"},
		{"as the wider one has it", func() error { return l.Limits.Patch(ctx, alice, rpm(20)) }, "[rpm=20/min tpm=200/min] [rpm=20/min tpm=200/min]"},
		{"the default comes first", func() error {
			return errors.Join(l.Limits.Set(ctx, zlimit.Level{Entity: "alice"}, zlimit.Config{Limits: []zlimit.Limit{rpm(3)}}), l.Limits.Inherit(ctx, alice, "rpm"))
		}, "[rpm=3/min tpm=200/min] [rpm=20/min tpm=200/min]"},
		{"which has no such limit", func() error { return l.Limits.Inherit(ctx, alice, "tpm") }, "[] [rpm=20/min tpm=200/min]"},
		{"all of it", func() error { return l.Limits.Inherit(ctx, model, "rpm") }, "[] []"},
	} {
		if err := step.do(); err != nil {
			t.Errorf("%s: %v", step.what, err)
		}
		var got []string
		for _, at := range []zlimit.Level{alice, model} {
			c := check.Call(l.Limits.Get(ctx, at)).Must(t, "Limits.Get()")
			got = append(got, fmt.Sprint(c.Limits))
			if at == model && (c.OnUnavailable != zlimit.PolicyAllow || c.Within != "models") {
				t.Errorf("%s: the rest of the level is %v, within %q", step.what, c.OnUnavailable, c.Within)
			}
		}
		if strings.Join(got, " ") != step.want {
			t.Errorf("%s: %v, want %s", step.what, got, step.want)
		}
	}
	changes := 0
	for range collect(t, "Audit.Events()", l.Audit.Events(ctx, zlimit.AuditResource("gpt-4"), zlimit.AuditQuery{})) {
		changes++
	}
	if changes != 4 { // the wider resource, two of its limits, and none any more
		t.Errorf("the resource has %d audit events, want 4", changes)
	}
}

// TestPatchInput refuses what breaks a rule, and writes nothing then.
func TestPatchInput(t *testing.T) {
	ctx := context.Background()
	l := newLimiter(t, newMemory(t))
	setSystem(t, l, zlimit.PerMinute("rpm", 10), zlimit.PerMinute("tpm", 100))
	alice, anyOf := zlimit.Level{Entity: "alice", Resource: "gpt-4"}, zlimit.Level{Entity: "alice"}
	for want, err := range map[string]error{
		`limits "": must hold at least one limit`:                                               l.Limits.Patch(ctx, alice),
		`limits[rpm] capacity "0": must be from 1`:                                              l.Limits.Patch(ctx, alice, zlimit.PerMinute("rpm", 0)),
		`limits "rpm": is given twice`:                                                          l.Limits.Patch(ctx, alice, zlimit.PerMinute("rpm", 1), zlimit.PerMinute("rpm", 2)),
		`no limits configured: entity alice stands before the limits of every resource`:         l.Limits.Patch(ctx, anyOf, zlimit.PerMinute("rpm", 1)),
		`level "entity alice": has no wider level`:                                              l.Limits.Inherit(ctx, anyOf, "rpm"),
		`level "system": has no wider level`:                                                    l.Limits.Inherit(ctx, zlimit.Level{}, "rpm"),
		`limits "": must name at least one limit`:                                               l.Limits.Inherit(ctx, alice),
		`limit "wcu": is reserved`:                                                              l.Limits.Exclude(ctx, alice, "wcu"),
		`no limits configured: "rpd" at entity alice, resource gpt-4, which has [rpm, tpm]`:     l.Limits.Inherit(ctx, alice, "rpd"),
		`no limits configured: "tokens" at entity alice, resource gpt-4, which has [rpm, tpm]`:  l.Limits.Exclude(ctx, alice, "tokens"),
		`limits "tpm, rpm": would leave entity alice, resource gpt-4 without limits of its own`: l.Limits.Exclude(ctx, alice, "tpm", "rpm"),
		`entity "a#b": must`:                                                                    l.Limits.Exclude(ctx, zlimit.Level{Entity: "a#b", Resource: "gpt-4"}, "tpm"),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if c, err := l.Limits.Get(ctx, alice); err != nil || len(c.Limits) > 0 {
		t.Errorf("the level has %v, %v", c.Limits, err)
	}
	check.Error(t, "Limits.Exclude()", l.Limits.Exclude(ctx, zlimit.Level{}, "tpm"))
	if c, err := l.Limits.Get(ctx, zlimit.Level{}); err != nil || fmt.Sprint(c.Limits) != "[rpm=10/min]" {
		t.Errorf("the system has %v, %v", c.Limits, err)
	}
}
