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

	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/rotation"
)

const mostLimits = 16

// errStale reports that a form was filled in from limits that are no longer stored.
var errStale = errors.New("the limits were changed meanwhile")

// An editBody is a level in a form.
type editBody struct {
	Level       zlimit.Level
	Config      zlimit.Config
	Text        string // a limit a line
	Before      string // the stored config, which must still be stored when the form is saved
	Error, Done string
	History     []change
}

func levelOf(values url.Values) zlimit.Level {
	return zlimit.Level{Entity: values.Get("entity"), Resource: values.Get("resource")}
}

// Exists reports whether something is stored at the level.
func (b *editBody) Exists() bool { return !b.Config.IsZero() }

func (p *page) edited(ctx context.Context, at zlimit.Level) (body editBody, err error) {
	body.Level = at
	if body.Config, err = p.Limiter.Limits.Get(ctx, at); err != nil {
		return body, err
	}
	lines := make([]string, len(body.Config.Limits))
	for i := range lines {
		lines[i] = body.Config.Limits[i].String()
	}
	body.Text = strings.Join(lines, "\n")
	before, err := json.Marshal(body.Config)
	body.Before = string(before)
	return body, err
}

func (p *page) editLimits(ctx context.Context, r *http.Request, _ User) (view, error) {
	at := levelOf(r.URL.Query())
	body, err := p.edited(ctx, at)
	v := view{Body: &body}
	if err != nil {
		return v, err
	}
	body.Done = r.URL.Query().Get("done")
	subject := at.Entity
	switch {
	case at.Entity == "" && at.Resource == "":
		subject = zlimit.AuditSystem
	case at.Entity == "":
		subject = zlimit.AuditResource(at.Resource)
	}
	events, err := first(0, p.Limiter.Audit.Events(ctx, subject, zlimit.AuditQuery{Limit: 6, Reverse: true, Resource: at.Resource}))
	body.History = changesOf(events)
	return v, err
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
			if invalid, ok := errors.AsType[*zlimit.ValidationError](err); ok {
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
	body, err := p.edited(ctx, at)
	v := view{Screen: "limits/edit", Body: &body, Status: http.StatusBadRequest}
	body.Error = "Nothing was saved. " + why.Error()
	if errors.Is(why, errStale) {
		v.Status = http.StatusConflict
		body.Error = "Nothing was saved: the limits were changed meanwhile. Below are your lines; what is stored now is " + cmp.Or(strings.ReplaceAll(body.Text, "\n", "  "), "nothing") + ". Preview again to go on from there."
	}
	body.Text = text
	return v, err
}

func (p *page) saveLimits(ctx context.Context, r *http.Request, _ User) (view, error) {
	at, text := levelOf(r.PostForm), r.PostForm.Get("limits")
	next, err := parseLimits(text)
	if err != nil {
		return p.again(ctx, at, text, err)
	}
	if err := rotation.CheckLimits(ctx, p.Limiter, at.Entity); errors.As(err, new(*zlimit.ValidationError)) {
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
	switch {
	case errors.Is(err, errStale) || errors.As(err, new(*zlimit.ValidationError)):
		return p.again(ctx, at, text, err)
	case err != nil:
		return view{}, err
	}
	p.feed.forget()
	return view{Leads: address("/limits/edit", "entity", at.Entity, "resource", at.Resource, "done", "limits")}, nil
}
