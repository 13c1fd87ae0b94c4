package page

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/internal/successor"
	"github.com/zlimit/zlimit-go/zlimit"
)

// changeEntity is a dangerous change of an entity, whose name the form must repeat.
func (p *page) changeEntity(ctx context.Context, r *http.Request, _ User) (view, error) {
	form := r.PostForm
	at := levelOf(form)
	at.Entity = form.Get("id")
	if at.Entity == "" || at.Resource == "" {
		return view{}, &statusError{http.StatusBadRequest, "id and resource must be set"}
	}
	if form.Get("confirm") != at.Entity {
		return view{}, &statusError{http.StatusBadRequest, fmt.Sprintf("Nothing was changed: type %s to confirm", named(at.Entity))}
	}
	if err := p.change(ctx, at, form); err != nil {
		return view{}, err
	}
	p.feed.forget()
	return view{Leads: address("/entity", "id", at.Entity, "resource", at.Resource, "done", form.Get("do"))}, nil
}

// change does what a form asks for.
func (p *page) change(ctx context.Context, at zlimit.Level, form url.Values) (err error) {
	l := p.Limiter.Limits
	if err := p.counts(ctx, at.Entity, form.Get("do")); err != nil {
		return err
	}
	switch do := form.Get("do"); do {
	case "disable":
		_, err = l.Disable(ctx, at, nil)
	case "bypass":
		_, err = l.Bypass(ctx, at, nil)
	case "enable":
		_, err = l.LeaveSwitch(ctx, at, nil)
	case "reset":
		_, err = l.Reset(ctx, zlimit.ResetRequest{Entity: at.Entity, Resource: at.Resource, OperationID: form.Get("operation")})
	case "topup":
		err = p.topUp(ctx, at, form)
	default:
		err = &statusError{http.StatusBadRequest, fmt.Sprintf("do must be disable, bypass, enable, reset or topup, and not %.20q", do)}
	}
	return err
}

// counts returns an error if a change of an entity with a new ID has no effect, or gives both IDs the budget.
func (p *page) counts(ctx context.Context, entity, do string) error {
	switch do {
	case "bypass", "enable":
		return successor.CheckServe(ctx, p.Limiter, entity)
	case "reset", "topup":
		return successor.CheckBucket(ctx, p.Limiter, entity)
	default:
		return nil
	}
}

func (p *page) topUp(ctx context.Context, at zlimit.Level, form url.Values) error {
	tokens, err := p.tokens(ctx, at, form)
	if err != nil {
		return err
	}
	request := zlimit.TopUpRequest{Entity: at.Entity, Resource: at.Resource, Amounts: zlimit.Amounts{form.Get("limit"): tokens}, OperationID: form.Get("operation")}
	if hours := form.Get("hours"); hours != "" && hours != "0" {
		d, err := time.ParseDuration(hours + "h")
		if err != nil || d <= 0 || d > 31*24*time.Hour {
			return &statusError{http.StatusBadRequest, fmt.Sprintf("hours must be a number up to 744, and not %.20q", hours)}
		}
		request.Until = p.Now().Add(d)
	}
	_, err = p.Limiter.Limits.TopUp(ctx, request)
	return err
}

// tokens reads an amount of a limit as the grammar of limits has it: 10k, or dollars where the limit is in money.
func (p *page) tokens(ctx context.Context, at zlimit.Level, form url.Values) (int64, error) {
	name, text := form.Get("limit"), strings.TrimSpace(strings.ReplaceAll(form.Get("amount"), ",", ""))
	resolved, err := p.Limiter.Limits.Resolve(ctx, at.Entity, at.Resource)
	if err != nil {
		return 0, err
	}
	if limitNamed(resolved.Limits, name) == nil {
		return 0, &statusError{http.StatusBadRequest, fmt.Sprintf("limit must be one of the entity, and not %.40q", name)}
	}
	var read zlimit.Limit
	if err := read.UnmarshalText([]byte(name + "=" + text + "/min")); err != nil || read.Capacity <= 0 {
		return 0, &statusError{http.StatusBadRequest, fmt.Sprintf("amount must be a positive number such as 10k, or dollars for a limit in money, and not %.40q", text)}
	}
	return read.Capacity, nil
}

// doneTexts say what a change did.
var doneTexts = map[string]string{
	"disable": "Disabled. Requests are rejected from now on, in every process.",
	"bypass":  "Bypassed. Requests are counted, and not limited, from now on.",
	"enable":  "The switch of this level is gone. Limits hold again, unless another level says otherwise.",
	"reset":   "Reset. Its limits are full.",
	"topup":   "Topped up.",
	"limits":  "Saved. This process uses the new limits immediately, and others within {ttl}.",
}

// done says what the change did that led to a screen.
func (p *page) done(r *http.Request) string {
	return strings.ReplaceAll(doneTexts[r.URL.Query().Get("done")], "{ttl}", span(p.ConfigTTL))
}

// errStale reports that a form was filled in from limits that are no longer stored.
var errStale = errors.New("the limits were changed meanwhile")
