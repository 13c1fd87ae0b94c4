package dashboard

import (
	"cmp"
	"encoding/json"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/hindsight"
)

// A change is an audit event as a sentence: subject, what happened to it, and by whom.
type change struct {
	Time                                time.Time
	Subject, What, Who, Where, For, URL string
}

// changesOf are events as sentences.
func changesOf(events iter.Seq2[zlimit.AuditEvent, error]) (all []change, err error) {
	for e, err := range events {
		if err != nil {
			return nil, err
		}
		all = append(all, changeOf(&e))
	}
	return all, nil
}

// changeOf writes what an event says. Details of other programs may have any form, so nothing is taken for granted.
func changeOf(e *zlimit.AuditEvent) change {
	c := change{Time: e.Time, For: "–", Subject: named(e.Entity), Who: cmp.Or(e.Principal, "no one known"), URL: entityURL(e.Entity, e.Resource)}
	if e.Resource != "" && e.Resource != zlimit.DefaultResource {
		c.For = named(e.Resource)
	}
	switch at := hindsight.LevelOf(e); {
	case at.Entity == "" && at.Resource == "":
		c.Subject, c.URL = "the system", editURL(at)
	case at.Entity == "":
		c.Subject, c.URL = "resource "+named(at.Resource), editURL(at)
	case c.For != "–":
		c.Where = ", for " + c.For
	}
	before, _ := e.Details["before"].(map[string]any)
	parent, hasParent := e.Details["parent_id"].(string)
	switch e.Action {
	case zlimit.ActionEntityCreated:
		c.What = "created"
		if hasParent {
			c.What += " in " + named(parent)
		}
	case zlimit.ActionEntityDeleted:
		c.What = "deleted"
	case zlimit.ActionEntityUpdated:
		c.What = "updated"
	case zlimit.ActionEntityMoved:
		if c.What = "has no parent now"; hasParent {
			c.What = "moved to " + named(parent)
		}
	case zlimit.ActionLimitsSet:
		c.What = configChange(before, e.Details)
	case zlimit.ActionLimitsDeleted: // its details are what was there
		if c.What = "deleted"; len(e.Details) > 0 {
			c.What = configChange(e.Details, map[string]any{})
		}
	case zlimit.ActionBucketReset, zlimit.ActionBucketToppedUp:
		if c.What = "reset"; e.Action == zlimit.ActionBucketToppedUp {
			c.What = "topped up"
		}
		after, _ := e.Details["after"].(map[string]any)
		if parts := hindsight.Differences(before, after, figureDifference); len(parts) > 0 {
			c.What += ": " + strings.Join(parts, ", ")
		}
	default:
		c.What = strings.ReplaceAll(string(e.Action), "_", " ")
	}
	return c
}

// figure is a number of an event.
func figure(v any) (float64, bool) {
	switch n := v.(type) {
	case int64:
		return float64(n), true
	case json.Number:
		f, err := n.Float64()
		return f, err == nil
	default:
		return 0, false
	}
}

func figureDifference(name string, was, is any) string {
	b, had := figure(was)
	a, has := figure(is)
	if !had || !has || a == b {
		return ""
	}
	return fmt.Sprintf("%s %s → %s", name, amount(name, b), amount(name, a))
}

// configChange says how a level differs from before, with all that its details have, as the command audit does.
func configChange(before, after map[string]any) string {
	var parts []string
	if was, is := before["disabled"], after["disabled"]; was != is {
		switch is {
		case true:
			parts = append(parts, "disabled")
		case string(zlimit.SwitchBypassed):
			parts = append(parts, "bypassed")
		case nil:
			parts = append(parts, "has no switch of its own now, which is left to wider levels")
		default:
			parts = append(parts, "enabled")
		}
	}
	had, known := hindsight.Settings(before)
	has, ok := hindsight.Settings(after)
	if !known || !ok {
		text, _ := json.Marshal(after)
		return fmt.Sprintf("set to %.200s", text)
	}
	delete(had, "disabled")
	delete(has, "disabled")
	parts = append(parts, hindsight.Differences(had, has, settingDifference)...)
	if len(parts) == 0 {
		return "nothing changed"
	}
	if len(parts) > 3 {
		parts = append(parts[:2], fmt.Sprintf("and %d more", len(parts)-2))
	}
	return strings.Join(parts, ", ")
}

func settingDifference(name string, was, is any) string {
	before, had := was.(zlimit.Limit)
	after, has := is.(zlimit.Limit)
	title := strings.ReplaceAll(name, "_", " ")
	switch {
	case was == is:
		return ""
	case had && has:
		return name + " " + limitChange(&before, &after)
	case has:
		return name + " = " + limitText(&after)
	case had:
		return name + " removed"
	case name == "within" && was == nil:
		return fmt.Sprintf("lies within %s now", named(fmt.Sprint(is)))
	case name == "within" && is == nil:
		return fmt.Sprintf("lies no longer within %s", named(fmt.Sprint(was)))
	case was == nil:
		return fmt.Sprintf("%s = %v", title, is)
	case is == nil:
		return fmt.Sprintf("%s %v removed", title, was)
	}
	return fmt.Sprintf("%s %v → %v", title, was, is)
}
