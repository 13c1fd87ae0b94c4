package httplimit

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

const (
	webhookTries = 4
	webhookPause = time.Second // before the second try, and twice as long each time
	webhookBody  = 64 << 10    // bytes of a reply that are read, so that the connection is used again
)

// Webhook returns a function for [zlimit.WithBudgetAlerts] that posts an alert as JSON. A reply of status 2xx is the end. After any other
// one, and without a reply, it tries three times more, with pauses of 1, 2 and 4 seconds. A status 4xx other than 408 and 429 ends the
// tries. The header Idempotency-Key has the ID of the alert, since a request whose reply is lost comes again. A nil client is one with a
// timeout of five seconds.
func Webhook(address string, client *http.Client) (func(context.Context, zlimit.BudgetAlert) error, error) {
	parsed, err := url.Parse(address)
	if err != nil || parsed.Scheme != "https" && parsed.Scheme != "http" || parsed.Host == "" {
		return nil, &zlimit.ValidationError{Field: "webhook", Value: address, Reason: "must be a URL of http or https"}
	}
	if client == nil {
		client = &http.Client{Timeout: 5 * time.Second}
	}
	return func(ctx context.Context, alert zlimit.BudgetAlert) error {
		body, err := json.Marshal(alert)
		if err != nil {
			return err
		}
		pause := webhookPause
		for try := 1; ; try++ {
			again, err := post(ctx, client, address, alert.ID, body)
			if err == nil || !again || try == webhookTries {
				return err
			}
			timer := time.NewTimer(pause)
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
				return err
			}
			pause *= 2
		}
	}, nil
}

// post sends a request, and reports whether to try again after an error.
func post(ctx context.Context, client *http.Client, address, id string, body []byte) (again bool, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Idempotency-Key", id)
	reply, err := client.Do(request)
	if err != nil {
		return true, fmt.Errorf("httplimit: webhook: %w", err)
	}
	defer reply.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(reply.Body, webhookBody))
	if reply.StatusCode/100 == 2 {
		return false, nil
	}
	final := reply.StatusCode/100 == 4 && reply.StatusCode != http.StatusRequestTimeout && reply.StatusCode != http.StatusTooManyRequests
	return !final, fmt.Errorf("httplimit: webhook: status %d", reply.StatusCode)
}
