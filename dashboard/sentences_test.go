package dashboard

import (
	"html"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/hindsight"
	"github.com/zlimit/zlimit-go/zlimit/ledger"
	"github.com/zlimit/zlimit-go/zlimit/recent"
)

// TestSentences writes each sentence of the templates in each of its forms.
func TestSentences(t *testing.T) {
	now := time.Date(2026, time.November, 28, 14, 7, 0, 0, time.UTC)
	p := &page{Options: Options{Now: func() time.Time { return now }, ConfigTTL: time.Minute}}
	check.Fatal(t, "parse()", p.parse())
	tpm, usd, slots := zlimit.PerMinute("tpm", 400_000), zlimit.USD("usd", 8000, zlimit.PerMonth), zlimit.Slots("slots", 20)
	status := func(l zlimit.Limit, available int64) *zlimit.Status {
		return &zlimit.Status{Entity: "acme", Resource: "gpt", Limit: l, Available: available}
	}
	of := func(n int64, part float64, st *zlimit.Status, at time.Time, retry time.Duration) recent.Cause {
		c := recent.Cause{Refused: recent.Refused{Refusal: recent.Refusal{Entity: "ann", Resource: "gpt", LimitEntity: "acme", Limit: "tpm"}, N: n, RetryAfter: retry, Requested: 500}, Part: part, Status: st, At: at}
		if st != nil {
			c.Limit = st.Limit.Name
		}
		return c
	}
	later := now.Add(20 * time.Minute)
	team, labs := &ledger.Group{Entity: "team"}, &ledger.Group{Entity: "labs"}
	for _, g := range []*ledger.Group{team, labs} {
		g.Forecast = &zlimit.Forecast{UsedUp: later}
	}
	month := func(b usageBody) *usageBody {
		b.usageQuery = &usageQuery{choice: choice{Resource: "gpt"}, Zone: time.UTC, Query: ledger.Query{Entity: b.CSV, Limit: "usd", From: ledger.Begin(now), Now: now}}
		if b.book == nil {
			b.book = &book{Month: &ledger.Month{}}
		}
		b.Total, b.Against = []float64{100e9}, "October"
		return &b
	}
	budget := &book{Month: &ledger.Month{Budget: 200e9, Ends: now.AddDate(0, 0, 2), Forecast: zlimit.Forecast{UsedUp: later}}}
	asked := func(a hindsight.Answer, refused bool, first *refusedThen) *whyBody {
		return &whyBody{Explanation: &hindsight.Explanation{Answer: a}, Question: hindsight.Question{Entity: "ann", Resource: "gpt", At: now, End: now.Add(time.Minute), Now: now}, Refused: refused, First: first}
	}
	then := &refusedThen{hindsight.Refused{Rejection: zlimit.Rejection{LimitEntity: "acme", LimitResource: "models", Limit: "tpm", Count: 2, AtLeast: 1, AtMost: 3}, Minute: now, Until: now.Add(time.Minute)}}
	off := &hindsight.Switch{Level: hindsight.Level{At: zlimit.Level{Entity: "acme"}}}
	partly := &hindsight.Switch{Level: off.Level, From: now.Add(10 * time.Second), To: now.Add(20 * time.Second)}
	limits := []zlimit.Limit{tpm, usd, slots, zlimit.PerSecond("rps", 5)}
	for _, test := range []struct {
		template string
		body     any
		want     string
	}{
		{"head now", &nowBody{choice: choice{Resource: "gpt"}}, "gpt: no one has used it, or not for long"},
		{"lead now", &nowBody{}, "No entity has a bucket here."},
		{"head now", &nowBody{choice: choice{Resource: "gpt"}, Count: 9, Refusing: 1, UsedUp: 2, Disabled: 1, Low: 1, Pulse: recent.Pulse{Waits: recent.Waits{N: 3}}}, "gpt: 1 entity is refused, 2 budgets are used up, 1 disabled, 3 calls wait, the rest has room"},
		{"head now", &nowBody{choice: choice{Resource: "gpt"}, Count: 9, Low: 1}, "gpt: no one is refused, 1 runs low"},
		{"head now", &nowBody{choice: choice{Resource: "gpt"}, Count: 9, Low: 2}, "gpt: no one is refused, 2 run low"},
		{"head now", &nowBody{choice: choice{Resource: "gpt"}, Count: 9, UsedUp: 1}, "gpt: no one is refused, 1 budget is used up, the rest has room"},
		{"head now", &nowBody{choice: choice{Resource: "gpt"}, Count: 9}, "gpt: no one is refused, every entity has room"},
		{"lead now", &nowBody{Count: 9}, "9 entities have a bucket here. Nothing was refused in the last minute."},
		{"lead now", &nowBody{Count: 9, Causes: []recent.Cause{of(1, 1, nil, later, 0)}}, "9 entities have a bucket here. All refusals come from one limit: tpm of acme, until about 14:27."},
		{"lead now", &nowBody{Count: 1, Causes: []recent.Cause{of(1, 0.95, nil, time.Time{}, zlimit.Never), {}}}, "1 entity has a bucket here. Nearly all refusals come from one limit: tpm of acme, which a request of 500 can never fit."},
		{"lead now", &nowBody{Count: 1, Causes: []recent.Cause{of(1, 0.6, nil, time.Time{}, 0), {}}}, "1 entity has a bucket here. Most refusals come from one limit: tpm of acme, which comes back within seconds."},
		{"lead now", &nowBody{Count: 1, Causes: []recent.Cause{of(1, 0.5, nil, later, 0), {}}}, "1 entity has a bucket here. It is not one limit alone. The heaviest is tpm of acme, until about 14:27."},
		{"head usage", month(usageBody{}), "November: $100 so far, and no budget of a month for it"},
		{"head usage", month(usageBody{CSV: "acme", book: budget, Outlook: ledger.OutlookUsedUp}), "November: $100 of $200. The budget is used up until 30 November"},
		{"head usage", month(usageBody{CSV: "acme", book: budget, Outlook: ledger.OutlookTooEarly}), "November: $100 of $200. It is too early for a forecast"},
		{"head usage", month(usageBody{CSV: "acme", book: budget, Outlook: ledger.OutlookEndsEarly}), "November: $100 of $200. At this pace the budget ends on 28 November, 48 hours early"},
		{"head usage", month(usageBody{CSV: "acme", book: budget, Outlook: ledger.OutlookLasts}), "November: $100 of $200. At this pace it lasts the month"},
		{"head usage", month(usageBody{Verdicts: ledger.Verdicts{N: 1, UsedUp: []*ledger.Group{team}}}), "November: $100 so far, with 1 budget. The budget of team is used up"},
		{"head usage", month(usageBody{book: budget, Verdicts: ledger.Verdicts{N: 2, UsedUp: []*ledger.Group{team, labs}}}), "November: $100 of $200 in 2 budgets. 2 are used up"},
		{"head usage", month(usageBody{Verdicts: ledger.Verdicts{N: 2, EndEarly: []*ledger.Group{team}}}), "November: $100 so far, with 2 budgets. The budget of team ends on 28 November"},
		{"head usage", month(usageBody{Verdicts: ledger.Verdicts{N: 2, EndEarly: []*ledger.Group{team, labs}}}), "November: $100 so far, with 2 budgets. 2 end early, team first, on 28 November"},
		{"head usage", month(usageBody{Verdicts: ledger.Verdicts{N: 2, TooEarly: 1}}), "November: $100 so far, with 2 budgets. It is too early for a forecast"},
		{"head usage", month(usageBody{Verdicts: ledger.Verdicts{N: 1}}), "November: $100 so far, with 1 budget. It lasts the month"},
		{"head usage", month(usageBody{Verdicts: ledger.Verdicts{N: 2}}), "November: $100 so far, with 2 budgets. All last the month"},
		{"lead usage", month(usageBody{}), "No one spends much more than in the same days of October."},
		{"lead usage", month(usageBody{Cause: ledger.Cause{Group: team, Part: 0.3, Alone: true, Left: 5e9}}), "team alone is the cause: 30 % more than in the same days of October. About $5 of the budget will be left."},
		{"lead usage", month(usageBody{Cause: ledger.Cause{Group: team, Part: 0.3, May: 2e9, Over: 9e9}}), "team grows most: 30 % more than in the same days of October. The budget lasts if team stays below $2 a day, or with $9 more."},
		{"lead usage", month(usageBody{Cause: ledger.Cause{Group: team, Part: 0.3, Over: 9e9}}), "team grows most: 30 % more than in the same days of October. The budget lasts with $9 more."},
		{"head entity", &entityBody{ID: "ann"}, "ann has no bucket, and nothing is limited yet"},
		{"lead entity", &entityBody{ID: "ann"}, ""},
		{"head entity", &entityBody{choice: choice{Resource: "gpt"}, ID: "ann", Resolved: zlimit.Resolved{DisabledBy: zlimit.SourceResource}}, "ann is disabled for gpt"},
		{"lead entity", &entityBody{choice: choice{Resource: "gpt"}, ID: "ann", Resolved: zlimit.Resolved{DisabledBy: zlimit.SourceResource}}, "Every request is rejected. The switch is at the resource."},
		{"head entity", &entityBody{choice: choice{Resource: "gpt"}, ID: "ann", Resolved: zlimit.Resolved{BypassedBy: zlimit.SourceEntity}}, "ann is not limited for gpt: requests are counted alone"},
		{"lead entity", &entityBody{choice: choice{Resource: "gpt"}, ID: "ann", Resolved: zlimit.Resolved{BypassedBy: zlimit.SourceEntity}}, "The bypass is at its own level."},
		{"head entity", &entityBody{choice: choice{Resource: "gpt"}, ID: "ann", NoLimits: true}, "ann has no limits for gpt, so its requests fail"},
		{"head entity", &entityBody{choice: choice{Resource: "gpt"}, ID: "ann", Cause: new(of(1, 1, status(tpm, 0), later, 0))}, "ann is refused by tpm of acme, until about 14:27"},
		{"head entity", &entityBody{choice: choice{Resource: "gpt"}, ID: "ann", Cause: new(of(1, 1, nil, time.Time{}, 0))}, "ann is refused by tpm, which comes back within seconds"},
		{"lead entity", &entityBody{choice: choice{Resource: "gpt"}, ID: "ann", Refused: 2, Cause: new(of(2, 1, nil, later, 0))}, "2 requests were refused in the last minute."},
		{"head entity", &entityBody{choice: choice{Resource: "gpt"}, ID: "ann"}, "ann has no limit that refuses for gpt"},
		{"head entity", &entityBody{choice: choice{Resource: "gpt"}, ID: "acme", Narrowest: status(usd, 0), Until: later}, "acme is out of USD a month until 14:27"},
		{"head entity", &entityBody{choice: choice{Resource: "gpt"}, ID: "acme", Narrowest: status(tpm, 0)}, "acme is out of tpm, which comes back within seconds"},
		{"head entity", &entityBody{choice: choice{Resource: "gpt"}, ID: "acme", Low: true, Narrowest: status(tpm, 40_000)}, "acme runs low on tpm: 40k left"},
		{"head entity", &entityBody{choice: choice{Resource: "gpt"}, ID: "acme", Narrowest: status(tpm, 200_000)}, "acme has room for gpt"},
		{"lead entity", &entityBody{choice: choice{Resource: "gpt"}, ID: "ann", Narrowest: status(tpm, 200_000)}, "Nothing was refused in the last minute. The narrowest is tpm of acme, of which 50 % is left."},
		{"head why", asked(hindsight.Answer{}, true, then), "ann was refused at 14:07 by tpm of acme for models"},
		{"lead why", asked(hindsight.Answer{Off: partly}, true, then), "It was refused 1 to 3 times in the minute. It was disabled from 14:07:10 to 14:07:20. The switch was at the default level of acme."},
		{"head why", asked(hindsight.Answer{Off: off}, false, nil), "ann was disabled for gpt at 14:07"},
		{"lead why", asked(hindsight.Answer{Off: off}, false, nil), "Every request was rejected. The switch was at the default level of acme."},
		{"lead why", asked(hindsight.Answer{Off: partly}, false, nil), "Requests were rejected from 14:07:10 to 14:07:20, and processes may have rejected some for another minute. The switch was at the default level of acme."},
		{"head why", asked(hindsight.Answer{Bypass: &off.Level}, false, nil), "ann was not limited for gpt at 14:07"},
		{"lead why", asked(hindsight.Answer{Bypass: &off.Level}, false, nil), "Requests were counted alone. The bypass was at its default level."},
		{"head why", asked(hindsight.Answer{Late: partly}, false, nil), "ann was disabled for gpt until 14:07:20"},
		{"lead why", asked(hindsight.Answer{Late: partly}, false, nil), "A process may reject requests for another minute. The switch was at the default level of acme."},
		{"head why", asked(hindsight.Answer{Nearest: &then.Refused}, false, then), "No refusal of ann is reported at 14:07. The nearest was at 14:07, by tpm of acme for models"},
		{"head why", asked(hindsight.Answer{Unlimited: true}, false, nil), "No limits of ann for gpt were stored at 14:07"},
		{"lead why", asked(hindsight.Answer{Unlimited: true}, false, nil), "Nor were any of what it is charged to. A request needs limits of its own, or ends with an error."},
		{"head why", asked(hindsight.Answer{}, false, nil), "No refusal of ann for gpt is reported around 14:07"},
		{"head limits/edit", &editBody{}, "every entity for every resource has no level of its own"},
		{"head limits/edit", &editBody{Config: zlimit.Config{Within: "models"}}, "every entity for every resource: a level without limits"},
		{"head limits/edit", &editBody{Level: zlimit.Level{Entity: "acme"}, Config: zlimit.Config{Limits: limits[:2]}}, "acme for every resource: tpm 400k a minute and usd $8,000 a month, UTC"},
		{"head limits/edit", &editBody{Config: zlimit.Config{Limits: limits}}, "every entity for every resource: tpm 400k a minute, usd $8,000 a month, UTC, slots 20 at a time and 1 more"},
		{"head limits/preview", &previewBody{Nothing: true}, "Nothing would change"},
		{"head limits/preview", &previewBody{Buckets: 3, Tight: 1}, "This changes 3 buckets, and 1 entity has nothing left immediately"},
		{"head limits/preview", &previewBody{}, "No bucket uses this level now; it holds for those to come"},
		{"head limits/preview", &previewBody{Buckets: 1}, "This changes 1 bucket, and every entity keeps room"},
		{"head limits", &limitsBody{N: 2, Off: 1}, "2 levels have limits, and 1 level is switched off"},
		{"head entities", &entitiesBody{Prefix: "x"}, "No stored entity begins with x"},
		{"head entities", &entitiesBody{Prefix: "x", More: true, Rows: make([]zlimit.Entity, 2)}, "More than 2 entities begin with x"},
	} {
		text := p.sentence(t, test.template, test.body)
		if text != test.want {
			t.Errorf("%s of %+v\n is %q,\nwant %q", test.template, test.body, text, test.want)
		}
	}
	prepaid := zlimit.Prepaid("cards", 10)
	for want, c := range map[string]recent.Cause{
		"its bucket is not listed":                              of(1, 1, nil, later, 0),
		"0 of 20 slots are held":                                of(1, 1, status(slots, 20), time.Time{}, 0),
		"used up; resets 14:27 UTC":                             of(1, 1, status(usd, 0), later, 0),
		"used up, until it is topped up":                        of(1, 1, status(usd, 0), time.Time{}, 0),
		"owes 300 tokens; room for 500 at 14:27":                of(1, 1, status(tpm, -300), later, 0),
		"has 300 tokens; room for 500 at 14:27":                 of(1, 1, status(tpm, 300), later, 0),
		"has 3 tokens, and needs a top-up for a request of 500": of(1, 1, status(prepaid, 3), time.Time{}, zlimit.Never),
		"a request of 500 can never fit":                        of(1, 1, status(tpm, 3), time.Time{}, zlimit.Never),
		"comes back within seconds, again and again":            of(1, 1, status(tpm, 3), time.Time{}, 0),
	} {
		text := execute(t, p, "reason", &c)
		if text != want {
			t.Errorf("the reason is %q, want %q", text, want)
		}
	}
}

// sentence returns what a template says of a body, as text.
func (p *page) sentence(t *testing.T, name string, body any) string {
	t.Helper()
	return execute(t, p, name, view{Body: body})
}

func execute(t *testing.T, p *page, name string, data any) string {
	t.Helper()
	text, err := p.execute(name, data)
	check.Error(t, name, err)
	return html.UnescapeString(strings.Join(strings.Fields(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(string(text), "")), " "))
}
