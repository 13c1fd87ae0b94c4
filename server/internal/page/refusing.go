package page

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
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
	counts := map[int]int64{}
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
	bad := int64(len(refusing))
	rest := "every entity has room"
	if bad > 0 {
		v.Head.say("no", "%s refused", isAre(bad, "entity"))
		rest = "the rest has room"
	} else {
		v.Head.say("", "no one is refused")
	}
	if n := counts[rankUsedUp]; n > 0 {
		v.Head.say("", ", ")
		v.Head.say("low", "%s used up", isAre(n, "budget"))
		rest = "the rest has room"
	}
	if n := counts[rankDisabled]; n > 0 {
		v.Head.say("", ", ")
		v.Head.say("low", "%d disabled", n)
		rest = "the rest has room"
	}
	if n := int64(pulse.Waits.N); n > 0 {
		v.Head.say("", ", %s", waitWords(n))
	}
	if n := counts[rankLow] + counts[rankOwes]; n > 0 && bad == 0 {
		v.Head.say("", ", %s low", runs(n))
	} else {
		v.Head.say("", ", %s", rest)
	}
	entities := plural(int64(len(all)), "entity") + " have a bucket here."
	if len(all) == 1 {
		entities = "1 entity has a bucket here."
	}
	if len(refusals) == 0 {
		v.Lead = lead("%s Nothing was refused in the last minute.", entities)
		return
	}
	type cause struct{ entity, limit string }
	causes := map[cause]int64{}
	total := int64(0)
	for _, of := range refusals {
		causes[cause{of.limitEntity, of.limit}] += of.N
		total += of.N
	}
	worst := slices.MaxFunc(slices.SortedFunc(maps.Keys(causes), func(a, b cause) int { return strings.Compare(a.entity+a.limit, b.entity+b.limit) }), func(a, b cause) int { return cmp.Compare(causes[a], causes[b]) })
	for _, of := range refusals {
		if of.limitEntity == worst.entity && of.limit == worst.limit {
			share := "Most refusals come from one limit:"
			switch {
			case len(causes) == 1:
				share = "All refusals come from one limit:"
			case causes[worst]*10 > total*9:
				share = "Nearly all refusals come from one limit:"
			case causes[worst]*2 <= total:
				share = "It is not one limit alone. The heaviest is"
			}
			v.Lead = lead("%s %s <b>%s of %s</b>%s.", entities, share, of.limit, named(of.limitEntity), p.until(all, &of))
			return
		}
	}
}

func isAre(n int64, word string) string {
	if n == 1 {
		return "1 " + word + " is"
	}
	return plural(n, word) + " are"
}

func waitWords(n int64) string {
	if n == 1 {
		return "1 call waits"
	}
	return plural(n, "call") + " wait"
}

func runs(n int64) string {
	if n == 1 {
		return "1 runs"
	}
	return fmt.Sprintf("%d run", n)
}

// status returns where the limit of a refusal stands.
func statusOf(all []standing, entity, limit string) *zlimit.Status {
	for i := range all {
		if all[i].Entity == entity {
			for j := range all[i].Statuses {
				if st := &all[i].Statuses[j]; st.Limit.Name == limit {
					return st
				}
			}
		}
	}
	return nil
}

// until says when a limit that refuses has room, beginning with a comma.
func (p *page) until(all []standing, of *refusedBy) string {
	at, ok := p.better(statusOf(all, of.limitEntity, of.limit), of)
	if !ok {
		return ", which comes back within seconds"
	}
	zone := time.UTC
	return ", until about " + moment(at, p.Now(), zone)
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
	type cause struct{ entity, limit string }
	byLimit := map[cause]refusedBy{}
	for _, of := range refusals {
		key := cause{of.limitEntity, of.limit}
		sum, ok := byLimit[key]
		if !ok {
			sum = of
			sum.N = 0
		}
		sum.N += of.N
		byLimit[key] = sum
	}
	sorted := slices.SortedFunc(maps.Values(byLimit), func(a, b refusedBy) int {
		return cmp.Or(cmp.Compare(b.N, a.N), cmp.Compare(a.limitEntity, b.limitEntity), cmp.Compare(a.limit, b.limit))
	})
	var items []listItem
	for _, of := range sorted[:min(len(sorted), 6)] {
		st := statusOf(all, of.limitEntity, of.limit)
		name := of.limit
		note := "its bucket is not listed"
		if st != nil {
			name = limitName(&st.Limit)
			note = p.why(st, &of)
		}
		items = append(items, listItem{
			Text: name + " of " + named(of.limitEntity), Value: grouped(of.N), Class: "red", Note: note,
			URL: entityURL(of.limitEntity, of.resource),
		})
	}
	return items
}

// why says why a limit refuses, and when it has room.
func (p *page) why(st *zlimit.Status, of *refusedBy) string {
	now := p.Now()
	at, ok := p.better(st, of)
	unit := ""
	if !isMoney(st.Limit.Name) {
		unit = " tokens"
	}
	switch {
	case st.Limit.Term > 0:
		return fmt.Sprintf("%d of %d slots are held", st.Held(), st.Limit.Capacity)
	case isBudget(&st.Limit) && st.Available <= 0 && ok:
		return "used up; resets " + moment(at, now, zoneOf(&st.Limit)) + " " + st.Limit.Zone
	case isBudget(&st.Limit) && st.Available <= 0:
		return "used up, until it is topped up"
	case st.Available < 0 && ok:
		return fmt.Sprintf("owes %s%s; room for %s at %s", amount(st.Limit.Name, float64(-st.Available)), unit, amount(st.Limit.Name, float64(max(of.Requested, 1))), moment(at, now, time.UTC))
	case ok:
		return fmt.Sprintf("has %s%s; room for %s at %s", amount(st.Limit.Name, float64(st.Available)), unit, amount(st.Limit.Name, float64(max(of.Requested, 1))), moment(at, now, time.UTC))
	case of.RetryAfter == zlimit.Never:
		return fmt.Sprintf("a request of %s can never fit", amount(st.Limit.Name, float64(of.Requested)))
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
