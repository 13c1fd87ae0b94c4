package api

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/zlimit/zlimit-go/client"
	"github.com/zlimit/zlimit-go/httplimit"
	"github.com/zlimit/zlimit-go/server/internal/auth"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/leasetoken"
)

// A refusal is an error with the answer to it.
type refusal struct{ client.Problem }

func (r *refusal) Error() string { return r.Problem.Error() }

// refuse returns an error with an answer.
func refuse(status int, code, title, detail string) error {
	return &refusal{client.Problem{Status: status, Code: code, Title: title, Detail: detail}}
}

// problemOf returns the answer to an error for a caller. The shape is that of package httplimit, with a code, the fields that break a
// rule, and the entities that the caller may name.
func problemOf(err error, caller *auth.Principal) client.Problem {
	var own *refusal
	var exceeded *zlimit.ExceededError
	var settled *zlimit.SettledError
	var wrong *zlimit.ValidationError
	base := httplimit.ProblemOf(err)
	p := client.Problem{Type: base.Type, Title: base.Title, Status: base.Status, Detail: base.Detail, ViolatedPolicies: base.ViolatedPolicies, Outcome: base.Outcome}
	switch {
	case errors.As(err, &own):
		return own.Problem
	case errors.As(err, new(*http.MaxBytesError)):
		p.Status, p.Code, p.Title = http.StatusRequestEntityTooLarge, "too_large", "Body too large"
		p.Detail = "The body must have at most " + strconv.Itoa(maxBody) + " bytes."
		return p
	case errors.As(err, &exceeded):
		p.Limits = limitsOf(exceeded.Statuses, caller)
		switch {
		case exceeded.NeedsTopUp():
			p.Code, p.Detail = "used_up", "The prepaid limit has not enough until it is topped up."
		case exceeded.Possible():
			p.Code = "exceeded"
		default:
			p.Type, p.Status, p.Code, p.Outcome = "", http.StatusUnprocessableEntity, "never_fits", ""
		}
		return p
	case errors.As(err, &wrong) && !errors.Is(err, zlimit.ErrNoLimits):
		p.Code, p.Errors = "invalid", []client.FieldError{{Field: wrong.Field, Value: shown(wrong.Value), Reason: wrong.Reason}}
		p.Detail = fmt.Sprintf("%s %q %s.", wrong.Field, shown(wrong.Value), wrong.Reason)
		if wrong.Field == "operation id" && strings.HasPrefix(wrong.Reason, "was used") {
			p.Status, p.Code, p.Title = http.StatusConflict, "reused_key", "Key used by another request"
		}
		return p
	case errors.As(err, &settled):
		p.Code, p.Amounts, p.Detail = "settled", settled.Amounts, "The lease was settled before with other amounts, which stand."
		return p
	}
	for _, known := range problems {
		if known.is(err) {
			p.Status, p.Code, p.Title, p.Detail = known.status, known.code, known.title, cmp.Or(known.detail, messageOf(err))
			return p
		}
	}
	if p.Status == http.StatusServiceUnavailable {
		p.Code = "unavailable"
		return p
	}
	p.Status, p.Code, p.Title, p.Detail = http.StatusInternalServerError, "internal", "Internal error", ""
	return p
}

// problems are the answers to errors that have one each. Without a detail, the text of the error is it.
var problems = []struct {
	is                  func(error) bool
	status              int
	code, title, detail string
}{
	{is(zlimit.ErrNoLimits), http.StatusUnprocessableEntity, "no_limits", "No limits", ""},
	{is(zlimit.ErrReusedID), http.StatusConflict, "reused_key", "Key used by another request", "The idempotency key was used by another request of the entity."},
	{is(leasetoken.ErrInvalid), http.StatusBadRequest, "invalid_lease", "Invalid lease", ""},
	{is(leasetoken.ErrForeign), http.StatusForbidden, "foreign_lease", "Lease of another caller", "A lease is settled by the caller that acquired it, in its namespace."},
	{is(leasetoken.ErrExpired, zlimit.ErrTokenExpired), http.StatusGone, "expired", "Lease expired", "What the lease has taken stays taken."},
	{is(zlimit.ErrDisabled), http.StatusForbidden, "disabled", "Disabled", "An operator rejects these requests."},
	{is(zlimit.ErrEntityNotFound), http.StatusNotFound, "not_found", "Entity not found", ""},
	{is(zlimit.ErrEntityChanged), http.StatusConflict, "changed", "Changed meanwhile", ""},
	{func(err error) bool { return errors.As(err, new(*zlimit.UnsupportedError)) }, http.StatusConflict, "unsupported", "Limits of another program", ""},
}

func is(targets ...error) func(error) bool {
	return func(err error) bool {
		return slices.ContainsFunc(targets, func(of error) bool { return errors.Is(err, of) })
	}
}

// messageOf returns the text of an error without its package, as a sentence. What is wrong with a lease stands without the title of its problem.
func messageOf(err error) string {
	text := strings.TrimPrefix(err.Error(), leasetoken.ErrInvalid.Error()+": ")
	for _, of := range []string{"zlimit: ", "leasetoken: "} {
		text = strings.TrimPrefix(text, of)
	}
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + strings.TrimSuffix(text[1:], ".") + "."
}

// limitsOf returns limits as replies have them. Entities that the caller may not name are left out.
func limitsOf(statuses zlimit.Statuses, caller *auth.Principal) []client.Limit {
	all := make([]client.Limit, 0, len(statuses))
	for i, l := range httplimit.ProblemOf(&zlimit.ExceededError{Statuses: statuses}).Limits {
		limit := client.Limit{
			Policy: l.Policy, Resource: statuses[i].Resource, Capacity: l.Capacity, Carried: statuses[i].Carried, Granted: statuses[i].Granted, Available: l.Available, Requested: l.Requested,
			Exceeded: l.Exceeded, RetryAfter: l.RetryAfter, ResetsAt: l.ResetsAt,
		}
		if caller != nil && caller.MayEntity(statuses[i].Entity) {
			limit.Entity = statuses[i].Entity
		}
		all = append(all, limit)
	}
	return all
}

// writeProblem answers a request that failed, and returns the status.
func writeProblem(w http.ResponseWriter, err error, caller *auth.Principal) int {
	p := problemOf(err, caller)
	header := w.Header()
	var exceeded *zlimit.ExceededError
	switch {
	case errors.As(err, &exceeded):
		if after := exceeded.RetryAfterHeader(); after != "" {
			header.Set("Retry-After", after)
		}
	case p.Status == http.StatusServiceUnavailable && p.Outcome != httplimit.OutcomeUnknown:
		header.Set("Retry-After", "1")
	case p.Status == http.StatusUnauthorized:
		header.Set("WWW-Authenticate", "Bearer")
	}
	header.Set("Cache-Control", "no-store")
	writeJSON(w, p.Status, "application/problem+json", p)
	return p.Status
}
