package quota

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	countTimeout = 10 * time.Second
	countRetries = 2
	// A response of a counting endpoint is one number; more than this is not one.
	maxCountBody = 1 << 20
	// Between attempts CountTokens waits for this, doubled each time, with
	// jitter; a Retry-After of the provider counts up to the limit.
	countPause    = 200 * time.Millisecond
	maxRetryAfter = 30 * time.Second
)

// CountOption changes how CountTokens works.
type CountOption func(*countConfig)

type countConfig struct {
	provider Provider
	baseURL  string
	client   *http.Client
	timeout  time.Duration
	retries  int
}

// CountProvider names the provider: Gemini, OpenAI or Anthropic. Default:
// Gemini.
func CountProvider(p Provider) CountOption { return func(c *countConfig) { c.provider = p } }

// CountBaseURL is where the provider's API is, such as a proxy: scheme, host
// and perhaps a path. Default: the provider's own.
func CountBaseURL(u string) CountOption { return func(c *countConfig) { c.baseURL = u } }

// CountClient is the HTTP client. Redirects are never followed, so the key goes to no other host.
// Default: http.DefaultClient.
func CountClient(hc *http.Client) CountOption { return func(c *countConfig) { c.client = hc } }

// CountTimeout bounds one attempt. Default: 10 seconds.
func CountTimeout(d time.Duration) CountOption { return func(c *countConfig) { c.timeout = d } }

// CountRetries is how often a failed attempt is repeated: after a network
// error, a timeout, and the statuses 408, 429 and 5xx. Default: 2.
func CountRetries(n int) CountOption { return func(c *countConfig) { c.retries = n } }

// CountError is an answer of a counting endpoint that is not a count. The key
// is in none of its fields.
type CountError struct {
	Provider Provider `json:"provider"`
	Model    string   `json:"model"`
	Status   int      `json:"status"`  // HTTP status
	Message  string   `json:"message"` // the provider's message, or the mistake in it
}

// Error names provider, model, status and message.
func (e *CountError) Error() string {
	return fmt.Sprintf("quota: count tokens of %s model %q: status %d: %s", e.Provider, e.Model, e.Status, e.Message)
}

// CountTokens asks the provider how many tokens the text has as input of the
// model. Bad arguments are a *ValidationError before anything is sent, an
// answer that is not a count is a *CountError. The key is sent in a header and
// is in no error.
func CountTokens(ctx context.Context, apiKey, model, text string, opts ...CountOption) (int, error) {
	c := countConfig{provider: ProviderGemini, client: http.DefaultClient, timeout: countTimeout, retries: countRetries}
	for _, o := range opts {
		o(&c)
	}
	call, err := c.prepare(apiKey, model, text)
	if err != nil {
		return 0, err
	}
	for attempt := 0; ; attempt++ {
		n, retryAfter, err := call.attempt(ctx, &c)
		if err == nil {
			return n, nil
		}
		if retryAfter < 0 || attempt >= c.retries {
			return 0, err
		}
		pause := countPause << min(attempt, 8)
		t := time.NewTimer(max(retryAfter, pause/2+rand.N(pause/2)))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return 0, fmt.Errorf("%w, not tried again: %w", err, context.Cause(ctx))
		}
	}
}

// A countCall is a request that can be sent several times.
type countCall struct {
	key, model string
	provider   Provider
	url        string
	body       []byte
	header     http.Header
}

// prepare validates everything and builds the request in the provider's
// protocol.
func (c *countConfig) prepare(apiKey, model, text string) (*countCall, error) {
	if err := c.validate(apiKey, model); err != nil {
		return nil, err
	}
	call := &countCall{key: apiKey, model: model, provider: c.provider, header: http.Header{"Content-Type": {"application/json"}}}
	type object = map[string]any
	var base, path string
	var body object
	switch c.provider {
	case ProviderOpenAI:
		base, path = "https://api.openai.com", "/v1/responses/input_tokens"
		call.header.Set("Authorization", "Bearer "+apiKey)
		body = object{"model": model, "input": text}
	case ProviderAnthropic:
		base, path = "https://api.anthropic.com", "/v1/messages/count_tokens"
		call.header.Set("X-Api-Key", apiKey)
		call.header.Set("Anthropic-Version", "2023-06-01")
		body = object{"model": model, "messages": []object{{"role": "user", "content": text}}}
	default:
		base, path = "https://generativelanguage.googleapis.com", "/v1beta/models/"+url.PathEscape(strings.TrimPrefix(model, "models/"))+":countTokens"
		call.header.Set("X-Goog-Api-Key", apiKey)
		body = object{"contents": []object{{"parts": []object{{"text": text}}}}}
	}
	if c.baseURL != "" {
		base = strings.TrimSuffix(c.baseURL, "/")
	}
	call.url = base + path
	var err error
	if call.body, err = json.Marshal(body); err != nil {
		return nil, fmt.Errorf("quota: encode count request: %w", err)
	}
	return call, nil
}

func (c *countConfig) validate(apiKey, model string) error {
	if apiKey == "" || strings.ContainsFunc(apiKey, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return &ValidationError{Field: "api key", Value: "(hidden)", Rule: "must be printable ASCII without spaces, and not empty"}
	}
	if err := ValidateName("model", model); err != nil {
		return err
	}
	switch c.provider {
	case ProviderGemini, ProviderOpenAI, ProviderAnthropic:
	default:
		return &ValidationError{Field: "provider", Value: string(c.provider), Rule: `must be "gemini", "openai" or "anthropic", which count tokens`}
	}
	if c.baseURL != "" {
		u, err := url.Parse(c.baseURL)
		switch {
		case err != nil:
			return &ValidationError{Field: "base URL", Value: "(unreadable)", Rule: "must be a URL"}
		case u.User != nil: // A password must not get into the error.
			return &ValidationError{Field: "base URL", Value: u.Redacted(), Rule: "must not hold a user"}
		case u.Scheme != "http" && u.Scheme != "https", u.Host == "", u.RawQuery != "", u.Fragment != "":
			return &ValidationError{Field: "base URL", Value: c.baseURL, Rule: "must be http or https with a host, without query and fragment"}
		}
	}
	if c.client == nil {
		return &ValidationError{Field: "client", Value: "nil", Rule: "must not be nil"}
	}
	if c.timeout <= 0 {
		return &ValidationError{Field: "timeout", Value: c.timeout.String(), Rule: "must be positive"}
	}
	if c.retries < 0 {
		return &ValidationError{Field: "retries", Value: strconv.Itoa(c.retries), Rule: "must not be negative"}
	}
	return nil
}

// attempt sends the request once. retryAfter is negative where another attempt
// would not help.
func (call *countCall) attempt(ctx context.Context, c *countConfig) (n int, retryAfter time.Duration, err error) {
	attemptCtx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(attemptCtx, http.MethodPost, call.url, bytes.NewReader(call.body))
	if err != nil {
		return 0, -1, fmt.Errorf("quota: count tokens: %w", err)
	}
	req.Header = call.header.Clone()
	client := *c.client
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, err := client.Do(req)
	var body []byte
	if err == nil {
		defer func() { _ = resp.Body.Close() }()
		body, err = io.ReadAll(io.LimitReader(resp.Body, maxCountBody+1))
	}
	if err != nil {
		if ctx.Err() != nil {
			return 0, -1, fmt.Errorf("quota: count tokens of %s model %q: %w", call.provider, call.model, context.Cause(ctx))
		}
		return 0, 0, call.networkError(err)
	}
	if resp.StatusCode != http.StatusOK {
		return 0, retryPauseOf(resp), call.failed(resp.StatusCode, providerMessage(body))
	}
	if len(body) > maxCountBody {
		return 0, -1, call.failed(resp.StatusCode, "the response is longer than 1 MiB")
	}
	n, ok := parseCount(body)
	if !ok {
		return 0, -1, call.failed(resp.StatusCode, "the response holds no token count")
	}
	return n, 0, nil
}

func retryPauseOf(resp *http.Response) time.Duration {
	switch {
	case resp.StatusCode == http.StatusRequestTimeout, resp.StatusCode == http.StatusTooManyRequests, resp.StatusCode >= 500:
		sec, err := strconv.Atoi(resp.Header.Get("Retry-After"))
		if err != nil || sec < 0 {
			return 0
		}
		return min(time.Duration(min(sec, 3600))*time.Second, maxRetryAfter)
	}
	return -1
}

// parseCount understands the answer of every provider.
func parseCount(body []byte) (int, bool) {
	var answer struct {
		TotalTokens *int `json:"totalTokens"`  // Gemini
		InputTokens *int `json:"input_tokens"` // OpenAI, Anthropic
	}
	if json.Unmarshal(body, &answer) != nil {
		return 0, false
	}
	n := answer.TotalTokens
	if n == nil {
		n = answer.InputTokens
	}
	if n == nil || *n < 0 || *n > MaxTokens {
		return 0, false
	}
	return *n, true
}

// providerMessage takes the message out of a provider's error.
func providerMessage(body []byte) string {
	var answer struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal(body, &answer) == nil && answer.Error.Message != "" {
		return answer.Error.Message
	}
	return "no message"
}

func (call *countCall) failed(status int, message string) error {
	message = strings.ReplaceAll(message, call.key, "[key]")
	if len(message) > 500 {
		message = strings.ToValidUTF8(message[:500], "") + "…"
	}
	return &CountError{Provider: call.provider, Model: call.model, Status: status, Message: message}
}

// networkError keeps what errors.Is and errors.As find, unless the text has the
// key in it.
func (call *countCall) networkError(err error) error {
	if text := err.Error(); strings.Contains(text, call.key) {
		err = errors.New(strings.ReplaceAll(text, call.key, "[key]"))
	}
	return fmt.Errorf("quota: count tokens of %s model %q: %w", call.provider, call.model, err)
}
