package usage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/internal/calendar"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/ledger"
)

func monthCommand(sh *shell.Shell) *cobra.Command {
	var entity, resource, limit, month, zone string
	cmd := &cobra.Command{
		Use:   "month --resource R --limit NAME [--entity E]",
		Short: "Show whether a month's budget lasts, and who spends it",
		Long: `Month shows what was consumed of a limit in a month of a time zone, by an entity
and each of its children, or without --entity by everyone, each with all below
it. Beside it is the same part of the month before. Of the present month it has
the budgets of the month, how they end, what the month will likely come to, and
who consumes more than a month ago.

It shows the 24 that consume most. Fourteen of the last 28 days must have usage
for a word on how a budget ends. An aggregator must run. zlimit usage bill has
exact amounts of all resources.`,
		Example: `  zlimit usage month --entity acme --resource gpt --limit usd
  zlimit usage month --resource gpt --limit tpm --month 2026-10 -o csv`,
		Args: shell.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, f := range [][2]string{{"resource", resource}, {"limit", limit}} {
				if f[1] == "" {
					return shell.Usagef("usage month: --%s is missing; see zlimit usage month --help", f[0])
				}
			}
			if err := shell.NotEmpty(cmd, "entity", "month", "zone"); err != nil {
				return err
			}
			q := ledger.Query{Entity: entity, Resources: []string{resource}, Limit: limit, Now: sh.Now()}
			var err error
			if q.From, err = monthOf(month, zone, q.Now); err != nil {
				return err
			}
			of, err := shell.Look(cmd.Context(), sh, func(ctx context.Context, l *zlimit.RateLimiter) (*ledger.Month, error) {
				return ledger.Read(ctx, l, q)
			})
			if err != nil {
				return err
			}
			return printMonth(sh, of, resource, zone)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&entity, "entity", "", "month of an `entity` and its children")
	flags.StringVar(&resource, "resource", "", "month of a `resource`")
	flags.StringVar(&limit, "limit", "", "`name` of the limit")
	flags.StringVar(&month, "month", "", "`month` such as 2026-10 (default the present one)")
	flags.StringVar(&zone, "zone", "UTC", "time `zone`, such as Europe/Berlin")
	sh.ListFlag(cmd)
	return cmd
}

// monthOf returns the beginning of a month in a zone, of the present one for "".
func monthOf(month, zone string, now time.Time) (time.Time, error) {
	in, err := calendar.Zone(zone)
	if err != nil {
		return now, shell.Usagef("usage month: --zone %s: %s", zone, calendar.CheckZone(zone))
	}
	if month == "" {
		return ledger.Begin(now.In(in)), nil
	}
	at, err := time.ParseInLocation("2006-01", month, in)
	if err != nil {
		return now, shell.Usagef("usage month: --month %q: must be a month such as 2026-10", month)
	}
	return at, nil
}

// A monthLine is what one entity consumed in a month, and its budget. Amounts are in tokens, or in billionths of a dollar.
type monthLine struct {
	Entity    string         `json:"entity"` // "" for everyone
	Consumed  int64          `json:"consumed"`
	Before    int64          `json:"before"`           // in the same part of the month before
	Budget    int64          `json:"budget,omitempty"` // of the month; 0 for none
	Available int64          `json:"available,omitempty"`
	Outlook   ledger.Outlook `json:"outlook,omitempty"`
	UsedUp    time.Time      `json:"used_up,omitzero"`
}

// lineOf returns the line of an entity, whose budget has a forecast; nil for none.
func lineOf(m *ledger.Month, entity string, days []float64, f *zlimit.Forecast) monthLine {
	l := monthLine{Entity: entity, Consumed: int64(m.In(days)), Before: int64(m.SameDays(days)), Outlook: m.Outlook(f, days)}
	if f != nil {
		l.Budget, l.Available, l.UsedUp = f.Capacity, f.Available, f.UsedUp
	}
	return l
}

// A monthJSON is a month for programs.
type monthJSON struct {
	Resource   string     `json:"resource"`
	Limit      string     `json:"limit"`
	Month      string     `json:"month"`
	Zone       string     `json:"zone"`
	CompleteTo *time.Time `json:"complete_to"` // null if unknown
	monthLine
	Likely int64       `json:"likely,omitempty"` // at the end of the month; left out where it is too early for it
	Least  int64       `json:"least,omitempty"`
	Most   int64       `json:"most,omitempty"`
	Groups []monthLine `json:"groups"` // children, or who has no parent; those that consume most first
	Left   int         `json:"left,omitempty"`
}

func printMonth(sh *shell.Shell, m *ledger.Month, resource, zone string) error {
	var own *zlimit.Forecast
	if m.Forecast.Capacity > 0 {
		own = &m.Forecast
	}
	v := monthJSON{
		Resource: resource, Limit: m.Query.Limit, Month: m.Query.From.Format("2006-01"), Zone: zone, monthLine: lineOf(m, m.Query.Entity, m.Total, own),
		Groups: []monthLine{}, Left: m.Left,
	}
	v.Budget, v.Available = int64(m.Budget), int64(m.Available)
	if !m.Complete.IsZero() {
		v.CompleteTo = &m.Complete
	}
	if m.Query.Present() && !m.Early {
		v.Likely, v.Least, v.Most = int64(m.Likely), int64(m.AtEnd[0]), int64(m.AtEnd[1])
	}
	for i := range m.Groups {
		g := &m.Groups[i]
		v.Groups = append(v.Groups, lineOf(m, g.Entity, g.Days, g.Forecast))
	}
	name := func(monthLine) string { return v.Limit }
	amount := func(column string, of func(monthLine) int64) show.Column[monthLine] {
		return show.Limited(column, name, func(l monthLine) zlimit.Quantity { return zlimit.Quantity(of(l)) * zlimit.Token })
	}
	before := amount("before", func(l monthLine) int64 { return l.Before })
	before.Shown = func(l monthLine) string { return show.Amount(v.Limit, int64(ledger.Rounded(float64(l.Before)))) } // a day is a part of one
	budget := func(l monthLine) bool { return l.Budget > 0 }
	columns := []show.Column[monthLine]{
		show.Same[monthLine]("month", v.Month), show.Same[monthLine]("zone", zone), show.Same[monthLine]("resource", resource), show.Same[monthLine]("limit", v.Limit),
		show.Text("entity", func(l monthLine) string { return l.Entity }), amount("consumed", func(l monthLine) int64 { return l.Consumed }), before,
	}
	if sh.Output.CSV || slices.ContainsFunc(v.Groups, budget) {
		columns = append(columns,
			amount("budget", func(l monthLine) int64 { return l.Budget }).Where(budget), amount("available", func(l monthLine) int64 { return l.Available }).Where(budget),
			show.Text("outlook", func(l monthLine) string { return string(l.Outlook) }),
			show.Instant("used_up", func(t time.Time) string { return t.Format("2006-01-02 15:04") }, func(l monthLine) time.Time { return l.UsedUp }).
				Where(func(l monthLine) bool { return !l.UsedUp.IsZero() }))
	}
	list := shell.Stream[monthLine]{Columns: shell.Fixed(columns...), Below: []string{"before", "available", "used_up"}}
	if sh.Output.CSV {
		return list.Print(sh, shell.Remembered(append([]monthLine{v.monthLine}, v.Groups...)))
	}
	var failed error
	err := sh.Print(v, func(p *show.Page) {
		v.write(p, m)
		if len(v.Groups) > 0 {
			failed = list.Table(sh, p, v.Groups)
		}
		if m.Left > 0 {
			p.Linef("and %s more", show.Grouped(int64(m.Left)))
		}
	})
	return errors.Join(failed, err)
}

// write says how the month goes.
func (v *monthJSON) write(p *show.Page, m *ledger.Month) {
	amount := func(n int64) string { return show.Amount(v.Limit, n) }
	rounded := func(f float64) string { return amount(int64(ledger.Rounded(f))) }
	who, counted := v.Entity, "how far it is counted is not known"
	if who == "" {
		who = "everyone"
	}
	if v.CompleteTo != nil {
		counted = "counted to " + v.CompleteTo.UTC().Format(time.RFC3339)
	}
	p.Linef("%s of %s for %s in %s, zone %s; %s", v.Limit, who, v.Resource, v.Month, v.Zone, counted)
	line := "consumed: " + amount(v.Consumed)
	if v.Before > 0 {
		line += ", and about " + rounded(float64(v.Before)) + " in the same part of the month before"
	}
	p.Linef("%s", line)
	if v.Budget > 0 {
		line = fmt.Sprintf("budget:   %s, of which %s is left", amount(v.Budget), amount(v.Available))
		if v.Outlook != ledger.OutlookNone {
			line += ": " + string(v.Outlook)
		}
		if v.Outlook == ledger.OutlookEndsEarly {
			line += ", on " + v.UsedUp.Format("2006-01-02 15:04")
		}
		p.Linef("%s", line)
	}
	if v.Likely > 0 {
		p.Linef("at the end of the month: about %s, from %s to %s", rounded(m.Likely), rounded(m.AtEnd[0]), rounded(m.AtEnd[1]))
	}
	c := m.Cause()
	if c.Group == nil {
		return
	}
	line = fmt.Sprintf("%s consumes %s more than in the same part of the month before", c.Group.Entity, rounded(c.More))
	if c.May > 0 {
		line += fmt.Sprintf("; with %s a day the budget lasts", rounded(c.May))
	}
	p.Linef("%s", line)
}
