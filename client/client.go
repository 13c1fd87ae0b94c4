// Package client asks a zlimitd for tokens over HTTP. It needs the standard library alone.
//
// Programs in Go that reach the store need no server: package zlimit asks it directly, and takes a call less.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// A Client calls a server. URL must be set. It is safe for concurrent use, and must not be changed meanwhile.
type Client struct {
	URL       string // such as "https://limits.internal:8080"
	Key       string // of the caller; "" for a client certificate, or a server without keys
	Namespace string // "" for the first one of the key
	// HTTP makes the requests. The default is http.DefaultClient.
	HTTP *http.Client
	// Tries is how often a request is sent at most, if that is safe and the server does not answer or cannot serve. The default is 3.
	Tries int
}

// Acquire takes tokens. A rejection is a [*Problem] with status 429.
//
// The request is sent once, and again after a refusal of which the server says that it has consumed nothing. After another failure it
// may have been charged. [Client.AcquireOnce] is safe to repeat, and costs more.
func (c *Client) Acquire(ctx context.Context, r AcquireRequest) (*Acquired, error) {
	return c.acquire(ctx, r, "")
}

// AcquireOnce is Acquire with an idempotency key, such as the ID of a job. All calls of an entity with one key within 24 hours are charged
// once together, so it is sent again after any failure. A key that was used by another request is a [*Problem] with status 409. A request
// with Also has no key. The server writes a transaction with a record: do not use it for an entity with hundreds of requests a second.
func (c *Client) AcquireOnce(ctx context.Context, key string, r AcquireRequest) (*Acquired, error) {
	return c.acquire(ctx, r, key)
}

func (c *Client) acquire(ctx context.Context, r AcquireRequest, key string) (*Acquired, error) {
	if key == "" {
		return call[Acquired](ctx, c, http.MethodPost, "/v1/acquire", nil, r, tookNothing)
	}
	return call[Acquired](ctx, c, http.MethodPost, "/v1/acquire", http.Header{"Idempotency-Key": {key}}, r, failed)
}

// Settle says what a lease has consumed. It may be repeated: the first settlement holds, and another one with other amounts is a
// [*Problem] with status 409.
func (c *Client) Settle(ctx context.Context, r SettleRequest) (*Settled, error) {
	return call[Settled](ctx, c, http.MethodPost, "/v1/settle", nil, r, failed)
}

// Rollback returns all that a lease has taken. It may be repeated.
func (c *Client) Rollback(ctx context.Context, lease string) (*Settled, error) {
	return call[Settled](ctx, c, http.MethodPost, "/v1/rollback", nil, map[string]string{"lease": lease}, failed)
}

// Extend returns a token of a lease that can be settled for some time from now, in whole seconds.
func (c *Client) Extend(ctx context.Context, lease string, d time.Duration) (*Extended, error) {
	seconds := strconv.FormatInt(int64(d/time.Second), 10) + "s"
	return call[Extended](ctx, c, http.MethodPost, "/v1/heartbeat", nil, map[string]string{"lease": lease, "for": seconds}, failed)
}

// Do acquires tokens, runs a function, and settles what the function returns: the amounts consumed in all. If the function fails or
// panics, all is returned. Lease is "10m" if the request has none.
func (c *Client) Do(ctx context.Context, r AcquireRequest, f func(context.Context) (actual map[string]int64, err error)) error {
	if r.Lease == "" {
		r.Lease = "10m"
	}
	acquired, err := c.Acquire(ctx, r)
	if err != nil {
		return err
	}
	settled := false
	undo := func() error {
		_, err := c.Rollback(context.WithoutCancel(ctx), acquired.Lease)
		return err
	}
	defer func() {
		if !settled { // the function panics
			_ = undo()
		}
	}()
	actual, err := f(ctx)
	settled = true
	if err != nil {
		return errors.Join(err, undo())
	}
	_, err = c.Settle(context.WithoutCancel(ctx), SettleRequest{Lease: acquired.Lease, Settlement: Settlement{Actual: actual}})
	return err
}

// Available returns where the limits of an entity and a resource stand. It takes nothing.
func (c *Client) Available(ctx context.Context, entity, resource string) ([]Limit, error) {
	query := url.Values{"entity": {entity}, "resource": {resource}}
	reply, err := call[struct {
		Limits []Limit `json:"limits"`
	}](ctx, c, http.MethodGet, "/v1/available?"+query.Encode(), nil, nil, failed)
	if err != nil {
		return nil, err
	}
	return reply.Limits, nil
}

// failed reports whether a request failed otherwise than by what it asks for.
func failed(err error) bool {
	var p *Problem
	return !errors.As(err, &p) || p.Status >= 500
}

// tookNothing reports whether the server failed, and says that the request has consumed nothing.
func tookNothing(err error) bool {
	var p *Problem
	return errors.As(err, &p) && p.Status >= 500 && p.Outcome == "none"
}

// maxReply bounds the body of a reply, in bytes.
const maxReply = 1 << 20

// call sends a request, and again after errors that allow it.
func call[T any](ctx context.Context, c *Client, method, path string, header http.Header, body any, again func(error) bool) (*T, error) {
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return nil, fmt.Errorf("client: %w", err)
		}
	}
	tries := c.Tries
	if tries <= 0 {
		tries = 3
	}
	for pause := 50 * time.Millisecond; ; pause *= 2 {
		reply := new(T)
		err := c.once(ctx, method, path, header, text, reply)
		if err == nil {
			return reply, nil
		}
		if tries--; tries == 0 || !again(err) {
			return nil, err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, err
		}
	}
}

// once sends a request once, and reads its reply.
func (c *Client) once(ctx context.Context, method, path string, header http.Header, body []byte, reply any) error {
	request, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(c.URL, "/")+path, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("client: %w", err)
	}
	for name, values := range header {
		request.Header[name] = values
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if c.Key != "" {
		request.Header.Set("Authorization", "Bearer "+c.Key)
	}
	if c.Namespace != "" {
		request.Header.Set("Zlimit-Namespace", c.Namespace)
	}
	doer := c.HTTP
	if doer == nil {
		doer = http.DefaultClient
	}
	answer, err := doer.Do(request)
	if err != nil {
		return fmt.Errorf("client: %w", err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxReply))
	if err != nil {
		return fmt.Errorf("client: %w", err)
	}
	if answer.StatusCode == http.StatusOK {
		if err := json.Unmarshal(text, reply); err != nil {
			return fmt.Errorf("client: %w", err)
		}
		return nil
	}
	p := &Problem{Title: answer.Status}
	_ = json.Unmarshal(text, p) // of a proxy it may be anything
	p.Status = answer.StatusCode
	p.RetryAfter, _ = strconv.ParseInt(answer.Header.Get("Retry-After"), 10, 64)
	return p
}
