package page

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/zlimit/zlimit-go/internal/successor"
	"github.com/zlimit/zlimit-go/zlimit"
)

const mostLimits = 16

// An editBody is a level in a form.
type editBody struct {
	Level       zlimit.Level
	Name, For   string
	Text        string // a limit a line
	Before      string // the stored config, which must still be stored when the form is saved
	Notes       []string
	Error, Done string
	History     []listItem
	Exists      bool
}

func levelOf(values url.Values) zlimit.Level {
	return zlimit.Level{Entity: values.Get("entity"), Resource: values.Get("resource")}
}

func (p *page) edited(ctx context.Context, at zlimit.Level) (editBody, zlimit.Config, error) {
	body := editBody{Level: at, Name: cmp.Or(named(at.Entity), "every entity"), For: cmp.Or(named(at.Resource), "every resource")}
	config, err := p.Limiter.Limits.Get(ctx, at)
	if err != nil {
		return body, config, err
	}
	body.Exists = !config.IsZero()
	lines := make([]string, len(config.Limits))
	for i := range config.Limits {
		lines[i] = config.Limits[i].String()
	}
	body.Text = strings.Join(lines, "\n")
	before, err := json.Marshal(config)
	body.Before = string(before)
	if config.Within != "" {
		body.Notes = append(body.Notes, "It lies within "+named(config.Within)+".")
	}
	if config.OnUnavailable != zlimit.PolicyInherit {
		body.Notes = append(body.Notes, "When the store does not answer: "+config.OnUnavailable.String()+".")
	}
	if config.Cascade != zlimit.CascadeInherit {
		body.Notes = append(body.Notes, "Parents are charged: "+string(config.Cascade)+".")
	}
	return body, config, err
}

func (p *page) editLimits(ctx context.Context, r *http.Request, _ User) (view, error) {
	at := levelOf(r.URL.Query())
	body, config, err := p.edited(ctx, at)
	v := view{Body: &body, Path: p.limitsPath()}
	if err != nil {
		return v, err
	}
	body.Done = p.done(r)
	subject := at.Entity
	switch {
	case at.Entity == "" && at.Resource == "":
		subject = zlimit.AuditSystem
	case at.Entity == "":
		subject = zlimit.AuditResource(at.Resource)
	}
	events, err := first(0, p.Limiter.Audit.Events(ctx, subject, zlimit.AuditQuery{Limit: 6, Reverse: true, Resource: at.Resource}))
	body.History = p.items(events, func(c *change) { c.Subject, c.Where = "", "" })
	editHead(&v, &body, config)
	return v, err
}

func (p *page) limitsPath() []crumb {
	return []crumb{{p.Namespace, "/"}, {"limits", "/limits"}, {"level", ""}}
}

func editHead(v *view, body *editBody, config zlimit.Config) {
	switch n := len(config.Limits); {
	case !body.Exists:
		v.Head.say("", "%s for %s has no level of its own", body.Name, body.For)
		v.Lead = lead("What is stored here comes before the levels around it. Saving makes the level.")
	case n == 0:
		v.Head.say("", "%s for %s: a level without limits", body.Name, body.For)
	default:
		v.Head.say("", "%s for %s: ", body.Name, body.For)
		parts := make([]string, 0, n)
		for i := range config.Limits[:min(n, 3)] {
			parts = append(parts, config.Limits[i].Name+" "+limitText(&config.Limits[i]))
		}
		if n > 3 {
			parts = append(parts, fmt.Sprintf("%d more", n-3))
		}
		v.Head.say("", "%s", listed(parts))
	}
}

// parseLimits reads a limit a line. The error names the line.
func parseLimits(text string) ([]zlimit.Limit, error) {
	var all []zlimit.Limit
	seen := map[string]bool{}
	for i, line := range strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n") {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		var l zlimit.Limit
		if err := l.UnmarshalText([]byte(line)); err != nil {
			var invalid *zlimit.ValidationError
			if errors.As(err, &invalid) {
				return nil, fmt.Errorf("line %d: %s %s", i+1, line, invalid.Reason)
			}
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		if seen[l.Name] {
			return nil, fmt.Errorf("line %d: %s occurs twice", i+1, l.Name)
		}
		seen[l.Name] = true
		all = append(all, l)
	}
	if len(all) > mostLimits {
		return nil, fmt.Errorf("there are %d limits, and a level has at most %d", len(all), mostLimits)
	}
	return all, nil
}

// again shows the form with what was typed, and why it was not accepted.
func (p *page) again(ctx context.Context, at zlimit.Level, text string, why error) (view, error) {
	body, config, err := p.edited(ctx, at)
	v := view{Screen: "limits/edit", Body: &body, Path: p.limitsPath(), Status: http.StatusBadRequest}
	body.Error = "Nothing was saved. " + why.Error()
	if errors.Is(why, errStale) {
		v.Status = http.StatusConflict
		body.Error = "Nothing was saved: the limits were changed meanwhile. Below are your lines; what is stored now is " + cmp.Or(strings.ReplaceAll(body.Text, "\n", "  "), "nothing") + ". Preview again to go on from there."
	}
	body.Text = text
	editHead(&v, &body, config)
	return v, err
}

func (p *page) saveLimits(ctx context.Context, r *http.Request, _ User) (view, error) {
	at, text := levelOf(r.PostForm), r.PostForm.Get("limits")
	next, err := parseLimits(text)
	if err != nil {
		return p.again(ctx, at, text, err)
	}
	if err := successor.CheckLimits(ctx, p.Limiter, at.Entity); errors.As(err, new(*zlimit.ValidationError)) {
		return p.again(ctx, at, text, err)
	} else if err != nil {
		return view{}, err
	}
	err = p.Limiter.Limits.Update(ctx, at, func(c *zlimit.Config) error {
		now, err := json.Marshal(c)
		if err == nil && string(now) != r.PostForm.Get("before") {
			err = errStale
		}
		c.Limits = next
		return err
	})
	var invalid *zlimit.ValidationError
	switch {
	case errors.Is(err, errStale) || errors.As(err, &invalid):
		return p.again(ctx, at, text, err)
	case err != nil:
		return view{}, err
	}
	p.feed.forget()
	return view{Leads: address("/limits/edit", "entity", at.Entity, "resource", at.Resource, "done", "limits")}, nil
}
