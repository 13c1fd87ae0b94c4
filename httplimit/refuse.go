package httplimit

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"github.com/zlimit/zlimit-go/zlimit"
)

// The types of problems that the draft registers.
const (
	typeQuotaExceeded   = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	typeReducedCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
)

// A Problem is the body of a refusal, as RFC 9457 has it.
type Problem struct {
	Type   string `json:"type,omitempty"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	// ViolatedPolicies are the names of the limits that were exceeded, the strictest first.
	ViolatedPolicies []string `json:"violated-policies,omitempty"`
}

// statusClientClosedRequest stands in logs for a client that went away; it is never sent.
const statusClientClosedRequest = 499

// ProblemOf returns what a request is answered that failed with an error of a request function or of the limiter:
//
//	*zlimit.ExceededError                        429, quota-exceeded
//	*KeyError                                    401
//	*zlimit.ValidationError                      400
//	zlimit.ErrNoLimits                           403
//	*zlimit.UnavailableError, zlimit.ErrContended, zlimit.ErrClosed    503, temporary-reduced-capacity
//	context.DeadlineExceeded                     503, temporary-reduced-capacity
//	anything else                                500
//
// A deadline is one that the server has set for the request, and that passed before the limits were known.
//
// It names no entity and no cause, which a client should not see.
func ProblemOf(err error) Problem {
	var exceeded *zlimit.ExceededError
	var key *KeyError
	var invalid *zlimit.ValidationError
	var unavailable *zlimit.UnavailableError
	switch {
	case errors.As(err, &exceeded):
		p := Problem{Type: typeQuotaExceeded, Status: http.StatusTooManyRequests, Title: "Quota exceeded"}
		for _, s := range exceeded.Violations() {
			p.ViolatedPolicies = append(p.ViolatedPolicies, s.Limit.Name)
		}
		if !exceeded.Possible() {
			p.Detail = "The request asks for more than the quota can hold, and cannot succeed."
		}
		return p
	case errors.As(err, &key):
		return Problem{Status: http.StatusUnauthorized, Title: "No valid key", Detail: key.Error()}
	case errors.As(err, &invalid):
		return Problem{Status: http.StatusBadRequest, Title: "Invalid request", Detail: "The " + invalid.Field + " " + invalid.Reason + "."}
	case errors.Is(err, zlimit.ErrNoLimits):
		return Problem{Status: http.StatusForbidden, Title: "No quota"}
	case errors.As(err, &unavailable), errors.Is(err, zlimit.ErrContended), errors.Is(err, zlimit.ErrClosed):
		return Problem{Type: typeReducedCapacity, Status: http.StatusServiceUnavailable, Title: "Temporarily unavailable"}
	case errors.Is(err, context.DeadlineExceeded):
		return Problem{Type: typeReducedCapacity, Status: http.StatusServiceUnavailable, Title: "Not decided in time"}
	case errors.Is(err, context.Canceled):
		return Problem{Status: statusClientClosedRequest, Title: "Client closed request"}
	default:
		return Problem{Status: http.StatusInternalServerError, Title: "Internal error"}
	}
}

// Refuse answers a request that failed with an error with the status and body of [ProblemOf]. A rejection that waiting
// helps also has Retry-After, in seconds, rounded up. A request that asks for more than a limit can hold has
// x-should-retry: false instead, which clients made with Stainless obey. WWW-Authenticate asks for a bearer token that is
// missing or wrong. Refuse writes nothing for a client that went away.
func Refuse(w http.ResponseWriter, _ *http.Request, err error) {
	p := ProblemOf(err)
	if p.Status == statusClientClosedRequest {
		return
	}
	body, encoding := json.Marshal(p)
	if encoding != nil {
		http.Error(w, p.Title, p.Status)
		return
	}
	header := w.Header()
	setRetryAfter(header, err)
	var key *KeyError
	if errors.As(err, &key) && key.Source == bearerSource {
		header.Set("WWW-Authenticate", "Bearer") // a status 401 must name a scheme, and other keys have none
	}
	header.Set("Content-Type", "application/problem+json")
	header.Set("Content-Length", strconv.Itoa(len(body)))
	header.Set("Cache-Control", "no-store")
	w.WriteHeader(p.Status)
	_, _ = w.Write(body) // a client that is gone
}

func setRetryAfter(header http.Header, err error) {
	var exceeded *zlimit.ExceededError
	if !errors.As(err, &exceeded) {
		return
	}
	if exceeded.Possible() {
		header.Set("Retry-After", exceeded.RetryAfterHeader())
	} else {
		header.Set("X-Should-Retry", "false")
	}
}

// reject answers a request that was not admitted.
func (m *middleware) reject(w http.ResponseWriter, r *http.Request, err error) {
	var exceeded *zlimit.ExceededError
	if errors.As(err, &exceeded) && !m.silent {
		m.describe(w.Header(), exceeded.Statuses, new([2]string))
	}
	if m.refuse != nil {
		m.refuse(w, r, err)
		return
	}
	if ProblemOf(err).Status == http.StatusInternalServerError {
		m.logger.ErrorContext(r.Context(), "httplimit: a request could not be limited", "error", err)
	}
	Refuse(w, r, err)
}

func isClosed(err error) bool { return errors.Is(err, zlimit.ErrLeaseClosed) }
