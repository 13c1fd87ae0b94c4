package envoylimit

import (
	"context"
	"strconv"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/zlimit/zlimit-go/envoylimit/internal/kuadrant"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A reserver is Kuadrant's service, over the limits of a [Service].
type reserver struct{ *Service }

// register serves the methods of the service as kuadrant.proto has it.
func (s reserver) register(server grpc.ServiceRegistrar) {
	service := kuadrant.File().Services().Get(0)
	of := grpc.ServiceDesc{ServiceName: string(service.FullName()), HandlerType: (*any)(nil)}
	envoys := func() *pb.RateLimitRequest { return new(pb.RateLimitRequest) }
	for i := range service.Methods().Len() {
		m := service.Methods().Get(i)
		own := func() kuadrant.Message { return kuadrant.New(m.Input().Name()) }
		serve := map[protoreflect.Name]grpc.MethodHandler{
			"CheckRateLimit": handler(m, envoys, s.CheckRateLimit), "Report": handler(m, envoys, s.Report),
			"Reserve": handler(m, own, s.Reserve), "Commit": handler(m, own, s.Commit),
		}[m.Name()]
		of.Methods = append(of.Methods, grpc.MethodDesc{MethodName: string(m.Name()), Handler: serve})
	}
	server.RegisterService(&of, s)
}

// handler serves a method.
func handler[Request, Answer proto.Message](m protoreflect.MethodDescriptor, empty func() Request, serve func(context.Context, Request) (Answer, error)) grpc.MethodHandler {
	name := "/" + string(m.Parent().FullName()) + "/" + string(m.Name())
	return func(service any, ctx context.Context, read func(any) error, through grpc.UnaryServerInterceptor) (any, error) {
		request := empty()
		if err := read(request); err != nil {
			return nil, err
		}
		call := func(ctx context.Context, _ any) (any, error) { return serve(ctx, request) }
		if through == nil {
			return call(ctx, request)
		}
		return through(ctx, request, &grpc.UnaryServerInfo{Server: service, FullMethod: name}, call)
	}
}

// charges reads a request. In Kuadrant's service Commit alone settles: a lease among the descriptors is an error.
func (s reserver) charges(ctx context.Context, r *pb.RateLimitRequest) (*turn, error) {
	t, err := s.read(ctx, r)
	if err != nil {
		return nil, err
	}
	for i := range t.asks {
		if t.asks[i].kind == askSettlement {
			return nil, invalid("descriptors["+strconv.Itoa(i)+"] key", leaseKey, "must be that of a charge: Commit settles leases")
		}
	}
	return t, nil
}

// CheckRateLimit answers whether limits have the hits of a request, and charges nothing.
func (s reserver) CheckRateLimit(ctx context.Context, r *pb.RateLimitRequest) (*pb.RateLimitResponse, error) {
	t, err := s.charges(ctx, r)
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
	t, err := s.charges(ctx, r)
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
	request := a.request
	request.Consume = nothing(a.amounts)
	return s.limiter.Acquire(ctx, request)
}

// defaultTTL is how long a reservation without a time, in a domain without leases, may be settled.
const defaultTTL = 10 * time.Minute

// requestOf returns the request of Envoy that a message stands for: it has the same domain and descriptors, which have an amount of hits each.
func requestOf(m kuadrant.Message, amount protoreflect.Name) (*pb.RateLimitRequest, error) {
	r := &pb.RateLimitRequest{}
	err := kuadrant.As(m, r)
	r.HitsAddend = 0 // which has the number of another field
	for _, d := range r.Descriptors {
		d.HitsAddend = wrapperspb.UInt64(m.Value(amount).Uint())
	}
	return r, err
}

// Reserve charges an estimate, and returns its lease as the ID of the reservation.
func (s reserver) Reserve(ctx context.Context, m kuadrant.Message) (proto.Message, error) {
	r, err := requestOf(m, "amount")
	if err != nil {
		return nil, err
	}
	t, err := s.charges(ctx, r)
	if err != nil {
		return nil, err
	}
	ttl, given := &durationpb.Duration{}, m.Value("ttl").Message()
	if err := kuadrant.As(given.Interface(), ttl); err != nil {
		return nil, err
	}
	if given.IsValid() && (ttl.CheckValid() != nil || ttl.AsDuration() <= 0) {
		return nil, invalid("ttl", ttl.AsDuration().String(), "must be above 0")
	}
	held := *t.domain
	switch {
	case given.IsValid():
		held.Lease = min(max(ttl.AsDuration(), zlimit.MinTokenTime), zlimit.MaxTokenTime)
	case held.Lease == 0:
		held.Lease = defaultTTL
	}
	t.domain = &held
	if err := s.decide(ctx, t); err != nil {
		return nil, statusOf(err)
	}
	answer := kuadrant.New("ReserveResponse")
	if t.refused && !t.shadow {
		return answer.With("code", pb.RateLimitResponse_OVER_LIMIT.Number()), nil
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
	return answer.With("code", pb.RateLimitResponse_OK.Number()).With("reservation_id", t.lease), nil
}

// Commit settles a reservation. Without one, the actual amount is charged as by Report. A reservation that has expired keeps its
// estimate.
func (s reserver) Commit(ctx context.Context, m kuadrant.Message) (proto.Message, error) {
	r, err := requestOf(m, "actual_amount")
	if err != nil {
		return nil, err
	}
	answer := kuadrant.New("CommitResponse")
	a := ask{kind: askSettlement, sealed: m.Value("reservation_id").String()}
	if a.sealed == "" {
		_, err := s.Report(ctx, r)
		return answer, err
	}
	caller, err := s.caller(ctx)
	if err != nil {
		return nil, err
	}
	if err := a.readHits(nil, &common.RateLimitDescriptor{HitsAddend: wrapperspb.UInt64(m.Value("actual_amount").Uint())}); err != nil {
		return nil, err
	}
	err = s.settle(ctx, caller, &a)
	if status.Code(statusOf(err)) == codes.FailedPrecondition {
		return answer, nil
	}
	return answer.With("reservation_released", true), statusOf(err)
}
