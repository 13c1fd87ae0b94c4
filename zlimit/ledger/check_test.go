package ledger_test

import (
	"errors"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/ledger"
)

// TestInvalidQueries asks for no month, and for no range. Each error names the field, and no store is called: the limiter is closed.
func TestInvalidQueries(t *testing.T) {
	l := check.Call(zlimit.Open(t.Context(), "memory:")).Must(t, "Open()")
	check.Fatal(t, "Close()", l.Close())
	now := time.Date(2026, time.March, 12, 12, 30, 0, 0, time.UTC)
	whole := ledger.Query{Resources: []string{"gpt"}, Limit: "usd", From: ledger.Begin(now), Now: now}
	hours := zlimit.UsageQuery{Resource: "gpt", Window: zlimit.WindowHourly, From: now, To: now.Add(time.Hour)}
	for field, q := range map[string]func(*ledger.Query, *zlimit.UsageQuery){
		"ledger now":  func(q *ledger.Query, _ *zlimit.UsageQuery) { q.Now = time.Time{} },
		"ledger from": func(q *ledger.Query, u *zlimit.UsageQuery) { q.From, u.From = now, time.Time{} },
		"ledger to":   func(_ *ledger.Query, u *zlimit.UsageQuery) { u.To = u.From },
	} {
		month, usage := whole, hours
		q(&month, &usage)
		var errs []error
		if month.Now != whole.Now || month.From != whole.From {
			_, err := ledger.Read(t.Context(), l, month)
			errs = append(errs, err)
		}
		if usage != hours {
			_, err := ledger.ReadSeries(t.Context(), l, usage)
			errs = append(errs, err)
		}
		for _, err := range errs {
			if invalid, ok := errors.AsType[*zlimit.ValidationError](err); !ok || invalid.Field != field {
				t.Errorf("%s: %v, want an error of the field", field, err)
			}
		}
	}
}
