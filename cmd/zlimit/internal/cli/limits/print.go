package limits

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/internal/deploy/provision"
	"github.com/zlimit/zlimit-go/zlimit"
)

// maxNamed is the number of levels that a line of a plan for people names.
const maxNamed = 10

func printPlan(p *show.Page, plan *provision.Plan) {
	if plan.Empty() {
		p.Linef("namespace %s: nothing to change", plan.Namespace)
	} else {
		p.Linef("namespace %s", plan.Namespace)
		if plan.From != "" {
			p.Linef("  taken over from %s", plan.From)
		}
		for i := range plan.Changes {
			printChange(p, &plan.Changes[i])
		}
		p.Linef("%s", summary(plan.Changes))
		if err := plan.Undoes(); err != nil {
			p.Linef("%v: limits apply does so only with --undo-scaling", err)
		}
		if kept := plan.TakenFromPrograms(); len(kept) > 0 {
			p.Linef("kept by a program until now, whose Limits.Apply has no effect from then on: %s", levelNames(kept))
		}
	}
	printUnmanaged(p, plan.Unmanaged)
}

var signs = map[provision.Action]string{
	provision.Create: "+", provision.Update: "~", provision.Adopt: "=", provision.Delete: "-", provision.Forget: "-",
}

var remarks = map[provision.Action]string{
	provision.Adopt:  "  as declared; managed from now on",
	provision.Forget: "  deleted already; not managed any more",
}

// printChange shows a change: the level, and each limit as it is and as it will be.
func printChange(p *show.Page, c *provision.Change) {
	p.Linef("  %s %v%s%s", signs[c.Action], c.After.Level, remarks[c.Action], drifted(c))
	if c.Action == provision.Adopt || c.Action == provision.Forget {
		return
	}
	both, width := bothOf(c), 0
	for _, s := range both {
		width = max(width, len(s.name))
	}
	for _, s := range both {
		switch {
		case s.before == "":
			p.Linef("      + %-*s  %s", width, s.name, s.after)
		case s.after == "":
			p.Linef("      - %-*s  %s", width, s.name, s.before)
		case s.before != s.after:
			p.Linef("      ~ %-*s  %s → %s", width, s.name, s.before, s.after)
		}
	}
}

// A changedSetting is a setting before and after a change, "" for none.
type changedSetting struct{ name, before, after string }

// bothOf returns the settings of a level before and after a change, by their names.
func bothOf(c *provision.Change) []changedSetting {
	both := map[string]changedSetting{}
	for _, s := range settings(&c.Before.Config) {
		both[s.name] = changedSetting{s.name, s.value, ""}
	}
	for _, s := range settings(&c.After.Config) {
		both[s.name] = changedSetting{s.name, both[s.name].before, s.value}
	}
	return slices.SortedFunc(maps.Values(both), func(a, b changedSetting) int { return strings.Compare(a.name, b.name) })
}

// drifted says who changed a level by other means, or who has scaled it.
func drifted(c *provision.Change) string {
	if s := c.Scaling; s != nil {
		by := ""
		if s.By != "" {
			by = " by " + s.By
		}
		return "  (scaled by the factor " + s.Factor + by + " at " + s.At.UTC().Format(time.DateTime) + ")"
	}
	switch d := c.Drift; {
	case d == nil:
		return ""
	case d.At.IsZero():
		return "  (changed since the last apply, by an unknown author)"
	case d.By == "":
		return "  (changed since the last apply, at " + d.At.UTC().Format(time.DateTime) + ")"
	default:
		return "  (changed since the last apply, by " + d.By + " at " + d.At.UTC().Format(time.DateTime) + ")"
	}
}

// A setting is one line of a level.
type setting struct{ name, value string }

func settings(c *zlimit.Config) []setting {
	var all []setting
	for _, limit := range c.Limits {
		value := show.Refill(limit)
		switch {
		case limit.Term != 0:
			value = show.Amount(limit.Name, limit.Capacity) + " " + value
		case limit.Resets != "" || limit.Session != 0:
			value = show.Amount(limit.Name, limit.Capacity) + "/" + value
		case limit.Capacity != limit.RefillAmount:
			value += ", burst " + show.Amount(limit.Name, limit.Capacity)
		}
		all = append(all, setting{limit.Name, value})
	}
	return append(all, besideLimits(c)...)
}

// besideLimits returns what a level says beside its limits.
func besideLimits(c *zlimit.Config) []setting {
	var all []setting
	if c.OnUnavailable != zlimit.PolicyInherit {
		all = append(all, setting{"on_unavailable", c.OnUnavailable.String()})
	}
	if c.Within != "" {
		all = append(all, setting{"within", c.Within})
	}
	if c.Cascade != zlimit.CascadeInherit {
		all = append(all, setting{"cascade", string(c.Cascade)})
	}
	if c.AuditRetention != 0 {
		all = append(all, setting{"audit_retention_days", strconv.FormatInt(int64(c.AuditRetention/(24*time.Hour)), 10)})
	}
	return all
}

func summary(changes []provision.Change) string {
	var parts []string
	for _, kind := range []struct {
		action provision.Action
		done   string
	}{{provision.Create, "new"}, {provision.Update, "changed"}, {provision.Adopt, "taken over"}, {provision.Delete, "deleted"}, {provision.Forget, "forgotten"}} {
		n := 0
		for _, c := range changes {
			if c.Action == kind.action {
				n++
			}
		}
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, kind.done))
		}
	}
	return strings.Join(parts, ", ")
}

func printUnmanaged(p *show.Page, levels []zlimit.Level) {
	if len(levels) == 0 {
		return
	}
	p.Linef("not managed, and left alone: %s", levelNames(levels))
}

// levelNames returns the names of the first levels, and the number of the others.
func levelNames(levels []zlimit.Level) string {
	var names []string
	for _, l := range levels[:min(len(levels), maxNamed)] {
		names = append(names, l.String())
	}
	if more := len(levels) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, "; ")
}

func printDiff(p *show.Page, file string, plan *provision.Plan) {
	if plan.Empty() {
		p.Linef("namespace %s: as %s declares", plan.Namespace, file)
	} else {
		p.Linef("--- %s", file)
		p.Linef("+++ namespace %s", plan.Namespace)
	}
	for i := range plan.Changes {
		c := &plan.Changes[i]
		p.Linef("@@ %v @@%s", c.After.Level, drifted(c))
		for _, s := range bothOf(c) { // declared is what it is to be after the change
			if s.before == s.after {
				p.Linef(" %s: %s", s.name, s.before)
				continue
			}
			if s.after != "" {
				p.Linef("-%s: %s", s.name, s.after)
			}
			if s.before != "" {
				p.Linef("+%s: %s", s.name, s.before)
			}
		}
	}
	printUnmanaged(p, plan.Unmanaged)
}
