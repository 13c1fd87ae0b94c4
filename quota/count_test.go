package quota_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/quota"
)

const secret = "sk-very-secret-0123456789"

func TestCountTokensSpeaksTheProtocols(t *testing.T) {
	for provider, c := range map[quota.Provider]struct {
		model, path, header, value, body, answer string
	}{
		quota.ProviderGemini: {
			"gemini-2.5-pro", "/v1beta/models/gemini-2.5-pro:countTokens", "X-Goog-Api-Key", secret,
			`{"contents":[{"parts":[{"text":"hi"}]}]}`, `{"totalTokens": 31, "promptTokensDetails": []}`,
		},
		quota.ProviderOpenAI: {
			"gpt-4o", "/v1/responses/input_tokens", "Authorization", "Bearer " + secret,
			`{"input":"hi","model":"gpt-4o"}`, `{"object": "response.input_tokens", "input_tokens": 31}`,
		},
		quota.ProviderAnthropic: {
			"claude-opus-4", "/v1/messages/count_tokens", "X-Api-Key", secret,
			`{"messages":[{"content":"hi","role":"user"}],"model":"claude-opus-4"}`, `{"input_tokens": 31}`,
		},
	} {
		t.Run(string(provider), func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				if r.Method != http.MethodPost || r.URL.Path != "/proxy"+c.path || r.URL.RawQuery != "" {
					t.Errorf("request = %s %s, want POST /proxy%s", r.Method, r.URL, c.path)
				}
				if got := r.Header.Get(c.header); got != c.value {
					t.Errorf("header %s = %q, want %q", c.header, got, c.value)
				}
				if diff := cmp.Diff(c.body, string(body)); diff != "" || r.Header.Get("Content-Type") != "application/json" {
					t.Errorf("body as %s differs (-want +got):\n%s", r.Header.Get("Content-Type"), diff)
				}
				_, _ = io.WriteString(w, c.answer)
			}))
			defer srv.Close()
			got, err := quota.CountTokens(t.Context(), secret, c.model, "hi",
				quota.CountProvider(provider), quota.CountBaseURL(srv.URL+"/proxy/"), quota.CountClient(srv.Client()))
			if err != nil || got != 31 {
				t.Errorf("CountTokens = %d, %v, want 31", got, err)
			}
		})
	}
}

func TestCountTokensFailures(t *testing.T) {
	apiError := func(message string) string {
		b, _ := json.Marshal(map[string]any{"error": map[string]any{"message": message}})
		return string(b)
	}
	for name, c := range map[string]struct {
		handler  http.HandlerFunc
		attempts int64
		says     string
		status   int
	}{
		"a bad key, which the provider repeats": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(401)
			_, _ = io.WriteString(w, apiError("bad key "+secret))
		}, 1, "bad key [key]", 401},
		"an unknown model": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(404)
			_, _ = io.WriteString(w, apiError("no such model"))
		}, 1, "no such model", 404},
		"an overloaded provider": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }, 3, "no message", 503},
		"a provider's rate limit": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(429)
			_, _ = io.WriteString(w, "<html>slow down</html>")
		}, 3, "no message", 429},
		"a redirect, which would take the key along": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/elsewhere", http.StatusTemporaryRedirect)
		}, 1, "no message", 307},
		"an answer that is not JSON": {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "42") }, 1, "no token count", 200},
		"an answer without a count":  {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{}`) }, 1, "no token count", 200},
		"a negative count": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"totalTokens": -1}`)
		}, 1, "no token count", 200},
		"a count beyond the largest": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"totalTokens": 99999999999}`)
		}, 1, "no token count", 200},
		"an answer without an end": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(bytes.Repeat([]byte(" "), 2<<20))
		}, 1, "longer than 1 MiB", 200},
		"a connection that breaks": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, 3, "EOF", 0},
		"a provider that does not answer": {func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		}, 3, "deadline exceeded", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var attempts atomic.Int64
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				attempts.Add(1)
				c.handler(w, r)
			}))
			defer srv.Close()
			timeout := time.Minute
			if c.says == "deadline exceeded" {
				timeout = 150 * time.Millisecond
			}
			_, err := quota.CountTokens(t.Context(), secret, "m", "hi",
				quota.CountBaseURL(srv.URL), quota.CountClient(srv.Client()), quota.CountTimeout(timeout))
			if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), secret) {
				t.Fatalf("CountTokens = %v, want %q and never the key", err, c.says)
			}
			var refused *quota.CountError
			if errors.As(err, &refused) != (c.status != 0) || refused != nil && refused.Status != c.status {
				t.Errorf("CountTokens = %v, want status %d", err, c.status)
			}
			if got := attempts.Load(); got != c.attempts {
				t.Errorf("attempts = %d, want %d", got, c.attempts)
			}
		})
	}
}

func TestCountTokensTriesAgain(t *testing.T) {
	var attempts atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if attempts.Add(1) < 3 || len(body) == 0 {
			w.WriteHeader(500)
			return
		}
		_, _ = io.WriteString(w, `{"totalTokens": 7}`)
	}))
	defer srv.Close()
	if n, err := quota.CountTokens(t.Context(), secret, "m", "hi", quota.CountBaseURL(srv.URL), quota.CountClient(srv.Client())); n != 7 || err != nil {
		t.Errorf("CountTokens = %d, %v, want 7 at the third attempt", n, err)
	}
}

func TestCountTokensEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := quota.CountTokens(ctx, secret, "m", "hi", quota.CountClient(&http.Client{Transport: busy{}}))
		var refused *quota.CountError
		if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &refused) || refused.Status != 429 {
			t.Errorf("CountTokens = %v, want the deadline and the status 429 before it", err)
		}
	})
}

// busy refuses all requests for 20 seconds.
type busy struct{}

func (busy) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: 429, Header: http.Header{"Retry-After": {"20"}}, Body: http.NoBody, Request: r}, nil
}

func TestCountTokensRefusesBadArguments(t *testing.T) {
	unreachable := quota.CountClient(&http.Client{Transport: failing{t}})
	for name, c := range map[string]struct {
		key, model string
		opts       []quota.CountOption
		field      string
	}{
		"no key":                         {"", "m", nil, "api key"},
		"a key with a newline":           {secret + "\n", "m", nil, "api key"},
		"no model":                       {secret, "", nil, "model"},
		"a provider that counts nothing": {secret, "m", []quota.CountOption{quota.CountProvider(quota.ProviderLocal)}, "provider"},
		"a base URL without host":        {secret, "m", []quota.CountOption{quota.CountBaseURL("http://")}, "base URL"},
		"a base URL with a query":        {secret, "m", []quota.CountOption{quota.CountBaseURL("http://h/?k=v")}, "base URL"},
		"a base URL with a password":     {secret, "m", []quota.CountOption{quota.CountBaseURL("http://u:" + secret + "@h")}, "base URL"},
		"a base URL that is none":        {secret, "m", []quota.CountOption{quota.CountBaseURL("http://%zz" + secret)}, "base URL"},
		"no client":                      {secret, "m", []quota.CountOption{quota.CountClient(nil)}, "client"},
		"no time":                        {secret, "m", []quota.CountOption{quota.CountTimeout(0)}, "timeout"},
		"fewer than no retries":          {secret, "m", []quota.CountOption{quota.CountRetries(-1)}, "retries"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := quota.CountTokens(t.Context(), c.key, c.model, "hi", append([]quota.CountOption{unreachable}, c.opts...)...)
			var bad *quota.ValidationError
			if !errors.As(err, &bad) || bad.Field != c.field || strings.Contains(err.Error(), secret) {
				t.Errorf("CountTokens = %v, want a *ValidationError of %s without the key", err, c.field)
			}
		})
	}
}

// failing fails the test when a request gets as far as the network.
type failing struct{ t *testing.T }

func (f failing) RoundTrip(*http.Request) (*http.Response, error) {
	f.t.Error("a request was sent")
	return nil, errors.New("not sent")
}
