package usage

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/internal/calendar"
	"github.com/zlimit/zlimit-go/internal/grammar"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A Bill is what entities consumed in a range of time. A sum of Own over all lines of a resource and a limit counts each request once.
type Bill struct {
	Month string    `json:"month,omitzero"` // "" for a range that is no month
	Zone  string    `json:"zone"`
	From  time.Time `json:"from"` // the first hour
	To    time.Time `json:"to"`   // the end of the last hour
	// CompleteTo is the time up to which the bill has all consumption; null if unknown.
	CompleteTo *time.Time `json:"complete_to"`
	Complete   bool       `json:"complete"` // all consumption of the range is in the bill
	// Gaps are times of the range of which consumption may be missing permanently.
	Gaps   []zlimit.UsageGap `json:"gaps"`
	Notes  []string          `json:"notes"`
	Lines  []BillLine        `json:"lines"`
	Totals []BillLine        `json:"totals"` // of all lines of a resource and a limit, where each request counts once
}

// A BillLine is what one entity consumed of one limit of a resource. Total is Own and FromChildren.
type BillLine struct {
	Entity   string          `json:"entity"`
	Parent   string          `json:"parent,omitzero"` // at the time of the bill
	Depth    int             `json:"depth,omitzero"`  // below the first entity of a tree
	Resource string          `json:"resource"`
	Limit    string          `json:"limit"`
	Unit     string          `json:"unit"` // of the amounts: tokens, or nano-usd, billionths of a dollar
	Own      zlimit.Quantity `json:"own"`  // by requests of the entity itself
	// FromChildren is by requests of children, as they were charged at their time.
	FromChildren zlimit.Quantity `json:"from_children"`
	// FromNarrower is the part of Total that lines of narrower resources have as well.
	FromNarrower zlimit.Quantity `json:"from_narrower"`
	Total        zlimit.Quantity `json:"total"`
}

type billFlags struct {
	month, zone, from, to, entity, resource string
	tree                                    bool
}

func billCommand(sh *shell.Shell) *cobra.Command {
	var f billFlags
	cmd := &cobra.Command{
		Use:   "bill [--month MONTH] [--zone ZONE] [--entity E] [--tree]",
		Short: "Show what each entity consumed in a month of a time zone",
		Long: `Bill shows what each entity consumed of every resource in a month of a time
zone, which begins when monthly budgets of that zone reset. Own is by requests
of the entity itself, and counts each request once when it is added up. What
requests of children were charged is beside it, and total is both. The totals
at the end have each request once.

--tree orders entities below their parents, and --entity is a bill of one
entity, with --tree of all below it as well. --from and --to are a range of
hours in place of a month, in the time zone. Usage is kept by hours of UTC:
where a zone differs by half an hour, an hour is in the month that it begins
in, and a note says by how much the bounds differ. So months add up.

Complete to is up to when an aggregator has counted everything. A bill is final
once that is after its end. The exit code is 0 all the same; -o json and -o csv
have the mark, the range and the zone in every row. Hours are kept for 90 days
by default: where those at the bounds are gone, a note says so.`,
		Example: `  zlimit usage bill --month 2026-10 --zone Europe/Berlin
  zlimit usage bill --entity acme --tree
  zlimit usage bill --month 2026-10 --resource gpt -o csv`,
		Args: shell.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			q, err := f.query(cmd, sh.Now())
			if err != nil {
				return err
			}
			progress := sh.ProgressLine()
			defer progress.End()
			q.progress = func(snapshots int64) { progress.Show(show.Grouped(snapshots) + " figures read") }
			bill, err := shell.Look(cmd.Context(), sh, q.read)
			progress.End()
			if err != nil {
				return err
			}
			return bill.print(sh)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.month, "month", "", "`month` such as 2026-10 (default the present one)")
	flags.StringVar(&f.zone, "zone", "UTC", "time `zone`, such as Europe/Berlin")
	flags.StringVar(&f.from, "from", "", "`TIME` at which it begins, in place of a month")
	flags.StringVar(&f.to, "to", "", "`TIME` that it ends before")
	flags.StringVar(&f.entity, "entity", "", "bill of an `entity`")
	flags.StringVar(&f.resource, "resource", "", "bill of a `resource`")
	flags.BoolVar(&f.tree, "tree", false, "entities below their parents")
	sh.ListFlag(cmd)
	return cmd
}

// query returns what the flags ask for.
func (f *billFlags) query(cmd *cobra.Command, now time.Time) (*billQuery, error) {
	if err := shell.NotEmpty(cmd, "month", "zone", "from", "to", "entity", "resource"); err != nil {
		return nil, err
	}
	zone, err := calendar.Zone(f.zone)
	if err != nil {
		return nil, shell.Usagef("usage bill: --zone %s: %s", f.zone, calendar.CheckZone(f.zone))
	}
	q := &billQuery{entity: f.entity, resource: f.resource, tree: f.tree, now: now, zone: f.zone}
	var from, to time.Time
	switch {
	case f.from == "" && f.to == "":
		first := now.In(zone)
		if f.month != "" {
			if first, err = time.Parse("2006-01", f.month); err != nil {
				return nil, shell.Usagef("usage bill: --month %q: must be a month such as 2026-10", f.month)
			}
		}
		q.month = first.Format("2006-01")
		from = calendar.Midnight(zone, first.Year(), first.Month(), 1)
		to = calendar.Midnight(zone, first.Year(), first.Month()+1, 1)
	case f.month != "":
		return nil, shell.Usagef("usage bill: --month excludes --from and --to")
	case f.from == "" || f.to == "":
		return nil, shell.Usagef("usage bill: --from and --to belong together")
	default:
		for _, end := range []struct {
			flag, text string
			at         *time.Time
		}{{"from", f.from, &from}, {"to", f.to, &to}} {
			var ok bool
			if *end.at, ok = momentIn(zone, end.text); !ok {
				return nil, shell.Usagef("usage bill: --%s %q: must be a month such as 2026-03, a date such as 2026-03-01, or a time such as"+
					" 2026-03-01T15:00 or 2026-03-01T15:00:00+01:00", end.flag, end.text)
			}
		}
	}
	q.from, q.to = hourFrom(from), hourFrom(to)
	for _, end := range []struct {
		what       string
		is, should time.Time
	}{{"begins", q.from, from}, {"ends", q.to, to}} {
		if late := end.is.Sub(end.should); late > 0 {
			q.notes = append(q.notes, fmt.Sprintf("the bill %s with an hour of UTC, %v after the range: an hour is in the range that it begins in", end.what, late))
		}
	}
	if !q.from.Before(q.to) {
		return nil, shell.Usagef("usage bill: no hour begins from %s to %s", from.Format(time.RFC3339), to.Format(time.RFC3339))
	}
	return q, nil
}

// hourFrom returns the first beginning of an hour from a time on.
func hourFrom(t time.Time) time.Time {
	start := zlimit.WindowHourly.Start(t)
	if start.Before(t) {
		start = zlimit.WindowHourly.End(start)
	}
	return start
}

// momentIn parses a time, which is one of a zone unless it says otherwise.
func momentIn(zone *time.Location, text string) (time.Time, bool) {
	for _, form := range []string{"2006-01", time.DateOnly} {
		if t, err := time.Parse(form, text); err == nil {
			return calendar.Midnight(zone, t.Year(), t.Month(), t.Day()), true
		}
	}
	for _, form := range []string{"2006-01-02T15:04", "2006-01-02T15:04:05"} {
		if t, err := time.ParseInLocation(form, text, zone); err == nil {
			return t.UTC(), true
		}
	}
	for _, form := range []string{time.RFC3339, "2006-01-02T15:04Z07:00"} {
		if t, err := time.Parse(form, text); err == nil {
			return t.UTC(), true
		}
	}
	return time.Time{}, false
}

// mark returns up to when the bill is complete, for people.
func (b *Bill) mark() string {
	switch {
	case b.Complete:
		return "complete"
	case b.CompleteTo == nil:
		return "how far it is complete is not known"
	case len(b.Gaps) > 0:
		return "not complete: some of it was never counted"
	case b.CompleteTo.Before(b.From):
		return "nothing of it is complete, but usage to " + b.CompleteTo.Format(time.RFC3339)
	default:
		return "complete to " + minTime(*b.CompleteTo, b.To).Format(time.RFC3339)
	}
}

func minTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// print writes the bill in the chosen form.
func (b *Bill) print(sh *shell.Shell) error {
	span := fmt.Sprintf("from %s to %s, zone %s", b.From.Format(time.RFC3339), b.To.Format(time.RFC3339), b.Zone)
	l := shell.Listing[BillLine]{
		Value: b, Rows: b.Lines, Title: strings.TrimSpace("bill "+b.Month) + ", " + span + "; " + b.mark(),
		None: "no usage " + span + "; " + b.mark(),
	}
	fixed := func(name, text string) show.Column[BillLine] {
		return show.Text(name, func(BillLine) string { return text })
	}
	if sh.Output.CSV {
		complete := ""
		if b.CompleteTo != nil {
			complete = b.CompleteTo.Format(time.RFC3339)
		}
		l.Columns = append(l.Columns, fixed("from", b.From.Format(time.RFC3339)), fixed("to", b.To.Format(time.RFC3339)), fixed("zone", b.Zone),
			fixed("complete_to", complete), fixed("complete", fmt.Sprint(b.Complete)))
	}
	entity := show.Text("entity", func(l BillLine) string { return l.Entity })
	entity.Shown = func(l BillLine) string { return strings.Repeat("  ", l.Depth) + l.Entity }
	l.Columns = append(l.Columns, entity)
	if sh.Output.CSV {
		l.Columns = append(l.Columns, show.Text("parent", func(l BillLine) string { return l.Parent }))
	}
	l.Columns = append(l.Columns, show.Text("resource", func(l BillLine) string { return l.Resource }), show.Text("limit", func(l BillLine) string { return l.Limit }))
	if sh.Output.CSV {
		l.Columns = append(l.Columns, show.Text("unit", func(l BillLine) string { return unitOf(l.Limit) }))
	}
	limit := func(l BillLine) string { return l.Limit }
	l.Columns = append(l.Columns,
		show.Limited("own", limit, func(l BillLine) zlimit.Quantity { return l.Own }),
		show.Limited("from_children", limit, func(l BillLine) zlimit.Quantity { return l.FromChildren }),
		show.Limited("total", limit, func(l BillLine) zlimit.Quantity { return l.Total }))
	if narrower := slices.ContainsFunc(b.Lines, func(l BillLine) bool { return l.FromNarrower != 0 }); narrower || sh.Output.CSV {
		l.Columns = append(l.Columns, show.Limited("from_narrower", limit, func(l BillLine) zlimit.Quantity { return l.FromNarrower }))
	}
	if err := l.Print(sh); err != nil || sh.Output.JSON {
		return err
	}
	if sh.Output.CSV && len(b.Lines) == 0 { // whose rows would say so
		sh.Note("note: " + l.None)
	}
	for _, note := range b.Notes {
		sh.Note("note: " + note)
	}
	if sh.Output.CSV || len(b.Lines) == 0 {
		return nil
	}
	p := &show.Page{}
	for _, t := range b.Totals {
		p.Linef("%s %s: %s, each request once", t.Resource, t.Limit, show.Quantified(t.Limit, t.Total))
	}
	return sh.Write(p)
}

// order sorts lines by entity, or each entity below its parent.
func (b *Bill) order(tree bool) {
	path := map[string]string{}
	if tree {
		parents, lines := map[string]string{}, map[string]bool{}
		for i := range b.Lines {
			parents[b.Lines[i].Entity], lines[b.Lines[i].Entity] = b.Lines[i].Parent, true
		}
		for i := range b.Lines {
			l := &b.Lines[i]
			path[l.Entity], l.Depth = l.Entity, 0
			for parent := l.Parent; lines[parent] && l.Depth < len(lines); parent = parents[parent] {
				path[l.Entity] = parent + "\x00" + path[l.Entity]
				l.Depth++
			}
		}
	}
	slices.SortFunc(b.Lines, func(x, y BillLine) int {
		return cmp.Or(cmp.Compare(path[x.Entity], path[y.Entity]), cmp.Compare(x.Entity, y.Entity), cmp.Compare(x.Resource, y.Resource), cmp.Compare(x.Limit, y.Limit))
	})
}

// tokens is the unit of amounts that are not in money.
const tokens = "tokens"

// unitOf returns in what the amounts of a limit are in CSV, which has decimals of dollars.
func unitOf(limit string) string {
	if limit == grammar.Money {
		return "dollars"
	}
	return tokens
}
