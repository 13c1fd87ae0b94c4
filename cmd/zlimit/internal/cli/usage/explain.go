package usage

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/budgets"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/hindsight"
	"github.com/zlimit/zlimit-go/zlimit/rotation"
)

// A Moment is something on the time line of an entity and a resource.
type Moment struct {
	Time    time.Time    `json:"time"`
	Kind    string       `json:"kind"`    // limits, bucket, rejected or consumed
	Level   zlimit.Level `json:"level"`   // whose limits or bucket it is
	Subject string       `json:"subject"` // the level in words
	Text    string       `json:"text"`
	By      string       `json:"by,omitzero"`
	// Of rejections these are the entity of the requests, the limit, and how many there were.
	Entity string `json:"entity,omitzero"`
	Limit  string `json:"limit,omitzero"`
	Count  int64  `json:"count,omitzero"`
}

// when writes the time: rejections are of a minute, without seconds.
func (m *Moment) when() string {
	if m.Kind == kindRejected || m.Kind == kindAsked && m.Time.Equal(m.Time.Truncate(time.Minute)) {
		return m.Time.UTC().Format("2006-01-02 15:04")
	}
	return m.Time.UTC().Format(time.DateTime)
}

// Kinds of moments that are of a whole minute.
const (
	kindRejected = "rejected"
	kindAsked    = "-----"
)

// A TimeLine is what is known of an entity and a resource around a time.
type TimeLine struct {
	Entity   string          `json:"entity"`
	Resource string          `json:"resource"`
	Answer   string          `json:"answer"` // what refused, in a sentence or two
	At       time.Time       `json:"at"`
	From     time.Time       `json:"from"`
	To       time.Time       `json:"to"`
	Moments  []Moment        `json:"moments"`
	Now      zlimit.Statuses `json:"now"`   // of the entity and of its parents
	Notes    []string        `json:"notes"` // what is not kept

	budgets.Remarks // on Now

	asked int // how many moments are before the time
}

// ExplainCommand returns the command explain.
func ExplainCommand(sh *shell.Shell) *cobra.Command {
	var at string
	var within time.Duration
	cmd := &cobra.Command{
		Use:   "explain ENTITY RESOURCE [--at TIME]",
		Short: "Show on a time line why requests were rejected",
		Long: `Explain says which limit refused an entity at a time, how often in that minute,
what the limit was then, who had set it, and what it is now. It names a switch
that rejected requests, at any level that they are charged to, and for which
part of that minute. If nothing refused then, it names the nearest refusal.

Below that is what is known of the entity and the resource around the time:
limits that held then and changes of them, switches, grants and resets,
rejections by minute, consumption by hour, and where limits stand now. Changes
and consumption are of every level that requests are charged to: the entity and
its parents, for the resource and the wider ones that it lies within. Changes
of the resources' own levels and of the system are shown as well. Rejections
come after the changes in their minute. For a parent they include requests of
its children that its limits rejected.

A TIME is in UTC. 14:03 is the last one of that clock. Rejections are known
where processes report them (WithRejectionReports in Go, dashboard: true in the
file of zlimitd), for seven days by default. Consumption is known where an
aggregator counts it, and changes for as long as audit events are kept. Notes
say what is missing.`,
		Example: `  zlimit explain acme gpt --at 2026-11-03T14:03
  zlimit explain acme gpt --at 14:03
  zlimit explain acme gpt --within 1h -o json`,
		Args: shell.Takes("ENTITY", "RESOURCE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			moment, ok := parseClock(at, sh.Now())
			switch {
			case !ok:
				return shell.Usagef("explain: --at %q: must be now, today, yesterday, a month such as 2026-03, a date such as 2026-03-01, or a time such as"+
					" 15:04, 2026-03-01T15:04 or 2026-03-01T15:04:05+01:00", at)
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
			if sh.Output.JSON {
				return sh.Print(line, nil)
			}
			p := &show.Page{}
			if err := line.write(sh, p); err != nil {
				return err
			}
			return sh.Write(p)
		},
	}
	cmd.Flags().StringVar(&at, "at", "now", "`TIME` to explain")
	cmd.Flags().DurationVar(&within, "within", 10*time.Minute, "`time` before and after it, from 1m to 24h")
	return cmd
}

// An explanation reads a time line.
type explanation struct {
	line TimeLine
	now  time.Time
}

func (e explanation) read(ctx context.Context, l *zlimit.RateLimiter) (*TimeLine, error) {
	t := e.line
	found, err := hindsight.Explain(ctx, l, hindsight.Question{
		Entity: t.Entity, Resource: t.Resource, At: t.At, From: t.From, To: t.To, Now: e.now, Children: true,
	})
	if err != nil {
		return nil, err
	}
	asked := Moment{Time: t.At, Kind: kindAsked}
	t.Answer, t.asked = answerText(&t, &found.Answer, asked.when()), found.Asked
	if to, err := rotation.NewID(ctx, l, t.Entity); err != nil {
		return nil, err
	} else if to != "" {
		t.Answer += fmt.Sprintf(" %s has the new ID %s.", t.Entity, to)
	}
	for i := range found.Moments {
		t.Moments = append(t.Moments, momentOf(&found.Moments[i]))
	}
	t.note(found, e.now)
	if err := t.noteUnknown(ctx, l, e.now); err != nil {
		return nil, err
	}
	statuses, err := l.Available(ctx, zlimit.AvailableQuery{Entity: t.Entity, Resource: t.Resource, Parents: true})
	if err != nil {
		t.Notes = append(t.Notes, "where limits stand now is not known: "+shell.Explain(rotation.Explain(ctx, l, err)))
	}
	t.Now, t.Remarks = statuses, budgets.RemarksOf(ctx, l, statuses, e.now)
	return &t, nil
}

// momentOf writes a moment.
func momentOf(of *hindsight.Moment) Moment {
	m := Moment{Time: of.Time, Level: of.Level, Subject: of.Level.String()}
	switch {
	case of.Refused != nil:
		r := of.Refused
		m.Kind, m.Entity, m.Limit, m.Count = kindRejected, r.Entity, r.Limit, r.Count
		m.Text = fmt.Sprintf("%s of %s by limit %s", times(r, "request"), r.Entity, refusingFor(r))
	case of.Change != nil:
		e := of.Change
		m.Kind, m.By, m.Text = "limits", e.Principal, string(e.Action)+": "+shownDetails(*e)
		if e.Action == zlimit.ActionBucketReset || e.Action == zlimit.ActionBucketToppedUp {
			m.Kind = "bucket"
		}
	default:
		var parts []string
		for _, limit := range slices.Sorted(maps.Keys(of.Used.Consumed)) {
			parts = append(parts, limit+"="+show.Quantified(limit, of.Used.Consumed[limit]))
		}
		m.Kind, m.Text = "consumed", "in the hour from here: "+strings.Join(parts, ", ")
	}
	return m
}

// note notes what is not kept.
func (t *TimeLine) note(found *hindsight.Explanation, now time.Time) {
	if !found.Reported && t.From.Before(now) {
		t.Notes = append(t.Notes, "no rejections are reported around this time: processes report them with zlimit.WithRejectionReports in Go, and zlimitd "+
			"with dashboard: true in its file")
	}
	if !found.Changed {
		t.Notes = append(t.Notes, "no changes of limits are kept")
	}
	if len(found.Cut) > 0 {
		t.Notes = append(t.Notes, fmt.Sprintf("of %s only the last %s changes were read", strings.Join(found.Cut, ", "), show.Grouped(hindsight.Most)))
	}
	if !found.Counted {
		t.Notes = append(t.Notes, "no consumption is counted in these hours")
	}
}

// write writes the time line for people.
func (t *TimeLine) write(sh *shell.Shell, p *show.Page) error {
	for _, line := range sh.Folded(t.Answer) {
		p.Linef("%s", line)
	}
	p.Linef("")
	p.Linef("%s, resource %s, from %s to %s UTC", t.Entity, t.Resource, t.From.Format(time.DateTime), t.To.Format(time.DateTime))
	table := shell.Stream[Moment]{
		Columns: shell.Fixed(
			show.Text("time", func(m Moment) string { return m.when() }),
			show.Text("kind", func(m Moment) string { return m.Kind }),
			show.Text("subject", func(m Moment) string { return m.Subject }),
			whatColumn(),
			show.Text("by", func(m Moment) string { return m.By }),
		),
		Below: []string{"what", "by"},
	}
	if err := table.Table(sh, p, t.marked()); err != nil {
		return err
	}
	if len(t.Now) > 0 {
		p.Linef("")
		p.Linef("now:")
		t.Print(p, t.Now, false)
	}
	for _, note := range t.Notes {
		for _, line := range sh.Folded("note: " + note) {
			p.Linef("%s", line)
		}
	}
	return nil
}

func whatColumn() show.Column[Moment] {
	c := show.Text("what", func(m Moment) string { return m.Text })
	c.Bare = true
	return c
}

// marked returns the moments with the time in question among them.
func (t *TimeLine) marked() []Moment {
	return slices.Insert(slices.Clone(t.Moments), t.asked, Moment{Time: t.At, Kind: kindAsked, Text: "the time in question"})
}
