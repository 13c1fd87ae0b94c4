package page

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/rotation"
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
	do := form.Get("do")
	var err error
	switch do { // an entity with a new ID is refused what has no effect, or gives both IDs the budget
	case "bypass", "enable":
		err = rotation.CheckServe(ctx, p.Limiter, at.Entity)
	case "reset", "topup":
		err = rotation.CheckBucket(ctx, p.Limiter, at.Entity)
	}
	if err == nil {
		err = p.change(ctx, at, form, do)
	}
	if err != nil {
		return view{}, err
	}
	p.feed.forget()
	return view{Leads: address("/entity", "id", at.Entity, "resource", at.Resource, "done", do)}, nil
}

// change does what a form asks for.
func (p *page) change(ctx context.Context, at zlimit.Level, form url.Values, do string) (err error) {
	l := p.Limiter.Limits
	switch do {
	case "disable":
		_, err = l.Disable(ctx, at, nil)
	case "bypass":
		_, err = l.Bypass(ctx, at, nil)
	case "enable":
		_, err = l.LeaveSwitch(ctx, at, nil)
	case "reset":
		_, err = l.Reset(ctx, zlimit.ResetRequest{Entity: at.Entity, Resource: at.Resource, OperationID: form.Get("operation")})
	case "topup":
		request := zlimit.TopUpRequest{Entity: at.Entity, Resource: at.Resource, OperationID: form.Get("operation")}
		if request.Amounts, err = p.tokens(ctx, at, form); err != nil {
			return err
		}
		if hours := form.Get("hours"); hours != "" && hours != "0" {
			d, err := time.ParseDuration(hours + "h")
			if err != nil || d <= 0 || d > 31*24*time.Hour {
				return &statusError{http.StatusBadRequest, fmt.Sprintf("hours must be a number up to 744, and not %.20q", hours)}
			}
			request.Until = p.Now().Add(d)
		}
		_, err = l.TopUp(ctx, request)
	default:
		err = &statusError{http.StatusBadRequest, fmt.Sprintf("do must be disable, bypass, enable, reset or topup, and not %.20q", do)}
	}
	return err
}

// tokens reads an amount of a limit as the grammar of limits has it: 10k, or dollars where the limit is in money.
func (p *page) tokens(ctx context.Context, at zlimit.Level, form url.Values) (zlimit.Amounts, error) {
	name, text := form.Get("limit"), strings.TrimSpace(strings.ReplaceAll(form.Get("amount"), ",", ""))
	resolved, err := p.Limiter.Limits.Resolve(ctx, at.Entity, at.Resource)
	if err != nil {
		return nil, err
	}
	if limitNamed(resolved.Limits, name) == nil {
		return nil, &statusError{http.StatusBadRequest, fmt.Sprintf("limit must be one of the entity, and not %.40q", name)}
	}
	var read zlimit.Limit
	if err := read.UnmarshalText([]byte(name + "=" + text + "/min")); err != nil || read.Capacity <= 0 {
		return nil, &statusError{http.StatusBadRequest, fmt.Sprintf("amount must be a positive number such as 10k, or dollars for a limit in money, and not %.40q", text)}
	}
	return zlimit.Amounts{name: read.Capacity}, nil
}
