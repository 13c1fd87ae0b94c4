package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	prom "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/zlimit/zlimit-go/envoylimit"
	"github.com/zlimit/zlimit-go/otelzlimit"
	"github.com/zlimit/zlimit-go/server/internal/api"
	"github.com/zlimit/zlimit-go/server/internal/auth"
	"github.com/zlimit/zlimit-go/zlimit"
	_ "github.com/zlimit/zlimit-go/zlimit/dynamo" // the store dynamodb:
	"github.com/zlimit/zlimit-go/zlimit/leasetoken"
	"github.com/zlimit/zlimit-go/zlimit/recent"
	_ "github.com/zlimit/zlimit-go/zlimit/sqlite" // the store sqlite:
)

// A Server is a zlimitd. It is safe for concurrent use.
type Server struct {
	config   *Config
	logger   *slog.Logger
	limiter  *zlimit.RateLimiter
	others   map[string]*zlimit.RateLimiter // of further namespaces
	gateways *envoylimit.Service
	tls      atomic.Pointer[tls.Config]
	callers  atomic.Pointer[auth.Callers]
	held     *leasetoken.Held // for the dashboard; nil without one
	signer   *leasetoken.Signer
	health   *health.Server
	grpc     *grpc.Server
	http     *http.Server
	ports    [2]net.Listener // gRPC and HTTP
	draining atomic.Bool
	ending   chan struct{} // closed when requests that wait, and streams, end
	watches  chan struct{} // a place for each stream of gRPC
	ping     func(context.Context) error
}

// New opens the store, stores the limits of the files, and listens. The caller ends it by [Server.Run].
func New(ctx context.Context, config *Config, logger *slog.Logger, opts ...zlimit.Option) (_ *Server, err error) {
	s := &Server{config: config, logger: logger, health: health.NewServer(), ending: make(chan struct{}), watches: make(chan struct{}, maxWatches), others: map[string]*zlimit.RateLimiter{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if err := s.secure(config); err != nil {
		return nil, err
	}
	registry := prom.NewRegistry()
	exporter, err := prometheus.New(prometheus.WithRegisterer(registry))
	if err != nil {
		return nil, err
	}
	meter := metric.NewMeterProvider(metric.WithReader(exporter))
	observer, err := otelzlimit.New(meter)
	if err != nil {
		return nil, err
	}
	events, seen := api.NewEvents(), recent.New(nil)
	observed := func(namespace string, more ...zlimit.Observer) []zlimit.Option {
		own := []zlimit.Option{zlimit.WithObserver(zlimit.Observers(append(more, observer, events.Observer(namespace))...))}
		if config.Setup {
			own = append(own, zlimit.WithSetup())
		}
		return own
	}
	own := []zlimit.Option{zlimit.WithLogger(logger), zlimit.WithConfigTTL(configTTL)}
	if config.Dashboard { // it shows the namespace of the file alone
		s.held = leasetoken.NewHeld(nil)
		own = slices.Concat(own, observed(config.Namespace, seen.Observe), []zlimit.Option{zlimit.WithRejectionReports(zlimit.RejectionReports{})})
	} else {
		own = append(own, observed(config.Namespace)...)
	}
	if s.limiter, err = zlimit.Open(ctx, config.Store, append(append(own, opts...), zlimit.WithNamespace(config.Namespace))...); err != nil {
		return nil, err
	}
	s.ping = rarely(s.limiter.Ping)
	for _, name := range config.Namespaces {
		if s.others[name], err = s.limiter.Namespace(ctx, name, observed(name)...); err != nil {
			return nil, fmt.Errorf("namespaces: %q: %w", name, err)
		}
	}
	if s.gateways, err = envoylimit.New(ctx, s.limiter, &config.RateLimit, envoylimit.WithCallers(s.gateway), envoylimit.WithNamespace(config.Namespace),
		envoylimit.WithSigner(s.signer), envoylimit.WithHeld(s.held), envoylimit.WithMeterProvider(meter), envoylimit.WithLogger(logger)); err != nil {
		return nil, err
	}
	for i, address := range []string{config.GRPC, config.HTTP} {
		if s.ports[i], err = net.Listen("tcp", address); err != nil {
			return nil, err
		}
	}
	var people http.Handler
	if config.Dashboard {
		if people, err = s.page(seen); err != nil {
			return nil, err
		}
	}
	s.build(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), events, people) //nolint:contextcheck // handlers have the contexts of their requests
	return s, nil
}

// secure takes the callers, certificates and signing keys of a config.
func (s *Server) secure(config *Config) error {
	secure, err := config.TLS.config(len(config.Callers) > 0)
	if err != nil {
		return err
	}
	callers, err := config.callers()
	if err != nil {
		return err
	}
	keys, err := config.keys()
	if err != nil {
		return err
	}
	switch {
	case s.signer == nil:
		s.signer, err = leasetoken.NewSigner(keys...)
	case len(config.SigningKeys) > 0: // a random key stays
		err = s.signer.SetKeys(keys...)
	}
	if err != nil {
		return err
	}
	s.tls.Store(secure)
	s.callers.Store(callers)
	return nil
}

// maxWatches bounds the streams of gRPC.
const maxWatches = 1000

// configTTL is how long a server uses stored limits from memory, which the dashboard names.
const configTTL = time.Minute

// maxMessage bounds a request of gRPC, and a body of HTTP.
const maxMessage = 64 << 10

// build registers the services at both ports.
func (s *Server) build(metrics http.Handler, events *api.Events, people http.Handler) {
	options := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxConcurrentStreams(10_000), grpc.ConnectionTimeout(10 * time.Second),
		grpc.UnaryInterceptor(s.guard), grpc.StreamInterceptor(s.watch),
	}
	if s.tls.Load() != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(s.currentTLS())))
	}
	s.grpc = grpc.NewServer(options...)
	s.gateways.Register(s.grpc)
	healthpb.RegisterHealthServer(s.grpc, s.health)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { plain(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", s.ready)
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		if p, err := s.callers.Load().ByRequest(r); err != nil || !p.May(auth.Read) {
			plain(w, http.StatusForbidden, "the caller needs the role read")
			return
		}
		metrics.ServeHTTP(w, r)
	})
	mux.Handle("/v1/", api.New(api.Options{
		Limiter: s.limiter, Namespace: s.config.Namespace, Namespaces: s.others, Callers: s.callers.Load, Tokens: s.signer, Held: s.held, Events: events, Logger: s.logger, Draining: s.ending,
	}))
	if people != nil {
		mux.Handle("/", people)
	}
	s.http = &http.Server{
		Handler: api.ExactPaths(mux), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, WriteTimeout: 2 * time.Minute, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: maxMessage,
		ErrorLog:       slog.NewLogLogger(s.logger.Handler(), slog.LevelWarn),
	}
}

// maxCall bounds a call of gRPC, also of a client that sets no deadline.
const maxCall = 30 * time.Second

// guard bounds the time of a call, and answers one that panics, which would end the process.
func (s *Server) guard(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (answer any, err error) {
	ctx, cancel := context.WithTimeout(ctx, maxCall)
	defer cancel()
	defer func() {
		if reason := recover(); reason != nil {
			s.logger.ErrorContext(ctx, "a call panicked", "method", info.FullMethod, "panic", reason, "stack", string(debug.Stack()))
			answer, err = nil, status.Error(codes.Internal, "internal error")
		}
	}()
	return handle(ctx, request)
}

// A watched is a stream with another context.
type watched struct {
	grpc.ServerStream
	context func() context.Context
}

func (w watched) Context() context.Context { return w.context() }

// watch bounds the streams, which are of clients that watch the health, and ends them at a drain. The clients know by then.
func (s *Server) watch(service any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	select {
	case s.watches <- struct{}{}:
		defer func() { <-s.watches }()
	default:
		return status.Error(codes.ResourceExhausted, "too many clients watch the health")
	}
	ctx, cancel := api.Until(stream.Context(), s.ending)
	defer cancel()
	return handle(service, watched{stream, func() context.Context { return ctx }})
}

// currentTLS is the config of connections, which takes the certificates of the last reload.
func (s *Server) currentTLS() *tls.Config {
	c := s.tls.Load().Clone()
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return s.tls.Load(), nil }
	return c
}

// ready answers 200 while the server takes requests and its store answers.
func (s *Server) ready(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
	defer cancel()
	switch err := s.ping(ctx); {
	case s.draining.Load():
		plain(w, http.StatusServiceUnavailable, "the server is draining")
	case err != nil:
		s.logger.WarnContext(ctx, "the store does not answer", "error", err)
		plain(w, http.StatusServiceUnavailable, "the store does not answer")
	default:
		plain(w, http.StatusOK, "ok")
	}
}

// rarely calls a function at most once a second, and returns its last answer meanwhile: anybody may ask whether the server is ready, and the
// store is asked at a price.
func rarely(ask func(context.Context) error) func(context.Context) error {
	var mu sync.Mutex
	var next time.Time
	var last error
	return func(ctx context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		if time.Now().Before(next) {
			return last
		}
		if err := ask(ctx); !errors.Is(ctx.Err(), context.Canceled) { // a client that is gone says nothing of the store
			last, next = err, time.Now().Add(time.Second)
			return err
		}
		return ctx.Err()
	}
}

// plain writes an answer of one line.
func plain(w http.ResponseWriter, code int, line string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = fmt.Fprintln(w, line)
}

// GRPCAddr and HTTPAddr return the addresses that the server listens on.
func (s *Server) GRPCAddr() string { return s.ports[0].Addr().String() }

// HTTPAddr is documented at [Server.GRPCAddr].
func (s *Server) HTTPAddr() string { return s.ports[1].Addr().String() }

// Run serves until the context ends, drains, and closes the store. It returns an error if a port fails, or if requests are left after
// the timeout.
func (s *Server) Run(ctx context.Context) error {
	failed := make(chan error, 2)
	go func() { failed <- s.grpc.Serve(s.ports[0]) }()
	go func() {
		port := s.ports[1]
		if s.tls.Load() != nil {
			port = tls.NewListener(port, s.currentTLS())
		}
		failed <- s.http.Serve(port)
	}()
	s.logger.InfoContext(ctx, "zlimitd serves", "grpc", s.GRPCAddr(), "http", s.HTTPAddr())
	var err error
	select {
	case <-ctx.Done():
		err = s.drain(context.WithoutCancel(ctx))
	case err = <-failed:
		s.grpc.Stop()
		err = errors.Join(err, s.http.Close())
	}
	return errors.Join(err, s.close())
}

// drain ends the server as [Drain] says.
func (s *Server) drain(ctx context.Context) error {
	s.draining.Store(true)
	s.health.Shutdown() // NOT_SERVING
	s.logger.InfoContext(ctx, "zlimitd drains", "delay", s.config.Drain.Delay, "timeout", s.config.Drain.Timeout)
	time.Sleep(s.config.Drain.Delay)
	close(s.ending)
	ctx, cancel := context.WithTimeout(ctx, s.config.Drain.Timeout)
	defer cancel()
	ended := make(chan struct{})
	go func() {
		s.grpc.GracefulStop()
		close(ended)
	}()
	err := s.http.Shutdown(ctx)
	select {
	case <-ended:
	case <-ctx.Done():
		s.grpc.Stop()
		<-ended
		err = errors.Join(err, errors.New("requests were left after drain.timeout"))
	}
	return err
}

// close closes what New opened.
func (s *Server) close() error {
	var err error
	for _, port := range s.ports {
		if port != nil {
			if e := port.Close(); !errors.Is(e, net.ErrClosed) {
				err = errors.Join(err, e)
			}
		}
	}
	for _, limiter := range s.others {
		if limiter != nil {
			err = errors.Join(err, limiter.Close())
		}
	}
	if s.limiter != nil {
		err = errors.Join(err, s.limiter.Close())
	}
	return err
}

// Reload enforces the limits of another config, and takes its callers, signing keys and certificates. A change of the store, the
// namespace or a port needs a restart, and is an error. After an error, everything stays as it was.
func (s *Server) Reload(ctx context.Context, config *Config) error {
	if old := s.config; config.Store != old.Store || config.Namespace != old.Namespace || !slices.Equal(config.Namespaces, old.Namespaces) || config.Setup != old.Setup ||
		config.GRPC != old.GRPC || config.HTTP != old.HTTP || config.Dashboard != old.Dashboard || config.Drain != old.Drain ||
		config.authenticates() != old.authenticates() || (config.TLS.Certificate == "") != (old.TLS.Certificate == "") {
		return errors.New("store, namespace, namespaces, setup, grpc, http, dashboard, drain, and whether there are callers and tls cannot be changed by a reload: restart the server")
	}
	if _, err := config.TLS.config(false); err != nil { // before anything changes
		return err
	}
	if err := s.gateways.Reload(ctx, &config.RateLimit); err != nil {
		return err
	}
	return s.secure(config)
}
