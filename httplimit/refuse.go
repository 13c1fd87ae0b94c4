package httplimit

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/zlimit/zlimit-go/internal/edge/fields"
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
	// ViolatedPolicies are the policies that were exceeded, the strictest first, by the names of the fields: names of a parent's limits
	// begin with "parent:".
	ViolatedPolicies []string `json:"violated-policies,omitempty"`
	// Limits are all limits of a request that was rejected, the strictest first.
	Limits []ProblemLimit `json:"limits,omitempty"`
	// Outcome says what a request with status 429 or 503 has consumed: [OutcomeNone], or [OutcomeUnknown]. It is "" with other statuses.
	Outcome string `json:"outcome,omitempty"`
}

// The values of [Problem.Outcome].
const (
	OutcomeNone    = "none"    // nothing was consumed
	OutcomeUnknown = "unknown" // the amounts may have been consumed: a retry may be charged twice
)

// A ProblemLimit is a limit of a request that was rejected. It names no entity.
type ProblemLimit struct {
	Policy    string `json:"policy"`    // the name of the limit in the fields
	Capacity  int64  `json:"capacity"`  // in tokens of the limit
	Available int64  `json:"available"` // in tokens, rounded down; negative in debt
	Requested int64  `json:"requested"` // in tokens
	Exceeded  bool   `json:"exceeded"`
	// RetryAfter is the number of seconds after which the amount is there if nothing else happens, rounded up. It is 0 if it is there now, and
	// if waiting does not help.
	RetryAfter int64 `json:"retry_after_seconds,omitempty"`
	// ResetsAt is when a quota resets; the zero time for other limits.
	ResetsAt time.Time `json:"resets_at,omitzero"`
}

// problemLimit returns a limit as the body of a rejection has it.
func problemLimit(s zlimit.Status) ProblemLimit {
	l := ProblemLimit{
		Policy: fields.Policy(s), Capacity: s.Now().Capacity, Available: s.Available, Requested: s.Requested, Exceeded: s.Exceeded, ResetsAt: s.ResetsAt,
	}
	if s.RetryAfter != zlimit.Never {
		l.RetryAfter = int64((s.RetryAfter + time.Second - 1) / time.Second)
	}
	return l
}

// ProblemOf returns the answer to a request that failed with an error of a request function or of the limiter:
//
//	*zlimit.ExceededError                        429, quota-exceeded
//	*KeyError                                    401, or 400 of an address
//	zlimit.ErrNoLimits, zlimit.ErrDisabled       403
//	*zlimit.ValidationError                      400
//	*zlimit.UnavailableError, zlimit.ErrContended, zlimit.ErrClock, zlimit.ErrClosed    503, temporary-reduced-capacity
//	context.DeadlineExceeded, context.Canceled   503, temporary-reduced-capacity
//	zlimit.ErrReusedID, zlimit.ErrSettled        409
//	zlimit.ErrTokenExpired                       410
//	ErrBodyTimeout                               408
//	anything else                                500
//
// A deadline is the server's for the request, and passed before the limits were known. A context is canceled by a
// client's leaving, or by a server's shutdown. The first reads no answer. In the second case the client reads the
// answer.
//
// The answer hides entities and causes from the client. It has the limits of a rejection, and says whether a request that
// was not admitted may have consumed something.
func ProblemOf(err error) Problem {
	var exceeded *zlimit.ExceededError
	var key *KeyError
	var invalid *zlimit.ValidationError
	var unavailable *zlimit.UnavailableError
	switch {
	case errors.As(err, &exceeded):
		p := Problem{Type: typeQuotaExceeded, Status: http.StatusTooManyRequests, Title: "Quota exceeded", Outcome: OutcomeNone}
		for _, s := range exceeded.Statuses {
			p.Limits = append(p.Limits, problemLimit(s))
		}
		for _, s := range exceeded.Violations() {
			p.ViolatedPolicies = append(p.ViolatedPolicies, fields.Policy(s))
		}
		switch {
		case !exceeded.Possible():
			p.Detail = "The request asks for more than the quota can hold, and cannot succeed."
		case exceeded.NeedsTopUp():
			p.Detail = "The prepaid quota has not enough until it is topped up."
		}
		return p
	case errors.As(err, &key):
		status := http.StatusUnauthorized
		if key.address {
			status = http.StatusBadRequest
		}
		return Problem{Status: status, Title: "No valid key", Detail: "The " + key.rule() + "."}
	case errors.Is(err, zlimit.ErrNoLimits): // before the rules, since its reason names levels
		return Problem{Status: http.StatusForbidden, Title: "No quota"}
	case errors.As(err, &invalid):
		return Problem{Status: http.StatusBadRequest, Title: "Invalid request", Detail: "The " + invalid.Field + " " + invalid.Reason + "."}
	case errors.Is(err, zlimit.ErrDisabled):
		return Problem{Status: http.StatusForbidden, Title: "Disabled"}
	case errors.As(err, &unavailable):
		outcome := OutcomeNone
		if unavailable.Unknown {
			outcome = OutcomeUnknown
		}
		return Problem{Type: typeReducedCapacity, Status: http.StatusServiceUnavailable, Title: "Temporarily unavailable", Outcome: outcome}
	case errors.Is(err, zlimit.ErrContended), errors.Is(err, zlimit.ErrClock), errors.Is(err, zlimit.ErrClosed):
		return Problem{Type: typeReducedCapacity, Status: http.StatusServiceUnavailable, Title: "Temporarily unavailable", Outcome: OutcomeNone}
	case errors.Is(err, zlimit.ErrReusedID):
		return Problem{Status: http.StatusConflict, Title: "ID used by another request"}
	case errors.Is(err, zlimit.ErrSettled):
		return Problem{Status: http.StatusConflict, Title: "Settled with other amounts"}
	case errors.Is(err, zlimit.ErrTokenExpired):
		return Problem{Status: http.StatusGone, Title: "Lease expired"}
	case errors.Is(err, ErrBodyTimeout):
		return Problem{Status: http.StatusRequestTimeout, Title: "Body not sent in time"}
	case errors.Is(err, context.DeadlineExceeded):
		return Problem{Type: typeReducedCapacity, Status: http.StatusServiceUnavailable, Title: "Not decided in time", Outcome: OutcomeUnknown}
	case errors.Is(err, context.Canceled):
		return Problem{Type: typeReducedCapacity, Status: http.StatusServiceUnavailable, Title: "Canceled", Outcome: OutcomeUnknown}
	default:
		return Problem{Status: http.StatusInternalServerError, Title: "Internal error"}
	}
}

// Refuse answers a request that failed with an error with the status and body of [ProblemOf]. A rejection that waiting helps also has
// Retry-After, in seconds, rounded up. A request above the capacity of a limit, or of a prepaid limit until it is topped up, has
// x-should-retry: false instead, which clients made with Stainless obey. WWW-Authenticate has the Challenge of a key that is missing or
// wrong.
func Refuse(w http.ResponseWriter, _ *http.Request, err error) { refuse(w, err, ProblemOf(err)) }

// refuse is Refuse with the body of the answer.
func refuse(w http.ResponseWriter, err error, p Problem) {
	body, encoding := json.Marshal(p)
	if encoding != nil {
		http.Error(w, p.Title, p.Status)
		return
	}
	header := w.Header()
	setRetryAfter(header, err)
	var key *KeyError
	if p.Status == http.StatusUnauthorized && errors.As(err, &key) {
		header.Set("WWW-Authenticate", cmp.Or(key.Challenge, "ApiKey"))
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
	if after := exceeded.RetryAfterHeader(); after != "" {
		header.Set("Retry-After", after)
	} else {
		header.Set("X-Should-Retry", "false")
	}
}

// reject answers a request that was not admitted.
func (m *middleware) reject(w http.ResponseWriter, r *http.Request, err error) {
	if exceeded, ok := errors.AsType[*zlimit.ExceededError](err); ok {
		if !m.silent {
			m.describe(w.Header(), exceeded.Statuses, new([2]string))
		}
		for outer := scopeOf(r.Context()); outer != nil; outer = scopeOf(outer.Context) { //nolint:contextcheck // it looks for outer scopes
			outer.rejected.Store(true)
		}
	}
	if m.refuse != nil {
		m.refuse(w, r, err)
		return
	}
	p := ProblemOf(err)
	if p.Status == http.StatusInternalServerError {
		m.faulty.Error(r.Context(), m.logger, "httplimit: a request could not be limited", err)
	}
	if m.silent {
		p.Limits = nil
	}
	refuse(w, err, p)
}

func isClosed(err error) bool { return errors.Is(err, zlimit.ErrLeaseClosed) }
