package envoylimit

import (
	"context"
	"errors"
	"sync/atomic"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"go.opentelemetry.io/otel/metric"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/zlimit/zlimit-go/zlimit"
)

// A Service is Envoy's rate limit service v3, and Kuadrant's. It is safe for concurrent use.
type Service struct {
	limiter *zlimit.RateLimiter
	options options
	table   atomic.Pointer[table]
	counter metric.Int64Counter // nil for none
}

// New returns a service that enforces a config by a limiter, which outlives the service. It returns an error for a limiter or a config that is
// nil, and for a config that does not pass [Config.Check], before any I/O. It stores the limits of the files, as [Service.Reload] does.
func New(ctx context.Context, l *zlimit.RateLimiter, c *Config, opts ...Option) (*Service, error) {
	if l == nil {
		return nil, errors.New("envoylimit: the limiter must not be nil")
	}
	o, err := optionsOf(opts)
	if err != nil {
		return nil, err
	}
	s := &Service{limiter: l, options: o}
	if m := s.options.meter; m != nil {
		if s.counter, err = m.Meter("github.com/zlimit/zlimit-go/envoylimit").Int64Counter("zlimit.envoy.hits",
			metric.WithDescription("Hits by domain, limit and result: within, near, over or shadow."), metric.WithUnit("{hit}")); err != nil {
			return nil, err
		}
	}
	if err := s.Reload(ctx, c); err != nil {
		return nil, err
	}
	return s, nil
}

// Register serves Envoy's service at a gRPC server, and Kuadrant's beside it.
func (s *Service) Register(server grpc.ServiceRegistrar) {
	pb.RegisterRateLimitServiceServer(server, s)
	reserver{s}.register(server)
}

// Reload checks a config, stores the limits of its files, and enforces it from then on. After an error, the service goes on with the config
// that it has. Limits that an operator has changed in the store since are left alone, and logged. It costs what [zlimit.LimitService.Apply]
// costs: a service that starts again with the same files writes nothing.
func (s *Service) Reload(ctx context.Context, c *Config) error {
	if c == nil {
		return errors.New("envoylimit: the config must not be nil")
	}
	t, err := c.table()
	if err != nil {
		return err
	}
	if len(t.declarations) > 0 {
		applied, err := s.limiter.Limits.Apply(ctx, t.declarations...)
		if err != nil {
			return err
		}
		s.options.logger.InfoContext(ctx, "limits of files are stored", "limits", len(t.declarations), "changed", len(applied.Set))
		if len(applied.Kept) > 0 {
			s.options.logger.WarnContext(ctx, "limits differ from their files, since they were changed in the store; the stored ones hold", "resources", applied.Kept)
		}
		s.limiter.Limits.InvalidateAll()
	}
	s.table.Store(t)
	return nil
}

// A turn is a request that is being answered.
type turn struct {
	*table
	*domain

	request *pb.RateLimitRequest
	caller  Caller
	asks    []ask
	refused bool   // the asks say by which of them
	lease   string // of the estimates, as a token; "" for none
}

// ShouldRateLimit decides a request. Each of its errors has a gRPC status: INVALID_ARGUMENT for a request that breaks a rule, before any
// I/O; UNAVAILABLE while the store does not answer; FAILED_PRECONDITION for a descriptor without stored limits, and for a lease that has
// expired; ALREADY_EXISTS for a lease that was settled by another amount; PERMISSION_DENIED for one of another caller. It costs what
// [zlimit.RateLimiter.Acquire] costs for each descriptor with a limit, and what [zlimit.RateLimiter.Settle] costs for a lease.
func (s *Service) ShouldRateLimit(ctx context.Context, r *pb.RateLimitRequest) (*pb.RateLimitResponse, error) {
	t, err := s.read(ctx, r)
	if err != nil {
		return nil, err
	}
	if err := s.decide(ctx, t); err != nil {
		s.options.logger.WarnContext(ctx, "a request failed", "domain", r.GetDomain(), "error", err)
		return nil, statusOf(err)
	}
	if err := s.handOn(ctx, t); err != nil {
		s.options.logger.ErrorContext(ctx, "a lease was not made", "domain", r.GetDomain(), "error", err)
		return nil, statusOf(err)
	}
	s.count(ctx, t)
	return s.answer(t)
}

// read returns what a request asks, and who asks. It does no I/O. It returns an error for a caller who may not ask it.
func (s *Service) read(ctx context.Context, r *pb.RateLimitRequest) (*turn, error) {
	t := &turn{table: s.table.Load(), request: r}
	var err error
	if t.caller, err = s.caller(ctx); err != nil {
		return nil, err
	}
	if err := t.ask(); err != nil {
		return nil, err
	}
	if t.caller.MayCharge == nil {
		return t, nil
	}
	for i := range t.asks {
		if entity := t.asks[i].request.Entity; entity != "" && !t.caller.MayCharge(entity) {
			return nil, status.Errorf(codes.PermissionDenied, "descriptors[%d]: the caller may not use entity %q", i, entity)
		}
	}
	return t, nil
}

// statusOf returns an error with the gRPC status of an error of the limiter.
func statusOf(err error) error {
	if _, ok := status.FromError(err); ok {
		return err
	}
	code := codes.Internal
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return status.FromContextError(err).Err()
	case errors.As(err, new(*zlimit.ValidationError)):
		code = codes.InvalidArgument
	case errors.Is(err, zlimit.ErrNoLimits), errors.Is(err, zlimit.ErrTokenExpired):
		code = codes.FailedPrecondition
	case errors.Is(err, zlimit.ErrSettled):
		code = codes.AlreadyExists
	case errors.As(err, new(*zlimit.UnavailableError)), errors.Is(err, zlimit.ErrContended), errors.Is(err, zlimit.ErrClosed):
		code = codes.Unavailable
	}
	return status.Error(code, err.Error())
}
