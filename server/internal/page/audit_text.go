package page

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
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

// changeOf writes what an event says. Details of other programs may have any form, so nothing is taken for granted.
func changeOf(e *zlimit.AuditEvent) change {
	c := change{Time: e.Time, For: "–", Subject: named(e.Entity), Who: cmp.Or(e.Principal, "no one known"), URL: entityURL(e.Entity, e.Resource)}
	if e.Resource != "" && e.Resource != zlimit.DefaultResource {
		c.For = named(e.Resource)
	}
	resource, isResource := strings.CutPrefix(e.Entity, zlimit.AuditResource(""))
	switch {
	case isResource:
		c.Subject, c.URL = "resource "+named(resource), "/limits/edit?resource="+url.QueryEscape(resource)
	case e.Entity == zlimit.AuditSystem:
		c.Subject, c.URL = "the system", "/limits/edit"
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
	if !isKnown(before) || !isKnown(after) {
		text, _ := json.Marshal(after)
		return fmt.Sprintf("set to %.200s", text)
	}
	parts = append(parts, hindsight.Differences(hindsight.Limits(before), hindsight.Limits(after), limitDifference)...)
	parts = append(parts, hindsight.Differences(settingsOf(before), settingsOf(after), settingDifference)...)
	if len(parts) == 0 {
		return "nothing changed"
	}
	if len(parts) > 3 {
		parts = append(parts[:2], fmt.Sprintf("and %d more", len(parts)-2))
	}
	return strings.Join(parts, ", ")
}

// isKnown reports whether limits in details have the form of this package.
func isKnown(details map[string]any) bool {
	list, ok := details["limits"].([]any)
	return details["limits"] == nil || ok && len(list) == len(hindsight.Limits(details))
}

func limitDifference(name string, was, is *zlimit.Limit) string {
	switch {
	case was == nil:
		return name + " = " + limitText(is)
	case is == nil:
		return name + " removed"
	case *was != *is:
		return name + " " + limitChange(was, is)
	}
	return ""
}

func settingDifference(name, was, is string) string {
	title := strings.ReplaceAll(name, "_", " ")
	switch {
	case was == is:
		return ""
	case name == "within" && was == "":
		return "lies within " + named(is) + " now"
	case name == "within" && is == "":
		return "lies no longer within " + named(was)
	case was == "":
		return title + " = " + is
	case is == "":
		return title + " " + was + " removed"
	}
	return title + " " + was + " → " + is
}

// settingsOf reads what a level says beside limits and its switch, by name.
func settingsOf(details map[string]any) map[string]string {
	all := map[string]string{}
	for name, v := range details {
		if name == "before" || name == "limits" || name == "disabled" || name == "config_version" {
			continue
		}
		switch v := v.(type) {
		case string:
			all[name] = v
		case bool, int64, json.Number:
			all[name] = fmt.Sprint(v)
		default:
		}
	}
	return all
}
