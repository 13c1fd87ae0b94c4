package dashboard

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

// A formError says what is wrong with the limits of a form.
type formError string

func (e formError) Error() string { return string(e) }

// errStale reports that a form was filled in from limits that are no longer stored.
const errStale = formError("the limits were changed meanwhile")

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
	before, err := json.Marshal(body.Config)
	body.Text, body.Before = strings.Join(lines, "\n"), string(before)
	return body, err
}

func (p *page) editLimits(ctx context.Context, q url.Values) (view, error) {
	at := levelOf(q)
	body, err := p.edited(ctx, at)
	v := view{Body: &body}
	if err != nil {
		return v, err
	}
	body.Done = q.Get("done")
	subject := at.Entity
	switch at.Source() {
	case zlimit.SourceSystem:
		subject = zlimit.AuditSystem
	case zlimit.SourceResource:
		subject = zlimit.AuditResource(at.Resource)
	default:
	}
	body.History, err = changesOf(p.Limiter.Audit.Events(ctx, subject, zlimit.AuditQuery{Limit: 6, Reverse: true, Resource: at.Resource}))
	return v, err
}

// parseLimits reads a limit a line. The error names the line.
func parseLimits(text string) (all []zlimit.Limit, err error) {
	for i, line := range strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n") {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		wrong := func(format string, args ...any) ([]zlimit.Limit, error) {
			return nil, formError(fmt.Sprintf("line %d: ", i+1) + fmt.Sprintf(format, args...))
		}
		var l zlimit.Limit
		if err := l.UnmarshalText([]byte(line)); err != nil {
			if invalid, ok := errors.AsType[*zlimit.ValidationError](err); ok {
				return wrong("%s %s", line, invalid.Reason)
			}
			return wrong("%v", err)
		}
		if limitNamed(all, l.Name) != nil {
			return wrong("%s occurs twice", l.Name)
		}
		all = append(all, l)
	}
	if len(all) > mostLimits {
		return nil, formError(fmt.Sprintf("there are %d limits, and a level has at most %d", len(all), mostLimits))
	}
	return all, nil
}

// again shows the form with what was typed, and why it was not accepted. An error that no other form mends is returned.
func (p *page) again(ctx context.Context, q url.Values, why error) (view, error) {
	if !errors.As(why, new(formError)) && !errors.As(why, new(*zlimit.ValidationError)) {
		return view{}, why
	}
	body, err := p.edited(ctx, levelOf(q))
	v := view{Screen: "limits/edit", Body: &body, Status: http.StatusBadRequest}
	body.Error = "Nothing was saved. " + why.Error()
	if errors.Is(why, errStale) {
		v.Status = http.StatusConflict
		body.Error = "Nothing was saved: the limits were changed meanwhile. Below are your lines; what is stored now is " + cmp.Or(strings.ReplaceAll(body.Text, "\n", "  "), "nothing") + ". Preview again to go on from there."
	}
	body.Text = q.Get("limits")
	return v, err
}

func (p *page) saveLimits(ctx context.Context, q url.Values) (view, error) {
	at := levelOf(q)
	next, err := parseLimits(q.Get("limits"))
	if err == nil {
		err = rotation.CheckLimits(ctx, p.Limiter, at.Entity)
	}
	if err == nil {
		err = p.Limiter.Limits.Update(ctx, at, func(c *zlimit.Config) error {
			now, err := json.Marshal(c)
			if err == nil && string(now) != q.Get("before") {
				err = errStale
			}
			c.Limits = next
			return err
		})
	}
	if err != nil {
		return p.again(ctx, q, err)
	}
	p.feed.forget()
	return view{Leads: address("/limits/edit", "entity", at.Entity, "resource", at.Resource, "done", "limits")}, nil
}
