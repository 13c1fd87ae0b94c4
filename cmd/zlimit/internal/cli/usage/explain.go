package usage

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A Moment is something on the time line of an entity and a resource.
type Moment struct {
	Time    time.Time `json:"time"`
	Kind    string    `json:"kind"`    // limits, bucket, rejected, consumed or now
	Subject string    `json:"subject"` // whose limits or bucket it is
	Text    string    `json:"text"`
	By      string    `json:"by,omitzero"`

	before bool // of the time line, for whose beginning it holds
}

// A TimeLine is what is known of an entity and a resource around a time.
type TimeLine struct {
	Entity   string          `json:"entity"`
	Resource string          `json:"resource"`
	At       time.Time       `json:"at"`
	From     time.Time       `json:"from"`
	To       time.Time       `json:"to"`
	Moments  []Moment        `json:"moments"`
	Now      zlimit.Statuses `json:"now"`   // of the entity and of its parents
	Notes    []string        `json:"notes"` // what is not kept
}

// ExplainCommand returns the command explain.
func ExplainCommand(sh *shell.Shell) *cobra.Command {
	var at string
	var within time.Duration
	cmd := &cobra.Command{
		Use:   "explain ENTITY RESOURCE [--at TIME]",
		Short: "Show on a time line why requests were rejected",
		Long: `Explain shows what is known of an entity and a resource around a time: limits
that held then and changes of them, switches, grants and resets, rejections by
minute, consumption by hour, and where limits stand now. Changes are of the
entity, its parents, the resource and the system.

Rejections are known where processes report them (WithRejectionReports), for
seven days by default. Consumption is known where an aggregator counts it, and
changes for as long as audit events are kept. Notes say what is missing.`,
		Example: `  zlimit explain acme gpt --at 2026-11-03T14:03
  zlimit explain acme gpt --within 1h -o json`,
		Args: shell.Takes("ENTITY", "RESOURCE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			moment, ok := shell.ParseMoment(at, sh.Now())
			switch {
			case !ok:
				return shell.Usagef("explain: --at %q: must be now, today, yesterday, a month such as 2026-03, a date such as 2026-03-01, or a time such as"+
					" 2026-03-01T15:04 or 2026-03-01T15:04:05+01:00", at)
			case within < time.Minute || within > 24*time.Hour:
				return shell.Usagef("explain: --within %v: must be from 1m to 24h", within)
			}
			e := explanation{line: TimeLine{
				Entity: args[0], Resource: args[1], At: moment, From: moment.Add(-within), To: moment.Add(within), Moments: []Moment{}, Notes: []string{},
			}, now: sh.Now()}
			line, err := shell.Look(cmd.Context(), sh, e.read)
			if err != nil {
				return err
			}
			return sh.Print(line, line.write)
		},
	}
	cmd.Flags().StringVar(&at, "at", "now", "`TIME` to explain")
	cmd.Flags().DurationVar(&within, "within", 10*time.Minute, "`time` before and after it")
	return cmd
}

// An explanation reads a time line.
type explanation struct {
	line TimeLine
	now  time.Time
}

func (e explanation) read(ctx context.Context, l *zlimit.RateLimiter) (*TimeLine, error) {
	t := e.line
	subjects := []string{t.Entity}
	for parent := t.Entity; len(subjects) < 9; {
		entity, err := l.Entities.Get(ctx, parent)
		if err != nil && !errors.Is(err, zlimit.ErrEntityNotFound) {
			return nil, err
		}
		if err != nil || entity.ParentID == "" || slices.Contains(subjects, entity.ParentID) {
			break // an entity without a record has no parent
		}
		parent = entity.ParentID
		subjects = append(subjects, parent)
	}
	for _, read := range []func(context.Context, *zlimit.RateLimiter, *TimeLine, []string) error{e.changes, e.rejections, e.consumption} {
		if err := read(ctx, l, &t, subjects); err != nil {
			return nil, err
		}
	}
	statuses, err := l.Available(ctx, zlimit.AvailableQuery{Entity: t.Entity, Resource: t.Resource, Parents: true})
	if err != nil {
		t.Notes = append(t.Notes, "where limits stand now is not known: "+shell.Explain(err))
	}
	t.Now = statuses
	slices.SortStableFunc(t.Moments, func(a, b Moment) int { return a.Time.Compare(b.Time) })
	return &t, nil
}

// changes adds the changes of the range, and the last one before it of each subject.
func (e explanation) changes(ctx context.Context, l *zlimit.RateLimiter, t *TimeLine, subjects []string) error {
	known := false
	for _, subject := range append(slices.Clone(subjects), zlimit.AuditResource(t.Resource), zlimit.AuditSystem) {
		var last []Moment // before the range, of each resource and kind
		for event, err := range l.Audit.Events(ctx, subject, zlimit.AuditQuery{To: t.To}) {
			if err != nil {
				return err
			}
			known = true
			if event.Resource != "" && event.Resource != t.Resource && event.Resource != zlimit.DefaultResource {
				continue
			}
			m := Moment{Time: event.Time, Kind: "limits", Subject: subjectOf(event), Text: string(event.Action) + ": " + shownDetails(event), By: event.Principal}
			if event.Action == zlimit.ActionBucketReset || event.Action == zlimit.ActionBucketToppedUp {
				m.Kind = "bucket"
			}
			if !event.Time.Before(t.From) {
				t.Moments = append(t.Moments, m)
				continue
			}
			m.before = true
			last = slices.DeleteFunc(last, func(o Moment) bool { return o.Kind == m.Kind && o.Subject == m.Subject })
			last = append(last, m)
		}
		t.Moments = append(t.Moments, last...)
	}
	if !known {
		t.Notes = append(t.Notes, "no changes of limits are kept")
	}
	return nil
}

// subjectOf names the level of a change.
func subjectOf(event zlimit.AuditEvent) string {
	if event.Resource != "" && event.Entity != zlimit.AuditResource(event.Resource) {
		return event.Entity + " for " + event.Resource
	}
	return event.Entity
}

// rejections adds what processes have reported, by minute.
func (e explanation) rejections(ctx context.Context, l *zlimit.RateLimiter, t *TimeLine, _ []string) error {
	to := minTime(t.To, e.now.Add(time.Minute))
	if !t.From.Before(to) {
		return nil
	}
	all, err := l.Usage.RejectedByMinute(ctx, zlimit.RejectedQuery{From: t.From, To: to, Resource: t.Resource})
	if err != nil {
		return err
	}
	if len(all) == 0 {
		t.Notes = append(t.Notes, "no rejections are reported: processes report them with zlimit.WithRejectionReports")
	}
	for _, minute := range all {
		for _, r := range minute.Heaviest {
			if r.Entity != t.Entity {
				continue
			}
			text := fmt.Sprintf("%s by limit %s", show.Counted(int(r.Count), "request"), r.Limit)
			if r.AtLeast != r.AtMost {
				text = fmt.Sprintf("%s to %s requests by limit %s", show.Grouped(r.AtLeast), show.Grouped(r.AtMost), r.Limit)
			}
			t.Moments = append(t.Moments, Moment{Time: minute.From, Kind: "rejected", Subject: r.LimitEntity, Text: text})
		}
	}
	return nil
}

// consumption adds what was consumed, by hour.
func (e explanation) consumption(ctx context.Context, l *zlimit.RateLimiter, t *TimeLine, subjects []string) error {
	known := false
	for _, subject := range subjects {
		q := zlimit.UsageQuery{
			Entity: subject, Resource: t.Resource, Window: zlimit.WindowHourly, From: zlimit.WindowHourly.Start(t.From), To: t.To,
		}
		for s, err := range l.Usage.Snapshots(ctx, q) {
			if err != nil {
				return err
			}
			known = true
			var parts []string
			for _, limit := range slices.Sorted(maps.Keys(s.Consumed)) {
				parts = append(parts, limit+"="+show.Quantified(limit, s.Consumed[limit]))
			}
			t.Moments = append(t.Moments, Moment{Time: s.Start, Kind: "consumed", Subject: subject, Text: "in the hour from here: " + strings.Join(parts, ", ")})
		}
	}
	if !known {
		t.Notes = append(t.Notes, "no consumption is counted in these hours")
	}
	return nil
}

// write writes the time line for people.
func (t *TimeLine) write(p *show.Page) {
	p.Linef("%s, resource %s, from %s to %s UTC", t.Entity, t.Resource, t.From.Format(time.DateTime), t.To.Format(time.DateTime))
	var rows [][]string
	marked := false
	for _, m := range t.Moments {
		if !marked && m.Time.After(t.At) {
			rows, marked = append(rows, []string{t.At.Format(time.DateTime), "-----", "", "the time in question", ""}), true
		}
		rows = append(rows, []string{m.Time.UTC().Format(time.DateTime), m.Kind, m.Subject, m.Text, m.By})
	}
	if !marked {
		rows = append(rows, []string{t.At.Format(time.DateTime), "-----", "", "the time in question", ""})
	}
	p.Table([]string{"time", "kind", "subject", "what", "by"}, rows)
	if len(t.Now) > 0 {
		p.Linef("")
		p.Linef("now:")
		p.Statuses(t.Now, false)
	}
	for _, note := range t.Notes {
		p.Linef("note: %s", note)
	}
}
