package usage

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/internal/grammar"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/hindsight"
)

// AuditCommand returns the command audit.
func AuditCommand(sh *shell.Shell) *cobra.Command {
	return shell.Group("list", &cobra.Command{
		Use:   "audit",
		Short: "Show who changed entities and limits: list",
	}, auditListCommand(sh))
}

func auditListCommand(sh *shell.Shell) *cobra.Command {
	var r shell.TimeRange
	var q zlimit.AuditQuery
	var system, all bool
	var entity, resource string
	cmd := &cobra.Command{
		Use:   "list SUBJECT [--by NAME]",
		Short: "List the changes of an entity, a resource, the system, or all",
		Long: `List lists who changed what, in the order of time. A SUBJECT is what was
changed, and is named by flags:

  --entity E                an entity and its limits
  --entity E --resource R   the limits of an entity for one resource
  --resource R              the limits of a resource
  --system                  changes of the system level
  --all                     changes of the whole namespace

Resets and top-ups are changes of the entity whose bucket it is, also in all
buckets of a resource: --resource does not list them, and --all does.

With --all it reads the keys of all changes of the namespace from an index, half
a read unit for some 20 of them. It then reads the changes of the given time,
half a unit each.

` + shell.RangeHelp,
		Example: `  zlimit audit list --entity acme --since 7d
  zlimit audit list --resource gpt --reverse --max 10
  zlimit audit list --all --by olga --since 24h
  zlimit audit list --system --from 2026-01 --to 2026-02 -o json`,
		Args: shell.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			given := cmd.Flags().Changed
			subject := entity
			switch byEntity, byResource := given("entity"), given("resource"); {
			case all && (system || byEntity || byResource):
				return shell.Usagef("audit list: --all excludes --system, --entity and --resource")
			case system && (byEntity || byResource):
				return shell.Usagef("audit list: --system excludes --entity and --resource")
			case !all && !system && !byEntity && !byResource:
				return shell.Usagef("audit list: --system, --resource, --entity or --all is missing; see %s --help", cmd.CommandPath())
			case given("max") && q.Limit < 1:
				return shell.Usagef("audit list: --max %d: must be positive", q.Limit)
			case system:
				subject = zlimit.AuditSystem
			case !byEntity:
				subject = zlimit.AuditResource(resource)
			default:
				q.Resource = resource
			}
			var err error
			if q.From, q.To, err = r.Parse(cmd, sh.Now()); err != nil {
				return err
			}
			rows := func(ctx context.Context, l *zlimit.RateLimiter) iter.Seq2[zlimit.AuditEvent, error] {
				if all {
					return l.Audit.All(ctx, q)
				}
				return l.Audit.Events(ctx, subject, q)
			}
			return shell.List(cmd.Context(), sh, rows, auditEvents(all))
		},
	}
	cmd.Flags().BoolVar(&system, "system", false, "changes of the system level")
	cmd.Flags().StringVar(&entity, "entity", "", "changes of an `entity`")
	cmd.Flags().StringVar(&resource, "resource", "", "changes of the limits of a `resource`")
	cmd.Flags().BoolVar(&all, "all", false, "changes of the whole namespace")
	cmd.Flags().StringVar(&q.Principal, "by", "", "only changes that `NAME` has made")
	cmd.Flags().BoolVar(&q.Reverse, "reverse", false, "the latest first")
	cmd.Flags().IntVar(&q.Limit, "max", 0, "`number` of changes at most")
	r.Flags(cmd)
	sh.ListFlag(cmd)
	return cmd
}

// auditEvents is the list of audit events, of several subjects or of one.
func auditEvents(several bool) *shell.Stream[zlimit.AuditEvent] {
	seconds := func(t time.Time) string { return t.Format(time.DateTime) }
	columns := []show.Column[zlimit.AuditEvent]{
		show.Instant("time", seconds, func(e zlimit.AuditEvent) time.Time { return e.Time }),
		show.Text("action", func(e zlimit.AuditEvent) string { return string(e.Action) }),
		// A subject among several names its resource.
		{Name: "resource", Plain: func(e zlimit.AuditEvent) string { return e.Resource }, Shown: show.AboutResource, File: several},
		show.Text("principal", func(e zlimit.AuditEvent) string { return e.Principal }),
		{Name: "details", Plain: plainDetails, Shown: shownDetails, Bare: true},
	}
	if several {
		columns = slices.Insert(columns, 1, show.Column[zlimit.AuditEvent]{
			Name:  "subject",
			Plain: func(e zlimit.AuditEvent) string { return e.Entity },
			Shown: func(e zlimit.AuditEvent) string { return hindsight.LevelOf(&e).String() },
		})
	}
	return &shell.Stream[zlimit.AuditEvent]{
		Head: struct{}{}, Key: "events", Columns: shell.Fixed(columns...), None: "no changes", Below: []string{"details", "principal"},
	}
}

// disabledSetting is the name of a level's switch in details.
const disabledSetting = "disabled"

func plainDetails(e zlimit.AuditEvent) string {
	details, err := json.Marshal(e.Details)
	if err != nil { // of values that JSON cannot hold; an item cannot hold them either
		return err.Error()
	}
	return string(details)
}

// shownDetails returns the details of an event for people. A change has the former and the present values, where they
// differ. An event of another program is shown as JSON.
func shownDetails(e zlimit.AuditEvent) string {
	if text, ok := shownManual(e); ok {
		return text
	}
	now, ok := hindsight.Settings(e.Details)
	if !ok {
		return plainDetails(e)
	}
	before, changed := e.Details["before"].(map[string]any)
	had, ok := hindsight.Settings(before)
	if !changed || !ok {
		had = map[string]any{}
	}
	if e.Action == zlimit.ActionLimitsDeleted { // its details are what was there
		now, had, changed = map[string]any{}, now, true
	}
	parts := hindsight.Differences(had, now, func(name string, before, after any) string {
		was, is := settingText(name, before), settingText(name, after)
		switch {
		case !changed:
			return name + "=" + is
		case before == nil:
			return "+" + name + "=" + is
		case after == nil && name == disabledSetting:
			return name + "=" + was + " → left to wider levels"
		case after == nil:
			return "-" + name + "=" + was
		case was != is:
			return name + "=" + was + " → " + is
		}
		return ""
	})
	if len(parts) == 0 {
		return "nothing changed"
	}
	return strings.Join(parts, ", ")
}

// shownManual returns the details of a reset or a top-up: what each limit had and has. It returns false for an event of another
// kind or form.
func shownManual(e zlimit.AuditEvent) (string, bool) {
	if e.Action != zlimit.ActionBucketReset && e.Action != zlimit.ActionBucketToppedUp {
		return "", false
	}
	before, _ := e.Details["before"].(map[string]any)
	after, _ := e.Details["after"].(map[string]any)
	shards, counted := e.Details["shards"].(int64)
	operation, named := e.Details["operation"].(string)
	if len(after) == 0 || !counted || !named {
		return "", false
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(after)) {
		was, had := amountOf(name, before[name])
		now, has := amountOf(name, after[name])
		if !had || !has {
			return "", false
		}
		if was != now {
			now = was + " → " + now
		}
		parts = append(parts, name+"="+now)
	}
	if until, ends := e.Details["until"].(string); ends {
		parts = append(parts, "until="+until)
	}
	parts = append(parts, "operation="+operation)
	if shards == 0 {
		return strings.Join(append(parts, "no bucket yet, which counts as full"), ", "), true
	}
	return strings.Join(append(parts, "shards="+strconv.FormatInt(shards, 10)), ", "), true
}

// amountOf returns an amount of a limit as events have it; false for anything else.
func amountOf(limit string, v any) (string, bool) {
	switch v := v.(type) {
	case int64:
		if limit != grammar.Money {
			return strconv.FormatInt(v, 10), true
		}
		return show.Amount(limit, v), true
	case json.Number:
		return v.String(), true
	default:
		return "", false
	}
}

// settingText writes a setting: texts that people have made up are quoted.
func settingText(name string, v any) string {
	switch v := v.(type) {
	case zlimit.Limit:
		return strings.TrimPrefix(v.String(), v.Name+"=")
	case string:
		if name == "name" || strings.Contains(name, ".") {
			return strconv.Quote(v)
		}
		return v
	default:
		return fmt.Sprint(v)
	}
}
