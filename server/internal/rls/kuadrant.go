package rls

import (
	"context"
	"errors"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/zlimit/zlimit-go/server/internal/rls/kuadrant"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A reserver is Kuadrant's service, over the limits of a [Service].
type reserver struct{ *Service }

// kuadrantName is the name of the service.
var kuadrantName = string(kuadrant.File_kuadrant_kuadrant_proto.Services().Get(0).FullName())

// kuadrantService is the service as kuadrant.proto has it.
var kuadrantService = grpc.ServiceDesc{
	ServiceName: kuadrantName,
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{
		method("CheckRateLimit", reserver.CheckRateLimit), method("Report", reserver.Report),
		method("Reserve", reserver.Reserve), method("Commit", reserver.Commit),
	},
}

// method describes a method of the service.
func method[Request, Answer any](name string, serve func(reserver, context.Context, *Request) (*Answer, error)) grpc.MethodDesc {
	return grpc.MethodDesc{MethodName: name, Handler: func(service any, ctx context.Context, read func(any) error, through grpc.UnaryServerInterceptor) (any, error) {
		request := new(Request)
		if err := read(request); err != nil {
			return nil, err
		}
		call := func(ctx context.Context, request any) (any, error) {
			return serve(service.(reserver), ctx, request.(*Request))
		}
		if through == nil {
			return call(ctx, request)
		}
		return through(ctx, request, &grpc.UnaryServerInfo{Server: service, FullMethod: "/" + kuadrantName + "/" + name}, call)
	}}
}

// CheckRateLimit answers whether limits have the hits of a request, and charges nothing.
func (s reserver) CheckRateLimit(ctx context.Context, r *pb.RateLimitRequest) (*pb.RateLimitResponse, error) {
	t, err := s.read(ctx, r)
	if err != nil {
		return nil, err
	}
	for i := range t.asks {
		t.asks[i].question = true
	}
	if err := s.decide(ctx, t); err != nil {
		return nil, statusOf(err)
	}
	return s.answer(t)
}

// Report charges hits that are known, whatever is left.
func (s reserver) Report(ctx context.Context, r *pb.RateLimitRequest) (*pb.RateLimitResponse, error) {
	t, err := s.read(ctx, r)
	if err != nil {
		return nil, err
	}
	for i := range t.asks {
		if err := s.owe(ctx, &t.asks[i]); err != nil {
			return nil, statusOf(err)
		}
	}
	return s.answer(t)
}

// owe charges a descriptor unchecked, so that a limit may be left in debt.
func (s *Service) owe(ctx context.Context, a *ask) error {
	if a.kind != askLimit || a.hits == 0 {
		return nil
	}
	lease, err := s.hold(ctx, a)
	if err != nil {
		return err
	}
	if err := lease.Adjust(a.amounts); err != nil {
		return err
	}
	return lease.Commit(ctx)
}

// hold returns a lease of nothing, which a correction charges.
func (s *Service) hold(ctx context.Context, a *ask) (*zlimit.Lease, error) {
	request, nothing := a.request, make(zlimit.Amounts, len(a.amounts))
	for name := range a.amounts {
		nothing[name] = 0
	}
	request.Consume = nothing
	return s.options.Limiter.Acquire(ctx, request)
}

// defaultTTL is how long a reservation without a time, in a domain without leases, may be settled.
const defaultTTL = 10 * time.Minute

// requestOf returns a request of Envoy, whose descriptors have an amount of hits each.
func requestOf(domain string, descriptors []*common.RateLimitDescriptor, amount uint64) *pb.RateLimitRequest {
	for _, d := range descriptors {
		d.HitsAddend = wrapperspb.UInt64(amount)
	}
	return &pb.RateLimitRequest{Domain: domain, Descriptors: descriptors}
}

// Reserve charges an estimate, and returns its lease as the ID of the reservation.
func (s reserver) Reserve(ctx context.Context, r *kuadrant.ReserveRequest) (*kuadrant.ReserveResponse, error) {
	ttl := r.GetTtl().AsDuration()
	if r.GetTtl() != nil && (r.GetTtl().CheckValid() != nil || ttl <= 0) {
		return nil, invalid("ttl", ttl.String(), "must be above 0")
	}
	t, err := s.read(ctx, requestOf(r.GetDomain(), r.GetDescriptors(), r.GetAmount()))
	if err != nil {
		return nil, err
	}
	held := *t.domain
	switch {
	case ttl != 0:
		held.Lease = min(max(ttl, zlimit.MinTokenTime), zlimit.MaxTokenTime)
	case held.Lease == 0:
		held.Lease = defaultTTL
	}
	t.domain = &held
	if err := s.decide(ctx, t); err != nil {
		return nil, statusOf(err)
	}
	if t.refused && !t.shadow {
		return &kuadrant.ReserveResponse{Code: pb.RateLimitResponse_OVER_LIMIT}, nil
	}
	for i := range t.asks { // an estimate of nothing is settled, too
		if a := &t.asks[i]; a.kind == askLimit && a.question && !a.refused {
			if a.lease, err = s.hold(ctx, a); err != nil {
				return nil, statusOf(err)
			}
		}
	}
	if err := s.handOn(ctx, t); err != nil {
		return nil, statusOf(err)
	}
	s.count(ctx, t)
	return &kuadrant.ReserveResponse{Code: pb.RateLimitResponse_OK, ReservationId: t.lease}, nil
}

// Commit settles a reservation. Without one, the actual amount is charged as by Report. A reservation that has expired keeps its
// estimate.
func (s reserver) Commit(ctx context.Context, r *kuadrant.CommitRequest) (*kuadrant.CommitResponse, error) {
	if r.GetReservationId() == "" {
		_, err := s.Report(ctx, requestOf(r.GetDomain(), r.GetDescriptors(), r.GetActualAmount()))
		return &kuadrant.CommitResponse{}, err
	}
	caller, err := s.caller(ctx)
	if err != nil {
		return nil, err
	}
	a := ask{kind: askSettlement, sealed: r.GetReservationId()}
	if err := a.readHits(nil, &common.RateLimitDescriptor{HitsAddend: wrapperspb.UInt64(r.GetActualAmount())}); err != nil {
		return nil, err
	}
	err = s.settle(ctx, caller, &a)
	if status.Code(statusOf(err)) == codes.FailedPrecondition && !errors.Is(err, errNoSigner) {
		return &kuadrant.CommitResponse{}, nil
	}
	if err != nil {
		return nil, statusOf(err)
	}
	return &kuadrant.CommitResponse{ReservationReleased: true}, nil
}
