package llm

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/httplimit"
	"github.com/zlimit/zlimit-go/internal/grammar"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A problem is the answer to a request that was not admitted.
type problem struct {
	status        int
	code, message string // the code is OpenAI's; "" for that of the status
	retry         time.Duration
	header        http.Header
}

// problemOf returns the problem of an error; one of status 500 for an error that is not of limits.
func problemOf(err error) problem {
	p := problem{header: http.Header{"Cache-Control": {"no-store"}}}
	var exceeded *zlimit.ExceededError
	var unknown *unknownError
	var key *httplimit.KeyError
	switch {
	case errors.As(err, &unknown):
		p.status, p.code, p.message = http.StatusForbidden, "unknown_call", "Unknown call. The request "+unknown.name+" is no call that this service knows."
		p.header.Set("X-Should-Retry", "false")
	case errors.Is(err, zlimit.ErrDisabled):
		p.status, p.code, p.message = http.StatusForbidden, "disabled", httplimit.ProblemOf(err).Title
		p.header.Set("X-Should-Retry", "false")
	case errors.As(err, &exceeded):
		p.status, p.message = http.StatusTooManyRequests, reason(exceeded)
		if exceeded.NeedsTopUp() {
			p.code = "insufficient_quota"
		}
		if exceeded.RetryAfter() == zlimit.Never {
			p.header.Set("X-Should-Retry", "false")
			break
		}
		p.retry = exceeded.SpreadRetryAfter()
		p.header.Set("Retry-After", exceeded.RetryAfterHeader())
		p.header.Set("Retry-After-Ms", strconv.FormatInt(int64((p.retry+time.Millisecond-1)/time.Millisecond), 10))
	default:
		general := httplimit.ProblemOf(err)
		p.status, p.message = general.Status, strings.TrimSpace(general.Title+". "+general.Detail)
		if p.status == http.StatusUnauthorized && errors.As(err, &key) {
			p.header.Set("WWW-Authenticate", cmp.Or(key.Challenge, "ApiKey"))
		}
	}
	return p
}

// Refuse answers a request that failed with an error of a limiter, of [httplimit], or of this package. The body has the
// form of errors of the provider of the request's path, so that its SDK can read it. Headers decide if paths do not.
// It is for [httplimit.WithErrorHandler] and for the ErrorHandler of a reverse proxy. The statuses are as in
// [httplimit.ProblemOf], and 403 for an unknown call. The message names no entity. An error of another kind is answered
// with status 500, and its text is withheld.
func Refuse(w http.ResponseWriter, r *http.Request, err error) { writeProblem(w, r, problemOf(err)) }

// WriteError answers a request by an error with a status and a message, in the form of the provider as [Refuse] does.
func WriteError(w http.ResponseWriter, r *http.Request, status int, message string) {
	writeProblem(w, r, problem{status: status, message: message, header: http.Header{}})
}

func writeProblem(w http.ResponseWriter, r *http.Request, p problem) {
	body := errorBody(r, p.header, p.status, p.code, p.message, p.retry)
	for name, values := range p.header {
		w.Header()[name] = values
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(p.status)
	_, _ = w.Write(body) // a client that is gone
}

// refusal returns the response for an error about the request or its limits; nil for any other error.
func refusal(r *http.Request, err error) *http.Response {
	p := problemOf(err)
	if p.status == http.StatusInternalServerError || r.Context().Err() != nil {
		return nil
	}
	body := errorBody(r, p.header, p.status, p.code, p.message, p.retry)
	p.header.Set("Content-Length", strconv.Itoa(len(body)))
	return &http.Response{
		Status: strconv.Itoa(p.status) + " " + http.StatusText(p.status), StatusCode: p.status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: p.header, ContentLength: int64(len(body)), Body: io.NopCloser(bytes.NewReader(body)), Request: r,
	}
}

// reason returns the reason of a refusal in words for the caller of the model. It leaves out the names of entities,
// which are the service's own.
func reason(e *zlimit.ExceededError) string {
	var b strings.Builder
	b.WriteString("rate limit exceeded")
	separator := ": "
	for _, s := range e.Violations() {
		name := s.Limit.Name
		fmt.Fprintf(&b, "%s%s (requested %s, available %s of %s)", separator, name,
			grammar.AmountText(name, s.Requested), grammar.AmountText(name, s.Available), grammar.AmountText(name, s.Now().Capacity))
		separator = "; "
	}
	switch {
	case !e.Possible():
		b.WriteString(", more than the capacity: it can never succeed")
	case e.NeedsTopUp():
		b.WriteString(", not enough until a top-up")
	default:
		fmt.Fprintf(&b, ", retry after %v", e.RetryAfter())
	}
	return b.String()
}
