package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/zlimit/zlimit-go/httplimit"
	"github.com/zlimit/zlimit-go/llm"
	"github.com/zlimit/zlimit-go/otelzlimit"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A gateway passes calls of models on, as far as the limits of teams allow.
type gateway struct {
	http.Handler
	ring     *keyring
	limiter  *zlimit.RateLimiter
	models   []*llm.Transport
	logger   *slog.Logger
	draining atomic.Bool
}

// newMetrics returns a provider of metrics, and what serves them to Prometheus.
func newMetrics() (*metric.MeterProvider, http.Handler, error) {
	registry := prometheus.NewRegistry()
	reader, err := exporter.New(exporter.WithRegisterer(registry))
	if err != nil {
		return nil, nil, err
	}
	return metric.NewMeterProvider(metric.WithReader(reader)), promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), nil
}

// newGateway returns a gateway before providers. Each call takes one request of its team, and tokens of the model that
// is called; so does it of the organization.
func newGateway(limiter *zlimit.RateLimiter, ring *keyring, to []provider, meters *metric.MeterProvider, metrics http.Handler, logger *slog.Logger) (*gateway, error) {
	usage, err := otelzlimit.Usage(meters)
	if err != nil {
		return nil, err
	}
	g := &gateway{ring: ring, limiter: limiter, logger: logger}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metrics)
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /ready", g.ready)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { g.refuse(w, r, errNoCall) })
	limit := httplimit.New(limiter, httplimit.Requests("gateway", "requests", teamOf), httplimit.WithLogger(logger), httplimit.WithErrorHandler(g.refuse))
	for _, p := range to {
		transport, err := llm.NewTransport(limiter, llm.FromContext,
			llm.WithLimit("tokens", llm.PerToken), llm.WithModels(p.rules...), llm.WithCheck(check),
			llm.WithIncludeUsage(), llm.WithDrain(1<<20, 30*time.Second), llm.WithLearning(account),
			llm.WithResponses(), llm.WithFields(), llm.WithObserver(usage), llm.WithLogger(logger))
		if err != nil {
			return nil, err
		}
		proxy, err := g.newProxy(&p, transport)
		if err != nil {
			return nil, err
		}
		g.models = append(g.models, transport)
		for _, path := range p.calls {
			mux.Handle("POST /"+p.name+path, g.authenticate(timely(bodyTimeout, limit(proxy))))
		}
		mux.Handle("GET /"+p.name+p.catalog, g.authenticate(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			writeJSON(w, http.StatusOK, p.listing(keyOf(r)))
		})))
	}
	g.Handler = mux
	return g, nil
}

// ready answers whether the gateway takes calls: it does not while it ends, or where its limits are out of reach.
func (g *gateway) ready(w http.ResponseWriter, r *http.Request) {
	err := g.limiter.Ping(r.Context())
	if g.draining.Load() {
		err = zlimit.ErrClosed
	}
	if err != nil {
		g.refuse(w, r, err)
	}
}

type keyContext struct{}

// authenticate finds the key of a request before anything else is done.
func (g *gateway) authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		k, err := g.ring.find(r)
		if err != nil {
			g.refuse(w, r, err)
			return
		}
		ctx := llm.ContextWithEntity(context.WithValue(r.Context(), keyContext{}, k), k.Team)
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

func keyOf(r *http.Request) virtualKey {
	k, _ := r.Context().Value(keyContext{}).(virtualKey) // which authenticate has put there
	return k
}

// teamOf is the [httplimit.Key] of calls.
func teamOf(r *http.Request) (string, error) { return keyOf(r).Team, nil }

// check refuses a model that the key of a call is not for.
func check(r *http.Request, c llm.Call) error {
	if k := keyOf(r); !k.allows(c.Model) {
		return &forbiddenError{c.Model}
	}
	return nil
}

// A forbiddenError is a model that a key is not for.
type forbiddenError struct{ model string }

func (e *forbiddenError) Error() string { return "the key is not for model " + e.model }

// errNoCall is a path that the gateway does not pass on.
var errNoCall = errors.New("the gateway does not pass this on; its README lists the calls")

// secrets are the headers and parameters of tenants that are not for providers.
var secrets = []string{"Authorization", "X-Api-Key", "X-Goog-Api-Key", "Cookie", "Openai-Organization", "Openai-Project", "X-Goog-User-Project"}

// newProxy returns what passes requests on to a provider, event by event.
func (g *gateway) newProxy(p *provider, transport http.RoundTripper) (http.Handler, error) {
	base, err := url.Parse(p.base)
	if err != nil {
		return nil, err
	}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			query := r.In.URL.Query()
			query.Del("key")
			to := *base
			to.Path = strings.TrimSuffix(base.Path, "/") + strings.TrimPrefix(r.In.URL.Path, "/"+p.name)
			to.RawQuery = query.Encode()
			r.Out.URL, r.Out.Host = &to, base.Host
			for _, name := range secrets {
				r.Out.Header.Del(name)
			}
			r.Out.Header.Set(p.header, p.key)
		},
		ModifyResponse: hideAccount,
		Transport:      transport,
		FlushInterval:  -1,
		ErrorHandler:   g.refuse,
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !p.passes(r) {
			g.refuse(w, r, errNoCall)
			return
		}
		proxy.ServeHTTP(w, r)
	}), nil
}

// hideAccount removes what the provider tells of the organization's account. [llm.WithLearning] has read it.
func hideAccount(r *http.Response) error {
	for name := range r.Header {
		switch lower := strings.ToLower(name); {
		case strings.HasPrefix(lower, "x-ratelimit-"), strings.Contains(lower, "ratelimit-") && strings.HasPrefix(lower, "anthropic-"),
			strings.HasSuffix(lower, "-organization"), strings.HasSuffix(lower, "-organization-id"), strings.HasSuffix(lower, "-project"), lower == "set-cookie":
			r.Header.Del(name)
		}
	}
	return nil
}

// refuse answers a call that failed, in the form that the SDKs of all providers read.
func (g *gateway) refuse(w http.ResponseWriter, r *http.Request, err error) {
	problem := httplimit.ProblemOf(err)
	status, kind, message := problem.Status, "api_error", problem.Title+". "+problem.Detail
	var forbidden *forbiddenError
	switch {
	case errors.Is(err, errNoCall):
		status, kind, message = http.StatusNotFound, "not_found_error", err.Error()
	case errors.As(err, &forbidden):
		status, kind, message = http.StatusForbidden, "permission_error", err.Error()
	case errors.Is(err, errLate):
		status, kind, message = http.StatusRequestTimeout, "timeout_error", err.Error()
	case status == http.StatusUnauthorized:
		kind = "authentication_error"
		w.Header().Set("WWW-Authenticate", "Bearer")
	case status == http.StatusBadRequest:
		kind = "invalid_request_error"
	case status == http.StatusTooManyRequests:
		kind = "rate_limit_error"
		var exceeded *zlimit.ExceededError
		if errors.As(err, &exceeded) && exceeded.Possible() {
			w.Header().Set("Retry-After", exceeded.RetryAfterHeader())
		}
	case status == http.StatusInternalServerError:
		g.logger.ErrorContext(r.Context(), "the provider did not answer", "path", r.URL.Path, "error", err)
		status, message = http.StatusBadGateway, "the provider did not answer"
	}
	writeJSON(w, status, map[string]any{
		"type": "error", "error": map[string]any{"type": kind, "code": kind, "status": http.StatusText(status), "message": message},
	})
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // a client that is gone
}
