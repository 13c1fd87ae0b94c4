package llm

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

// refusal returns the response of status 429 that stands for a rejection; nil for any other error.
func refusal(r *http.Request, err error) *http.Response {
	var exceeded *zlimit.ExceededError
	if !errors.As(err, &exceeded) {
		return nil
	}
	header := http.Header{
		"Content-Type":     {"application/json"},
		"X-Amzn-Errortype": {"ThrottlingException"}, // by which the SDK of AWS knows it
	}
	if exceeded.Possible() {
		header.Set("Retry-After", exceeded.RetryAfterHeader())
		milliseconds := (exceeded.RetryAfter() + time.Millisecond - 1) / time.Millisecond
		header.Set("Retry-After-Ms", strconv.FormatInt(int64(milliseconds), 10))
	} else {
		header.Set("X-Should-Retry", "false")
	}
	// The members are those that the SDKs of the providers look for, each its own.
	body, err := json.Marshal(map[string]any{
		"type":    "error",
		"message": exceeded.Error(),
		"error": map[string]any{
			"type": "rate_limit_error", "code": "rate_limit_exceeded", "status": "RESOURCE_EXHAUSTED", "message": exceeded.Error(),
		},
	})
	if err != nil {
		return nil
	}
	header.Set("Content-Length", strconv.Itoa(len(body)))
	return &http.Response{
		Status: "429 " + http.StatusText(http.StatusTooManyRequests), StatusCode: http.StatusTooManyRequests,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: header, ContentLength: int64(len(body)), Body: io.NopCloser(bytes.NewReader(body)), Request: r,
	}
}
