package dashboard

import (
	"cmp"
	"context"
	"net/url"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/rotation"
)

// changeEntity is a dangerous change of an entity, whose name the form must repeat. An entity with a new ID is refused what has no effect, or gives
// both IDs the budget.
func (p *page) changeEntity(ctx context.Context, q url.Values) (_ view, err error) {
	at, do := zlimit.Level{Entity: q.Get("id"), Resource: q.Get("resource")}, q.Get("do")
	if at.Entity == "" || at.Resource == "" {
		return view{}, bad("id and resource must be set")
	}
	if q.Get("confirm") != at.Entity {
		return view{}, bad("Nothing was changed: type %s to confirm", named(at.Entity))
	}
	l := p.Limiter.Limits
	switch do {
	case "disable":
		_, err = l.Disable(ctx, at, nil)
	case "bypass":
		if err = rotation.CheckServe(ctx, p.Limiter, at.Entity); err == nil {
			_, err = l.Bypass(ctx, at, nil)
		}
	case "enable":
		if err = rotation.CheckServe(ctx, p.Limiter, at.Entity); err == nil {
			_, err = l.LeaveSwitch(ctx, at, nil)
		}
	case "reset":
		if err = rotation.CheckBucket(ctx, p.Limiter, at.Entity); err == nil {
			_, err = l.Reset(ctx, zlimit.ResetRequest{Entity: at.Entity, Resource: at.Resource, OperationID: q.Get("operation")})
		}
	case "topup":
		if err = rotation.CheckBucket(ctx, p.Limiter, at.Entity); err == nil {
			err = p.topUp(ctx, at, q)
		}
	default:
		err = mustBe("do", "disable, bypass, enable, reset or topup", do)
	}
	if err != nil {
		return view{}, err
	}
	p.feed.forget()
	return view{Leads: address("/entity", "id", at.Entity, "resource", at.Resource, "done", do)}, nil
}

// topUp adds an amount of a limit as the grammar of limits has it: 10k, or dollars where the limit is in money.
func (p *page) topUp(ctx context.Context, at zlimit.Level, q url.Values) error {
	name, text := q.Get("limit"), strings.TrimSpace(strings.ReplaceAll(q.Get("amount"), ",", ""))
	resolved, err := p.Limiter.Limits.Resolve(ctx, at.Entity, at.Resource)
	if err != nil {
		return err
	}
	if limitNamed(resolved.Limits, name) == nil {
		return mustBe("limit", "one of the entity", name)
	}
	var read zlimit.Limit
	if err := read.UnmarshalText([]byte(name + "=" + text + "/min")); err != nil || read.Capacity <= 0 {
		return mustBe("amount", "a positive number such as 10k, or dollars for a limit in money", text)
	}
	request := zlimit.TopUpRequest{Entity: at.Entity, Resource: at.Resource, OperationID: q.Get("operation"), Amounts: zlimit.Amounts{name: read.Capacity}}
	hours := q.Get("hours")
	if d, err := time.ParseDuration(cmp.Or(hours, "0") + "h"); err != nil || d < 0 || d > 31*24*time.Hour {
		return mustBe("hours", "a number up to 744", hours)
	} else if d > 0 {
		request.Until = p.Now().Add(d)
	}
	_, err = p.Limiter.Limits.TopUp(ctx, request)
	return err
}
