package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
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
	operators http.Handler // /metrics and /ready, which tenants do not reach
	ring      *keyring
	limiter   *zlimit.RateLimiter
	models    []*llm.Transport
	logger    *slog.Logger
	draining  atomic.Bool
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
	mux, operators := http.NewServeMux(), http.NewServeMux()
	operators.Handle("GET /metrics", metrics)
	operators.HandleFunc("GET /ready", g.ready)
	g.operators = operators
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
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
		proxy = g.authenticate(httplimit.BodyTimeout(bodyTimeout)(limit(proxy)))
		for _, path := range p.calls {
			mux.Handle("POST /"+p.name+path, proxy)
		}
		for _, path := range p.polls {
			mux.Handle("GET /"+p.name+path, proxy)
		}
		for _, path := range p.catalogs {
			mux.Handle("GET /"+p.name+path, g.authenticate(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				writeJSON(w, http.StatusOK, p.listing(keyOf(r)))
			})))
		}
	}
	g.Handler = mux
	return g, nil
}

// ready answers whether the gateway takes calls: it does not while it ends, or if its limits are out of reach. It asks the store, which costs
// half a read unit.
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

// check refuses a model that the key of a call is not for, and features whose work is not counted. It is asked about each model that the
// call names.
func check(r *http.Request, c llm.Call) error {
	if k := keyOf(r); !k.allows(c.Model) {
		return &forbiddenError{"the key is not for model " + c.Model}
	}
	for _, beta := range c.Betas { // in the body, as Bedrock has them
		if !slices.Contains(claudeBetas, beta) {
			return &forbiddenError{"the gateway does not pass the beta feature " + beta}
		}
	}
	return nil
}

// A forbiddenError is what a key may not do.
type forbiddenError struct{ reason string }

func (e *forbiddenError) Error() string { return e.reason }

// errNoCall is a path that the gateway does not pass on.
var errNoCall = errors.New("the gateway does not pass this on; its README lists the calls")

// toProvider are the headers passed on from a tenant to a provider, and toTenant those passed back. No other header
// passes: it may name an account, or ask for uncounted work. Of Anthropic-Beta the features pass that are listed with the provider.
var (
	toProvider = headers("Accept", "Accept-Encoding", "Content-Encoding", "Content-Length", "Content-Type", "User-Agent", "Anthropic-Version", "Anthropic-Beta", "Idempotency-Key")
	toTenant   = headers("Cache-Control", "Content-Encoding", "Content-Length", "Content-Type", "Date", "Request-Id", "X-Request-Id", "Retry-After",
		"Retry-After-Ms", "X-Should-Retry", "Ratelimit", "Ratelimit-Policy", "Trailer", "Vary")
)

func headers(names ...string) map[string]bool {
	set := map[string]bool{}
	for _, name := range names {
		set[name] = true
	}
	return set
}

// keep removes all headers but those that are listed.
func keep(h http.Header, listed map[string]bool) {
	maps.DeleteFunc(h, func(name string, _ []string) bool { return !listed[name] })
}

// bodyTimeout bounds how long the body of a request may take, and silence how long an answer that has begun may bring nothing. Tests shorten them.
var (
	bodyTimeout = 30 * time.Second
	silence     = 10 * time.Minute
)

// A watch ends a call whose answer brings nothing for a time, as if the client had left. What the provider has sent is charged.
type watch struct {
	leave context.CancelFunc
	timer atomic.Pointer[time.Timer]
}

type watchContext struct{}

// watched returns a request that a watch may end, and what ends the watch.
func watched(r *http.Request) (*http.Request, func()) {
	ctx, leave := context.WithCancel(r.Context())
	w := &watch{leave: leave}
	return r.WithContext(context.WithValue(ctx, watchContext{}, w)), func() {
		if timer := w.timer.Load(); timer != nil {
			timer.Stop()
		}
		leave()
	}
}

// begin begins to watch the body of an answer.
func (w *watch) begin(body io.ReadCloser) io.ReadCloser {
	w.timer.Store(time.AfterFunc(silence, w.leave))
	return &watchedBody{body, w}
}

type watchedBody struct {
	io.ReadCloser
	watch *watch
}

func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.watch.timer.Load().Reset(silence)
	return n, err
}

// newProxy returns what passes requests on to a provider, event by event.
func (g *gateway) newProxy(p *provider, transport http.RoundTripper) (http.Handler, error) {
	base, err := url.Parse(p.base)
	if err != nil {
		return nil, err
	}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			query := r.In.URL.Query()
			maps.DeleteFunc(query, func(name string, _ []string) bool { return name != "alt" && name != "beta" })
			to := *base
			to.Path = strings.TrimSuffix(base.Path, "/") + strings.TrimPrefix(r.In.URL.Path, "/"+p.name)
			to.RawQuery = query.Encode()
			r.Out.URL, r.Out.Host = &to, base.Host
			keep(r.Out.Header, toProvider)
			if p.betas == nil {
				r.Out.Header.Del("Anthropic-Beta")
			}
			r.Out.Header.Set(p.header, p.key)
		},
		ModifyResponse: func(r *http.Response) error {
			keep(r.Header, toTenant)
			if w, ok := r.Request.Context().Value(watchContext{}).(*watch); ok {
				r.Body = w.begin(r.Body)
			}
			return nil
		},
		Transport:     transport,
		FlushInterval: -1,
		ErrorHandler:  g.refuse,
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !p.passes(r) {
			g.refuse(w, r, errNoCall)
			return
		}
		if beta := p.beta(r); beta != "" {
			g.refuse(w, r, &forbiddenError{"the gateway does not pass the beta feature " + beta})
			return
		}
		r, end := watched(r)
		defer end()
		proxy.ServeHTTP(w, r)
	}), nil
}

// refuse answers a call that failed, in the form of its provider.
func (g *gateway) refuse(w http.ResponseWriter, r *http.Request, err error) {
	var forbidden *forbiddenError
	switch {
	case errors.Is(err, errNoCall):
		llm.WriteError(w, r, http.StatusNotFound, err.Error())
	case errors.As(err, &forbidden):
		llm.WriteError(w, r, http.StatusForbidden, err.Error())
	case httplimit.ProblemOf(err).Status == http.StatusInternalServerError:
		g.logger.ErrorContext(r.Context(), "the provider did not answer", "path", r.URL.Path, "error", err)
		llm.WriteError(w, r, http.StatusBadGateway, "the provider did not answer")
	default:
		llm.Refuse(w, r, err)
	}
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // a client that is gone
}
