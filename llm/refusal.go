package llm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

// refusal returns the response that stands for a rejection, of status 429, or for an unknown request, of status 403; nil for any
// other error.
func refusal(r *http.Request, err error) *http.Response {
	var exceeded *zlimit.ExceededError
	var unknown *unknownError
	header := http.Header{"Content-Type": {"application/json"}}
	switch {
	case errors.As(err, &unknown):
		header.Set("X-Should-Retry", "false")
		header.Set("X-Amzn-Errortype", "AccessDeniedException") // by which the SDK of AWS knows it
		return response(r, http.StatusForbidden, header, err.Error(), "permission_error", "unknown_call", "PERMISSION_DENIED")
	case !errors.As(err, &exceeded):
		return nil
	}
	header.Set("X-Amzn-Errortype", "ThrottlingException")
	if exceeded.Possible() {
		header.Set("Retry-After", exceeded.RetryAfterHeader())
		milliseconds := (exceeded.RetryAfter() + time.Millisecond - 1) / time.Millisecond
		header.Set("Retry-After-Ms", strconv.FormatInt(int64(milliseconds), 10))
	} else {
		header.Set("X-Should-Retry", "false")
	}
	return response(r, http.StatusTooManyRequests, header, reason(exceeded), "rate_limit_error", "rate_limit_exceeded", "RESOURCE_EXHAUSTED")
}

// reason returns why a call was refused, in words for the caller of the model: without the names of entities, which are those of the service.
func reason(e *zlimit.ExceededError) string {
	var b strings.Builder
	b.WriteString("rate limit exceeded")
	separator := ": "
	for _, s := range e.Violations() {
		fmt.Fprintf(&b, "%s%s (requested %d, available %d of %d)", separator, s.Limit.Name, s.Requested, s.Available, s.Limit.Capacity)
		separator = "; "
	}
	if e.Possible() {
		fmt.Fprintf(&b, ", retry after %v", e.RetryAfter())
	} else {
		b.WriteString(", more than the capacity: it can never succeed")
	}
	return b.String()
}

// response returns a response with an error.
func response(r *http.Request, status int, header http.Header, message, kind, code, state string) *http.Response {
	// The members are those that the SDKs of the providers look for, each its own.
	body, err := json.Marshal(map[string]any{
		"type":    "error",
		"message": message,
		"error":   map[string]any{"type": kind, "code": code, "status": state, "message": message},
	})
	if err != nil {
		return nil
	}
	header.Set("Content-Length", strconv.Itoa(len(body)))
	return &http.Response{
		Status: strconv.Itoa(status) + " " + http.StatusText(status), StatusCode: status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: header, ContentLength: int64(len(body)), Body: io.NopCloser(bytes.NewReader(body)), Request: r,
	}
}
