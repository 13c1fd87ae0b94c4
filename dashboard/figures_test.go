package dashboard

import (
	"context"
	"html/template"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/ledger"
)

// TestAmounts writes amounts in few characters, and never rounds to what they are not.
func TestAmounts(t *testing.T) {
	for _, test := range []struct {
		limit string
		n     float64
		want  string
	}{
		{"rpm", 0, "0"},
		{"rpm", 9999, "9,999"},
		{"rpm", 42_400, "42k"},
		{"tpm", 999_600, "1M"},
		{"tpm", 1_540_000, "1.5M"},
		{"tpm", -1200, "−1,200"},
		{"usd", 0, "$0"},
		{"usd", 38.2e9, "$38.20"},
		{"usd", 1e6, "< $0.01"},
		{"usd", 23_480e9, "$23,480"},
		{"usd", 2.5e15, "$2.5M"},
		{"usd", -1_480e9, "−$1,480"},
	} {
		if got := amount(test.limit, test.n); got != test.want {
			t.Errorf("amount(%s, %v) = %q, want %q", test.limit, test.n, got, test.want)
		}
	}
	for part, want := range map[float64]string{0: "0 %", 0.0004: "< 0.1 %", 0.034: "3.4 %", 0.94: "94 %", 9.18: "918 %"} {
		if got := percent(part); got != want {
			t.Errorf("percent(%v) = %q, want %q", part, got, want)
		}
	}
	for _, test := range []struct {
		limit zlimit.Limit
		want  string
	}{
		{zlimit.PerMinute("tpm", 400_000), "400k a minute"},
		{zlimit.PerMinute("tpm", 100, zlimit.Burst(500)), "100 a minute, up to 500"},
		{zlimit.USD("usd", 8000, zlimit.PerMonth), "$8,000 a month, UTC"},
		{zlimit.Daily("rpd", 50, "Europe/Berlin"), "50 a day, Europe/Berlin"},
		{zlimit.Weekly("rpw", 50, "UTC"), "50 a week, UTC"},
		{zlimit.Slots("slots", 20), "20 at a time"},
		{zlimit.Session("s", 5, 5*time.Hour), "5 a session of 5 hours"},
		{zlimit.Prepaid("p", 5), "5, prepaid"},
		{zlimit.Session("p", 5, 400*24*time.Hour), "5 a session of 400 days"},
	} {
		if got := limitText(&test.limit); got != test.want {
			t.Errorf("limitText(%v) = %q, want %q", test.limit, got, test.want)
		}
	}
}

// TestLocal leads nowhere but to this page.
func TestLocal(t *testing.T) {
	for to, want := range map[string]string{
		"/usage?month=2026-11": "/usage?month=2026-11", "": "/", "//elsewhere.example": "/", "https://elsewhere.example/": "/", `/\elsewhere.example`: "/", "usage": "/",
		"/signin?token=x": "/", "javascript:alert(1)": "/",
	} {
		if got := local(to); got != want {
			t.Errorf("local(%q) = %q, want %q", to, got, want)
		}
	}
}

// TestChangeOf takes nothing for granted that another program may have written.
func TestChangeOf(t *testing.T) {
	limit := func(capacity int64) map[string]any {
		return map[string]any{"name": "tpm", "capacity": capacity, "refill_amount": capacity, "refill_period_seconds": int64(60)}
	}
	for _, test := range []struct {
		event zlimit.AuditEvent
		want  string
	}{
		{zlimit.AuditEvent{Entity: "a", Action: zlimit.ActionLimitsSet, Principal: "dana", Details: map[string]any{"limits": []any{limit(500)}, "before": map[string]any{"limits": []any{limit(400)}}}}, "a tpm 400 → 500 a minute by dana"},
		{zlimit.AuditEvent{Entity: "a", Action: zlimit.ActionLimitsSet, Details: map[string]any{"disabled": true}}, "a disabled by no one known"},
		{zlimit.AuditEvent{Entity: "a", Action: zlimit.ActionLimitsSet, Details: map[string]any{"disabled": "bypass"}}, "a bypassed by no one known"},
		{zlimit.AuditEvent{Entity: zlimit.AuditResource("gpt"), Action: zlimit.ActionLimitsDeleted}, "resource gpt deleted by no one known"},
		{zlimit.AuditEvent{Entity: "a", Action: zlimit.ActionLimitsDeleted, Details: map[string]any{"config_version": int64(3), "limits": []any{limit(500)}}}, "a tpm removed by no one known"},
		{zlimit.AuditEvent{Entity: "a", Action: zlimit.ActionLimitsDeleted, Details: map[string]any{"limits": []any{}, "disabled": true}}, "a has no switch of its own now, which is left to wider levels by no one known"},
		{zlimit.AuditEvent{Entity: zlimit.AuditResource("gpt"), Action: zlimit.ActionLimitsSet, Details: map[string]any{"limits": []any{}, "within": "models", "before": map[string]any{"limits": []any{}}}}, "resource gpt lies within models now by no one known"},
		{zlimit.AuditEvent{Entity: zlimit.AuditResource("gpt"), Action: zlimit.ActionLimitsSet, Details: map[string]any{"limits": []any{}, "before": map[string]any{"within": "models"}}}, "resource gpt lies no longer within models by no one known"},
		{zlimit.AuditEvent{Entity: zlimit.AuditSystem, Action: zlimit.ActionLimitsSet, Details: map[string]any{"audit_retention_days": int64(30), "on_unavailable": "allow", "before": map[string]any{"on_unavailable": "block"}}}, "the system audit retention days = 30, on unavailable block → allow by no one known"},
		{zlimit.AuditEvent{Entity: "a", Action: zlimit.ActionLimitsSet, Details: map[string]any{"config_version": int64(2), "before": map[string]any{"config_version": int64(1)}}}, "a nothing changed by no one known"},
		{zlimit.AuditEvent{Entity: zlimit.AuditSystem, Action: zlimit.ActionLimitsSet, Details: map[string]any{"limits": "none", "before": 7}}, "the system set to {\"before\":7,\"limits\":\"none\"} by no one known"},
		{zlimit.AuditEvent{Entity: "a", Action: "tidied_up"}, "a tidied up by no one known"},
		{zlimit.AuditEvent{Entity: "a", Action: zlimit.ActionBucketToppedUp, Details: map[string]any{"before": map[string]any{"tpm": int64(1)}, "after": map[string]any{"tpm": int64(9), "x": nil}}}, "a topped up: tpm 1 → 9 by no one known"},
		{zlimit.AuditEvent{Entity: "a", Action: zlimit.ActionEntityMoved, Details: map[string]any{"parent_id": nil}}, "a has no parent now by no one known"},
	} {
		c := changeOf(&test.event)
		if got := c.Subject + " " + c.What + " by " + c.Who; got != test.want {
			t.Errorf("changeOf() = %q, want %q", got, test.want)
		}
	}
}

// TestHangingStore answers those who wait for the same reading when their time is over, and asks the store once more for none of them.
func TestHangingStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &page{Options: Options{Now: time.Now}}
		p.feed = newFeed(p)
		asked := 0
		var readers sync.WaitGroup
		began := time.Now()
		for i := range 50 {
			patience := readTimeout
			if i%2 == 1 {
				patience = time.Second
				synctest.Wait() // until another one reads
			}
			readers.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				_, err := once(ctx, p.feed, "buckets", time.Second, func(ctx context.Context) (int, error) {
					asked++
					<-ctx.Done()
					return 0, ctx.Err()
				})
				if took := time.Since(began); err == nil || took > patience {
					t.Errorf("a reading = %v after %v, want an error within %v", err, took, patience)
				}
			})
		}
		readers.Wait()
		if asked != 1 {
			t.Errorf("the store was asked %d times, want once", asked)
		}
	})
}

// TestAxis checks that each line has a label of its own, whatever small amounts there are.
func TestAxis(t *testing.T) {
	for _, limit := range []string{"rpm", "usd"} {
		for _, most := range []float64{0, 1, 2, 3, 7, 1e6, 2e7, 5e9} {
			seen := map[string]bool{}
			var c chart
			c.axis(most, 3, func(v float64) string {
				return axisAmount(limit, v)
			})
			for _, text := range regexp.MustCompile(`>([^<]+)</text>`).FindAllStringSubmatch(c.b.String(), -1) {
				if seen[text[1]] {
					t.Errorf("the axis of %s up to %v has %s twice", limit, most, text[1])
				}
				seen[text[1]] = true
			}
		}
	}
}

// TestWhole keeps names on one line.
func TestWhole(t *testing.T) {
	if got, want := whole("key-1 used &lt;b&gt; of gpt-4o"), template.HTML(`<span class="whole">key-1</span> used &lt;b&gt; of <span class="whole">gpt-4o</span>`); got != want {
		t.Errorf("whole() = %s, want %s", got, want)
	}
	if long := strings.Repeat("long-", 10); whole(template.HTML(long)) != template.HTML(long) {
		t.Errorf("whole() = %s, want that a long name may break", whole(template.HTML(long)))
	}
}

// TestOutlook gives the headline and the row of one budget one answer.
func TestOutlook(t *testing.T) {
	from := time.Date(2026, time.November, 1, 0, 0, 0, 0, time.UTC)
	q := &usageQuery{choice: choice{Resource: "gpt"}, Zone: time.UTC, Query: ledger.Query{Limit: "tpm", Entity: "acme", Resources: []string{"gpt"}, From: from, Now: from.AddDate(0, 0, 20)}}
	p := &page{Options: Options{Now: func() time.Time { return q.Now }}}
	check.Fatal(t, "parse()", p.parse())
	for _, test := range []struct {
		used      int // days
		available int64
		usedUp    time.Time
		head, row string
	}{
		{3, 500, time.Time{}, "too early for a forecast", "too early"},
		{3, 500, q.Now.AddDate(0, 0, 2), "too early for a forecast", "too early"},
		{20, 500, time.Time{}, "lasts the month", "on pace"},
		{20, 500, q.Now.AddDate(0, 0, 2), "the budget ends on", "ends early"},
		{3, 0, time.Time{}, "used up", "used up"},
	} {
		days := make([]float64, 61)
		for i := range test.used {
			days[31+19-i] = 10
		}
		f := zlimit.Forecast{Entity: "acme", Limit: "tpm", Capacity: 1000, Available: test.available, UsedUp: test.usedUp, ResetsAt: q.To()}
		month := &book{Month: &ledger.Month{
			Query: q.Query, Groups: []ledger.Group{{Entity: "acme", Days: days, Forecast: &f}}, Total: days, Before: 31, Forecast: f, Budget: 1000, Available: float64(f.Available), Ends: q.To(),
			Early: test.used < 14,
		}}
		body := usageOf(q, month, nil)
		if head, err := p.execute("head usage", view{Body: body}); err != nil || !strings.Contains(string(head), test.head) || string(body.Rows[0].Outlook) != test.row {
			t.Errorf("the headline is %q, %v, beside a row that says %q, want %q and %q", head, err, body.Rows[0].Outlook, test.head, test.row)
		}
		everyone := *q
		everyone.Entity = ""
		head, err := p.execute("head usage", view{Body: usageOf(&everyone, month, nil)})
		if text := string(head); err != nil || strings.Contains(text, "too early") != (test.row == "too early") || strings.Contains(text, "used up") != (test.row == "used up") {
			t.Errorf("the headline of everyone is %q, %v, beside a row that says %q", head, err, test.row)
		}
	}
}
