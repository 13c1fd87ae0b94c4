package quota

import (
	"cmp"
	"context"
	"sync"
	"time"
)

// A shared decides for a limiter whose windows are in a store, where other processes count as well.
type shared struct {
	Store
	mem    *memory  // has the defaults, and the calls of this process
	quotas sync.Map // models that were seen to have a quota in the store, by name
}

func (s *shared) check(ctx context.Context, r Request) error {
	if err := r.validateNames(); err != nil {
		return err
	}
	return s.Check(ctx, s.charge(r))
}

func (s *shared) charge(r Request) Charge {
	c := Charge{Request: r, Quota: s.mem.models.quota(r.Model)}
	if r.Key != "" {
		c.KeyQuota = s.mem.keys.quota(r.Key)
	}
	return c
}

// reserve reserves on the store. The window that this process has of the model holds only open calls, and call is the place of this one.
func (s *shared) reserve(ctx context.Context, r Request) (call place, t Ticket, denied *ExceededError, err error) {
	if err := r.validateNames(); err != nil {
		return place{}, nil, nil, err
	}
	if err := s.refuseUnknown(ctx, r.Model); err != nil {
		return place{}, nil, nil, err
	}
	if call, denied, err = s.mem.reserveCall(&r); err != nil {
		return place{}, nil, nil, err
	}
	if denied != nil { // The quotas come first, in the error too.
		own, err := split(s.Check(ctx, s.charge(r)))
		return place{}, nil, cmp.Or(own, denied), err
	}
	t, err = s.Reserve(ctx, s.charge(r))
	if err != nil {
		s.mem.cancel(&call, &place{}, &r)
	}
	denied, err = split(err)
	return call, t, denied, err
}

func (s *shared) timeUntil(ctx context.Context, r Request) (time.Duration, error) {
	input, output := int64(r.Input), int64(r.Output)
	now := s.mem.now()
	t := now
	for _, at := range []struct {
		scope Scope
		name  string
	}{{ScopeModel, r.Model}, {ScopeKey, r.Key}} {
		if at.name == "" {
			continue
		}
		w, err := s.window(ctx, at.scope, at.name, now)
		if err != nil {
			return 0, err
		}
		if limit := w.quota.Impossible(input, output); limit != LimitNone {
			return 0, Refusal(at.scope, at.name, w.quota, limit, input, output)
		}
		t = max(t, w.whenAdmitted(now, input, output))
	}
	return time.Duration(t - now), nil
}

// window returns a copy of the window that the store has of a name.
func (s *shared) window(ctx context.Context, sc Scope, name string, now int64) (*window, error) {
	h, q, err := s.History(ctx, sc, name)
	if err != nil {
		return nil, err
	}
	w := newWindow(s.mem.table(sc).quota(name))
	if q != nil {
		w.quota = *q
	}
	w.load(h)
	w.prune(now)
	return &w, nil
}

// hasQuota reports whether a model has a quota, in this process or in the store. A quota stays in a
// store, so a known one is not looked for again.
func (s *shared) hasQuota(ctx context.Context, name string) (bool, error) {
	if s.mem.models.has(name) || s.hasSeen(name) {
		return true, nil
	}
	_, has, err := s.Quota(ctx, ScopeModel, name)
	if has {
		s.quotas.Store(name, struct{}{})
	}
	return has, err
}

// refuseUnknown returns an *UnknownModelError for a model without a quota, where such models are refused.
func (s *shared) refuseUnknown(ctx context.Context, name string) error {
	if !s.mem.models.strict {
		return nil
	}
	if err := ValidateName("request.model", name); err != nil {
		return err
	}
	has, err := s.hasQuota(ctx, name)
	if err == nil && !has {
		err = &UnknownModelError{Model: name}
	}
	return err
}

// hasSeen reports whether a model is known to have a quota in the store.
func (s *shared) hasSeen(model string) bool {
	_, seen := s.quotas.Load(model)
	return seen
}
