package unsettled_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/edge/unsettled"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
)

// typed is a consumption of one resource, as zlimitgen writes it.
type typed struct{}

func (typed) AppendAmounts(to []zlimit.Amount) []zlimit.Amount {
	return append(to, zlimit.Amount{Limit: "rpm", Tokens: 1}, zlimit.Amount{Limit: "usd", Tokens: 5})
}

func (typed) Resource() string { return "gpt-4o" }

// In TestMissing, the limits of requests are missing for two minutes, and others fail. A line a minute names the remedy.
func TestMissing(t *testing.T) {
	l := check.Call(zlimit.Open(t.Context(), "memory:")).Must(t, "zlimit.Open()")
	defer l.Close()
	if err := l.Limits.Set(t.Context(), zlimit.Level{Resource: "it's"}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 5)}}); err == nil {
		t.Fatal("a name with a quote is stored")
	}
	if err := l.Limits.Set(t.Context(), zlimit.Level{Resource: "a|b"}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 5)}}); err != nil {
		t.Fatalf("Limits.Set() = %v", err)
	}
	for _, test := range []struct {
		request zlimit.Request
		want    string
	}{
		{zlimit.Request{Entity: "acme", Resource: "api", Consume: zlimit.Amounts{"rpm": 1}}, `entity=acme resource=api remedy="zlimit limits set --resource api --limit rpm=60/min"`},
		{zlimit.Request{Entity: "acme", Consume: typed{}}, `resource=gpt-4o remedy="zlimit limits set --resource gpt-4o --limit rpm=60/min --limit usd=25/month@UTC"`},
		{zlimit.Request{Entity: "acme", Resource: "a|b", Consume: zlimit.Amounts{"rpm": 1, "usd": 2}}, `remedy="zlimit limits patch --resource 'a|b' --limit usd=25/month@UTC"`},
	} {
		_, err := l.Acquire(t.Context(), test.request)
		if !errors.Is(err, zlimit.ErrNoLimits) {
			t.Fatalf("Acquire() = %v, want ErrNoLimits", err)
		}
		synctest.Test(t, func(t *testing.T) {
			var text strings.Builder
			logger := slog.New(slog.NewTextHandler(&text, nil))
			var m unsettled.Missing
			for range 120 {
				m.Warn(t.Context(), logger, "refused", &test.request, fmt.Errorf("wrapped: %w", err))
				m.Warn(t.Context(), logger, "refused", &test.request, zlimit.ErrDisabled)
				time.Sleep(time.Second)
			}
			lines := strings.Split(strings.TrimSpace(text.String()), "\n")
			if len(lines) != 2 || !strings.Contains(lines[0], test.want) || !strings.Contains(lines[0], "level=WARN") || !strings.Contains(lines[1], "left_out=59") {
				t.Errorf("%d lines, want 2 with %s:\n%s", len(lines), test.want, &text)
			}
		})
	}
}
