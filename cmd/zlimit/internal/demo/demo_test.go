package demo

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
)

// TestDemoFindsABreach lets the demo use a limiter that admits too much, by other limits than those it is audited
// against.
func TestDemoFindsABreach(t *testing.T) {
	r, err := open(t.Context(), 1, 30*time.Second)
	if err != nil {
		t.Fatalf("openDemo: %v", err)
	}
	defer func() { check.Error(t, "close()", r.close()) }()
	generous := []zlimit.Limit{zlimit.PerMinute(requests, 120, zlimit.Burst(121)), zlimit.PerMinute(tokens, 60_000)}
	check.Fatal(t, "Limits.Set()", r.observer.Limits.Set(t.Context(), zlimit.Level{Resource: resource}, zlimit.Config{Limits: generous}))
	check.Fatal(t, "play", r.play(t.Context(), func(context.Context, *stage) error { return nil }))
	report := r.report()
	if !report.Proof.Exceeded || report.Proof.Excess <= 0 || report.Proof.Excess > 1 {
		t.Errorf("proof = %+v, want an excess of up to one token", report.Proof)
	}
	p := &show.Page{}
	report.text(p)
	if !strings.Contains(p.String(), "A LIMIT WAS EXCEEDED.") {
		t.Errorf("the report does not say so:\n%s", p)
	}
}
