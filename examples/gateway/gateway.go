package main

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
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

// A provider is where calls of models go, with the field of the key that the organization has there.
type provider struct {
	base   string
	header string
	key    string
}

// providers are those that are known, by the first segment of the gateway's paths. Their keys come from the environment.
func providers(env func(string) string) map[string]provider {
	return map[string]provider{
		"openai":    {"https://api.openai.com", "Authorization", "Bearer " + env("OPENAI_API_KEY")},
		"anthropic": {"https://api.anthropic.com", "X-Api-Key", env("ANTHROPIC_API_KEY")},
		"gemini":    {"https://generativelanguage.googleapis.com", "X-Goog-Api-Key", env("GEMINI_API_KEY")},
	}
}

// A gateway passes calls of models on, as far as the limits of teams allow.
type gateway struct {
	http.Handler
	models *llm.Transport
}

// newGateway returns a gateway before providers. A key that is known takes one request for each call, and tokens of the
// model that is called; so does its team.
func newGateway(limiter *zlimit.RateLimiter, to map[string]provider, logger *slog.Logger) (*gateway, error) {
	registry := prometheus.NewRegistry()
	metrics, err := exporter.New(exporter.WithRegisterer(registry))
	if err != nil {
		return nil, err
	}
	usage, err := otelzlimit.Usage(metric.NewMeterProvider(metric.WithReader(metrics)))
	if err != nil {
		return nil, err
	}
	transport, err := llm.NewTransport(limiter, llm.FromContext,
		llm.WithLimit("tokens", llm.PerToken), llm.WithModels(models...),
		llm.WithIncludeUsage(), llm.WithDrain(1<<20, 30*time.Second),
		llm.WithObserver(usage), llm.WithLogger(logger))
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /ready", func(w http.ResponseWriter, r *http.Request) {
		if err := limiter.Ping(r.Context()); err != nil {
			httplimit.Refuse(w, r, err)
		}
	})
	limit := httplimit.New(limiter, httplimit.Requests("gateway", "requests", tenant), httplimit.WithLogger(logger))
	for name, p := range to {
		proxy, err := newProxy(p, transport, logger)
		if err != nil {
			return nil, err
		}
		mux.Handle("POST /"+name+"/", timely(bodyTimeout, limit(http.StripPrefix("/"+name, proxy))))
	}
	return &gateway{mux, transport}, nil
}

// newProxy returns what passes requests on to a provider, event by event.
func newProxy(p provider, transport http.RoundTripper, logger *slog.Logger) (http.Handler, error) {
	base, err := url.Parse(p.base)
	if err != nil {
		return nil, err
	}
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(base)
			r.Out.Header.Del("Authorization") // the key of the tenant is none of the provider's business
			r.Out.Header.Set(p.header, p.key)
			entity, _ := tenant(r.In) // which the middleware has found before
			r.Out = r.Out.WithContext(llm.ContextWithEntity(r.Out.Context(), entity))
		},
		Transport:     transport,
		FlushInterval: -1,
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if errors.Is(err, errLate) {
				http.Error(w, "the body of the request did not come in time", http.StatusRequestTimeout)
				return
			}
			if httplimit.ProblemOf(err).Status == http.StatusInternalServerError {
				logger.Error("the provider did not answer", "path", r.URL.Path, "error", err)
				http.Error(w, "the provider did not answer", http.StatusBadGateway)
				return
			}
			httplimit.Refuse(w, r, err)
		},
	}, nil
}

// bodyTimeout bounds how long the body of a request may take. The answer may take longer, since models stream. A test
// shortens it.
var bodyTimeout = 30 * time.Second

// errLate says that a body did not come in time.
var errLate = errors.New("the body did not come in time")

// timely bounds the time in which a handler is sent the body of a request. A time-out of the server would bound the answer
// as well.
func timely(timeout time.Duration, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		if err := control.SetReadDeadline(time.Now().Add(timeout)); err != nil {
			http.Error(w, "internal error", http.StatusInternalServerError)
			return
		}
		r.Body = &timelyBody{r.Body, control}
		next.ServeHTTP(w, r)
	})
}

// A timelyBody has a deadline, which ends with the body.
type timelyBody struct {
	io.ReadCloser
	control *http.ResponseController
}

func (b *timelyBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = errLate
	case errors.Is(err, io.EOF):
		_ = b.control.SetReadDeadline(time.Time{}) // which fails for a connection that is gone
	}
	return n, err
}

// tenant finds who asks, by the key that the request brings.
func tenant(r *http.Request) (string, error) {
	_, key, _ := strings.Cut(r.Header.Get("Authorization"), "Bearer ")
	if t, ok := keys[key]; ok && key != "" {
		return t, nil
	}
	return "", &httplimit.KeyError{Source: "header Authorization", Reason: "is not known"}
}
