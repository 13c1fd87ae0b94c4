package rls

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"go.opentelemetry.io/otel/metric"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/zlimit/zlimit-go/server/internal/auth"
	"github.com/zlimit/zlimit-go/server/internal/token"
	"github.com/zlimit/zlimit-go/zlimit"
)

// Options are what a [Service] works with.
type Options struct {
	Limiter *zlimit.RateLimiter
	// Namespace is that of the limiter, which callers must be allowed to use.
	Namespace string
	// Tokens returns the signer of leases for now; nil if no domain has leases, and no caller reserves.
	Tokens func() *token.Signer
	// Open remembers the leases that are handed out, until they are settled; nil if no one does.
	Open *token.Open
	// Meter counts the hits of limits; nil for none.
	Meter metric.MeterProvider
	// Now is the clock of answers; [time.Now] without it.
	Now    func() time.Time
	Logger *slog.Logger
}

// A Service is Envoy's rate limit service v3. It is safe for concurrent use.
type Service struct {
	pb.UnimplementedRateLimitServiceServer
	options Options
	table   atomic.Pointer[table]
	counter metric.Int64Counter
}

// New returns a service that enforces a config, whose limits it stores. It costs what [zlimit.LimitService.Apply] costs.
func New(ctx context.Context, config *Config, options Options) (*Service, error) {
	s := &Service{options: options}
	if s.options.Now == nil {
		s.options.Now = time.Now
	}
	s.options.Logger = cmp.Or(s.options.Logger, slog.New(slog.DiscardHandler))
	if m := s.options.Meter; m != nil {
		var err error
		if s.counter, err = m.Meter(scope).Int64Counter("zlimitd.ratelimit.hits",
			metric.WithDescription("Hits by domain, limit and result: within, near, over or shadow."), metric.WithUnit("{hit}")); err != nil {
			return nil, err
		}
	}
	return s, s.Reload(ctx, config)
}

const scope = "github.com/zlimit/zlimit-go/server"

// Register serves the service at a gRPC server, and Kuadrant's service beside it.
func (s *Service) Register(server grpc.ServiceRegistrar) {
	pb.RegisterRateLimitServiceServer(server, s)
	reserver{s}.register(server)
}

// Reload checks a config, stores its limits, and enforces it from then on. After an error, the service goes on with the config that it
// has. Limits that an operator has changed in the store since are left alone, and logged.
func (s *Service) Reload(ctx context.Context, config *Config) error {
	t, err := config.table()
	if err != nil {
		return err
	}
	if len(t.declarations) > 0 {
		applied, err := s.options.Limiter.Limits.Apply(ctx, t.declarations...)
		if err != nil {
			return err
		}
		s.options.Logger.InfoContext(ctx, "limits of files are stored", "limits", len(t.declarations), "changed", len(applied.Set))
		if len(applied.Kept) > 0 {
			s.options.Logger.WarnContext(ctx, "limits differ from their files, since they were changed in the store; the stored ones hold", "resources", applied.Kept)
		}
		s.options.Limiter.Limits.InvalidateAll()
	}
	s.table.Store(t)
	return nil
}

// MaxDescriptors bounds the descriptors of a request.
const MaxDescriptors = 16

// A turn is a request that is being answered.
type turn struct {
	*table
	*domain

	request *pb.RateLimitRequest
	caller  *auth.Principal
	asks    []ask
	refused bool   // the asks say by which of them
	lease   string // of the estimates, as a token; "" for none
}

// ShouldRateLimit decides a request. It costs what [zlimit.RateLimiter.Acquire] costs for each descriptor with a limit.
func (s *Service) ShouldRateLimit(ctx context.Context, r *pb.RateLimitRequest) (*pb.RateLimitResponse, error) {
	t, err := s.read(ctx, r)
	if err != nil {
		return nil, err
	}
	if err := s.decide(ctx, t); err != nil {
		s.options.Logger.WarnContext(ctx, "a request failed", "domain", r.GetDomain(), "error", err)
		return nil, statusOf(err)
	}
	if err := s.handOn(ctx, t); err != nil {
		s.options.Logger.ErrorContext(ctx, "a lease was not made", "domain", r.GetDomain(), "error", err)
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
	for i := range t.asks {
		if entity := t.asks[i].request.Entity; entity != "" && !t.caller.MayEntity(entity) {
			return nil, status.Errorf(codes.PermissionDenied, "descriptors[%d]: the caller may not use entity %q", i, entity)
		}
	}
	return t, nil
}

// decide asks all limits of a request.
func (s *Service) decide(ctx context.Context, t *turn) (err error) {
	var hard, quotas []*ask
	for i := range t.asks {
		switch a := &t.asks[i]; {
		case a.kind == askSettlement:
			if err := s.settle(ctx, t.caller, a); err != nil {
				return err
			}
		case a.kind == askBlocked:
			a.refused = true
			hard = append(hard, a)
		case a.kind != askLimit:
		case a.limit != nil && a.limit.quota:
			quotas = append(quotas, a)
		default:
			hard = append(hard, a)
		}
	}
	if t.refused, err = s.all(ctx, t.domain, hard); !t.refused && err == nil {
		t.refused, err = s.any(ctx, hard, quotas)
	}
	return err
}

// all asks limits of which each may refuse the request. Unless they are counted one by one, all are charged or none.
func (s *Service) all(ctx context.Context, d *domain, asks []*ask) (refused bool, err error) {
	var charges []*ask
	for _, a := range asks {
		if a.kind == askLimit && !a.question {
			charges = append(charges, a)
			continue
		}
		if a.kind == askLimit {
			if err := s.look(ctx, a); err != nil {
				return false, err
			}
		}
		refused = refused || a.refused
	}
	if d.CountRefused {
		for _, a := range charges {
			if err := s.charge(ctx, a); err != nil {
				return false, err
			}
			refused = refused || a.refused
		}
		return refused, nil
	}
	switch {
	case refused || len(charges) == 0:
		return refused, nil
	case len(charges) == 1:
		err := s.charge(ctx, charges[0])
		return charges[0].refused, err
	}
	requests := make([]zlimit.Request, len(charges))
	for i, a := range charges {
		requests[i] = a.request
	}
	leases, err := s.options.Limiter.AcquireAll(ctx, requests)
	if err != nil {
		return refuse(err, charges...)
	}
	for i, a := range charges {
		a.lease = leases.Of(i)
		a.statuses = a.lease.Statuses()
	}
	return false, nil
}

// any asks quotas, each by itself: the request is refused if all of them refuse it. What other limits were charged is given back then.
func (s *Service) any(ctx context.Context, hard, quotas []*ask) (bool, error) {
	left := len(quotas)
	for _, a := range quotas {
		ask := s.charge
		if a.question {
			ask = s.look
		}
		if err := ask(ctx, a); err != nil {
			s.giveBack(ctx, append(hard, quotas...))
			return false, err
		}
		if a.refused {
			left--
		}
	}
	if len(quotas) > 0 && left == 0 {
		s.giveBack(ctx, hard)
		return true, nil
	}
	return false, nil
}

// charge asks the limits of one descriptor.
func (s *Service) charge(ctx context.Context, a *ask) error {
	lease, err := s.options.Limiter.Acquire(ctx, a.request)
	if err != nil {
		_, err := refuse(err, a)
		return err
	}
	a.lease, a.statuses = lease, lease.Statuses()
	return nil
}

// look answers a question: a descriptor of zero hits is refused if nothing is left.
func (s *Service) look(ctx context.Context, a *ask) error {
	all, err := s.options.Limiter.Available(ctx, zlimit.AvailableQuery{
		Entity: a.request.Entity, Resource: a.request.Resource, Limits: a.request.Limits, Parents: true,
	})
	if err != nil {
		_, err := refuse(err, a)
		return err
	}
	for _, status := range all {
		if _, ok := a.amounts[status.Limit.Name]; !ok {
			continue
		}
		if status.Available < max(1, a.amounts[status.Limit.Name]) && status.Limit.Mode == zlimit.ModeEnforced {
			a.refused, status.Exceeded = true, true
		}
		a.statuses = append(a.statuses, status)
	}
	return nil
}

// refuse notes a refusal at the descriptors that it is of. It returns an error that is no refusal.
func refuse(err error, asks ...*ask) (bool, error) {
	var exceeded *zlimit.ExceededError
	var disabled *zlimit.DisabledError
	switch {
	case errors.As(err, &exceeded):
		found := false
		for _, a := range asks {
			for _, status := range exceeded.Statuses {
				if status.Entity == a.request.Entity && status.Resource == a.request.Resource {
					a.statuses = append(a.statuses, status)
					a.refused = a.refused || status.Exceeded
				}
			}
			found = found || a.refused
		}
		if !found { // by a parent, or a wider resource
			for _, a := range asks {
				a.refused, a.statuses = true, exceeded.Statuses
			}
		}
		return true, nil
	case errors.As(err, &disabled):
		for _, a := range asks {
			a.refused = len(asks) == 1 || a.request.Entity == disabled.Entity
		}
		return true, nil
	}
	return false, err
}

// giveBack gives back what descriptors were charged.
func (s *Service) giveBack(ctx context.Context, asks []*ask) {
	for _, a := range asks {
		if a.lease == nil {
			continue
		}
		if err := a.lease.Rollback(context.WithoutCancel(ctx)); err != nil {
			s.options.Logger.ErrorContext(ctx, "a charge was not given back", "resource", a.request.Resource, "error", err)
		}
		a.lease = nil
	}
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
