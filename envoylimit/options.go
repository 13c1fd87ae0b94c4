package envoylimit

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/metric"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/leasetoken"
)

// An Option changes how a [Service] works. With nil it leaves the default.
type Option func(*options)

type options struct {
	caller    func(context.Context) (Caller, error)
	namespace string
	signer    *leasetoken.Signer
	held      *leasetoken.Held
	meter     metric.MeterProvider
	now       func() time.Time
	logger    *slog.Logger
}

// optionsOf returns the options, with defaults.
func optionsOf(opts []Option) (options, error) {
	o := options{namespace: zlimit.DefaultNamespace}
	for _, opt := range opts {
		opt(&o)
	}
	if o.caller == nil {
		o.caller = func(context.Context) (Caller, error) { return Caller{}, nil }
	}
	if o.now == nil {
		o.now = time.Now //nolint:forbidigo // as limiters have it
	}
	o.logger = cmp.Or(o.logger, slog.New(slog.DiscardHandler))
	var err error
	if o.signer == nil {
		o.signer, err = leasetoken.NewSigner(leasetoken.RandomKey())
	}
	return o, err
}

// A Caller is who asks a service.
type Caller struct {
	// Name owns the leases that the caller is given: only callers of this name settle them.
	Name string
	// MayCharge reports whether the caller may charge the limits of an entity; nil for a caller that may charge all. It is called at the
	// same time for several requests.
	MayCharge func(entity string) bool
}

// WithCallers sets who a call is of, by the context of its handler: its metadata, or its peer. An error without a gRPC status is answered as
// UNAUTHENTICATED. By default everybody may ask, and settle all leases.
func WithCallers(recognize func(context.Context) (Caller, error)) Option {
	return func(o *options) { o.caller = recognize }
}

// WithSigner sets what signs leases. Processes that settle the leases of one another share its keys. By default leases are signed by
// [leasetoken.RandomKey], and end with the process.
func WithSigner(s *leasetoken.Signer) Option { return func(o *options) { o.signer = s } }

// WithHeld remembers the leases that are handed out, until they are settled; by default no one does.
func WithHeld(h *leasetoken.Held) Option { return func(o *options) { o.held = h } }

// WithNamespace sets the namespace that leases name, that of the limiter; [zlimit.DefaultNamespace] by default.
func WithNamespace(name string) Option { return func(o *options) { o.namespace = name } }

// WithMeterProvider counts hits in the metric zlimit.envoy.hits, with the attributes domain, limit and result, which is within, near, over or
// shadow. By default nothing is counted.
func WithMeterProvider(p metric.MeterProvider) Option { return func(o *options) { o.meter = p } }

// WithLogger sets where failures are reported, and limits that differ from their files; by default nowhere.
func WithLogger(l *slog.Logger) Option { return func(o *options) { o.logger = l } }

// WithClock sets the clock of answers and leases, which should be that of the limiter; [time.Now] by default.
func WithClock(now func() time.Time) Option { return func(o *options) { o.now = now } }

// caller returns who calls. Its errors have a status.
func (s *Service) caller(ctx context.Context) (Caller, error) {
	c, err := s.options.caller(ctx)
	if _, ok := status.FromError(err); !ok {
		err = status.Error(codes.Unauthenticated, err.Error())
	}
	return c, err
}
