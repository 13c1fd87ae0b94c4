package page

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

// together adds the refusals that other processes reported to the refusals of this process, which may be among the reported ones.
func together(own []refusedBy, reported *zlimit.Rejections) []refusedBy {
	of := map[refusal]refusedBy{}
	for _, r := range own {
		of[r.refusal] = r
	}
	for _, r := range reported.Heaviest {
		key := refusal{r.Entity, r.Resource, r.LimitEntity, r.Limit}
		if have := of[key]; r.Count > have.N {
			have.refusal, have.N = key, r.Count
			of[key] = have
		}
	}
	return slices.SortedFunc(maps.Values(of), func(a, b refusedBy) int {
		return cmp.Or(cmp.Compare(b.N, a.N), cmp.Compare(a.entity, b.entity), cmp.Compare(a.limit, b.limit))
	})
}

func (p *page) nowHead(v *view, body *nowBody, all []standing, refusals []refusedBy, pulse *pulse) {
	counts := map[rank]int64{}
	for i := range all {
		counts[all[i].rank]++
	}
	refusing := map[string]bool{}
	for _, of := range refusals {
		refusing[of.entity] = true
	}
	v.Head.say("", "%s: ", body.Resource)
	if len(all) == 0 && len(refusals) == 0 {
		v.Head.say("", "no one has used it, or not for long")
		v.Lead = lead("No entity has a bucket here.")
		return
	}
	bad, usedUp, disabled := int64(len(refusing)), counts[rankUsedUp], counts[rankDisabled]
	if bad > 0 {
		v.Head.say("no", "%s refused", plural(bad, "entity is"))
	} else {
		v.Head.say("", "no one is refused")
	}
	if usedUp > 0 {
		v.Head.say("", ", ")
		v.Head.say("low", "%s used up", plural(usedUp, "budget is"))
	}
	if disabled > 0 {
		v.Head.say("", ", ")
		v.Head.say("low", "%d disabled", disabled)
	}
	if n := int64(pulse.Waits.N); n > 0 {
		v.Head.say("", ", %s", plural(n, "call waits"))
	}
	switch n := counts[rankLow] + counts[rankOwes]; {
	case bad == 0 && n == 1:
		v.Head.say("", ", 1 runs low")
	case bad == 0 && n > 1:
		v.Head.say("", ", %d run low", n)
	case bad+usedUp+disabled > 0:
		v.Head.say("", ", the rest has room")
	default:
		v.Head.say("", ", every entity has room")
	}
	entities := plural(len(all), "entity has") + " a bucket here."
	if len(refusals) == 0 {
		v.Lead = lead("%s Nothing was refused in the last minute.", entities)
		return
	}
	causes, total := causesOf(refusals)
	worst := &causes[0]
	share := "Most refusals come from one limit:"
	switch {
	case len(causes) == 1:
		share = "All refusals come from one limit:"
	case worst.N*10 > total*9:
		share = "Nearly all refusals come from one limit:"
	case worst.N*2 <= total:
		share = "It is not one limit alone. The heaviest is"
	}
	v.Lead = lead("%s %s <b>%s of %s</b>%s.", entities, share, worst.limit, named(worst.limitEntity), p.until(statusOf(all, worst.limitEntity, worst.limit), worst))
}

// causesOf adds up refusals by the limit that refuses, the heaviest first, and all of them.
func causesOf(refusals []refusedBy) (causes []refusedBy, total int64) {
	by := map[[2]string]refusedBy{}
	for _, of := range refusals {
		key := [2]string{of.limitEntity, of.limit}
		sum, ok := by[key]
		if !ok {
			sum, sum.N = of, 0
		}
		sum.N += of.N
		total += of.N
		by[key] = sum
	}
	return slices.SortedFunc(maps.Values(by), func(a, b refusedBy) int {
		return cmp.Or(cmp.Compare(b.N, a.N), cmp.Compare(a.limitEntity, b.limitEntity), cmp.Compare(a.limit, b.limit))
	}), total
}

// status returns where the limit of a refusal stands.
func statusOf(all []standing, entity, limit string) *zlimit.Status {
	for i := range all {
		if st, ok := all[i].Statuses.Limit(limit); ok && all[i].Entity == entity {
			return &st
		}
	}
	return nil
}

// until says when a limit that refuses has room, beginning with a comma.
func (p *page) until(st *zlimit.Status, of *refusedBy) string {
	if at, ok := p.better(st, of); ok {
		return ", until about " + moment(at, p.Now(), time.UTC)
	}
	if of.RetryAfter == zlimit.Never {
		return ", which a request of " + amount(of.limit, float64(of.Requested)) + " can never fit"
	}
	return ", which comes back within seconds"
}

// better returns when a limit that refuses has room for what was asked.
func (p *page) better(st *zlimit.Status, of *refusedBy) (time.Time, bool) {
	now := p.Now()
	if st == nil {
		return time.Time{}, false
	}
	if isBudget(&st.Limit) && !st.ResetsAt.IsZero() && st.Available < max(of.Requested, 1) {
		return st.ResetsAt, true
	}
	if at := of.Last.Add(of.RetryAfter); !of.Last.IsZero() && of.RetryAfter > 5*time.Second && of.RetryAfter != zlimit.Never && at.After(now) {
		return at, true
	}
	if st.Queue > 2*time.Second {
		return now.Add(st.Queue), true
	}
	return time.Time{}, false
}

// refusing are the limits that refuse, the heaviest first.
func (p *page) refusing(all []standing, refusals []refusedBy) []listItem {
	causes, _ := causesOf(refusals)
	var items []listItem
	for _, of := range causes[:min(len(causes), 6)] {
		st := statusOf(all, of.limitEntity, of.limit)
		name := of.limit
		note := "its bucket is not listed"
		if st != nil {
			name = limitName(&st.Limit)
			note = p.reason(st, &of)
		}
		items = append(items, listItem{
			Text: name + " of " + named(of.limitEntity), Value: grouped(of.N), Class: "red", Note: note,
			URL: entityURL(of.limitEntity, of.resource),
		})
	}
	return items
}

// reason says why a limit refuses, and when it has room.
func (p *page) reason(st *zlimit.Status, of *refusedBy) string {
	now := p.Now()
	at, ok := p.better(st, of)
	name, unit := st.Limit.Name, ""
	if !isMoney(name) {
		unit = " tokens"
	}
	left, asked := amount(name, float64(max(st.Available, -st.Available)))+unit, amount(name, float64(max(of.Requested, 1)))
	switch {
	case st.Limit.Term > 0:
		return fmt.Sprintf("%d of %d slots are held", st.Held(), st.Limit.Capacity)
	case isBudget(&st.Limit) && st.Available <= 0 && ok:
		return "used up; resets " + moment(at, now, zoneOf(&st.Limit)) + " " + st.Limit.Zone
	case isBudget(&st.Limit) && st.Available <= 0:
		return "used up, until it is topped up"
	case st.Available < 0 && ok:
		return fmt.Sprintf("owes %s; room for %s at %s", left, asked, moment(at, now, time.UTC))
	case ok:
		return fmt.Sprintf("has %s; room for %s at %s", left, asked, moment(at, now, time.UTC))
	case of.RetryAfter == zlimit.Never && isPrepaid(&st.Limit):
		return fmt.Sprintf("has %s, and needs a top-up for a request of %s", left, asked)
	case of.RetryAfter == zlimit.Never:
		return fmt.Sprintf("a request of %s can never fit", asked)
	default:
		return "comes back within seconds, again and again"
	}
}

func zoneOf(l *zlimit.Limit) *time.Location {
	if zone, err := time.LoadLocation(l.Zone); err == nil && l.Zone != "" {
		return zone
	}
	return time.UTC
}
