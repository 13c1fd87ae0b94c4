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
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/zlimit/zlimit-go/zlimit"
)

// A field of a message: its name, type and, for messages, the name of the type. Fields are numbered in order.
type field struct {
	name  string
	kind  descriptorpb.FieldDescriptorProto_Type
	of    string
	label descriptorpb.FieldDescriptorProto_Label
}

const (
	textType     = descriptorpb.FieldDescriptorProto_TYPE_STRING
	numberType   = descriptorpb.FieldDescriptorProto_TYPE_UINT64
	flagType     = descriptorpb.FieldDescriptorProto_TYPE_BOOL
	messageType  = descriptorpb.FieldDescriptorProto_TYPE_MESSAGE
	enumType     = descriptorpb.FieldDescriptorProto_TYPE_ENUM
	optional     = descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL
	repeated     = descriptorpb.FieldDescriptorProto_LABEL_REPEATED
	kuadrantName = "kuadrant.service.ratelimit.v1"
)

// The messages of Kuadrant's service that are not Envoy's. Requests begin with two fields of Envoy's requests.
var (
	kuadrantMessages = map[string][]field{
		"ReserveRequest": {
			{"domain", textType, "", optional},
			{"descriptors", messageType, ".envoy.extensions.common.ratelimit.v3.RateLimitDescriptor", repeated},
			{"amount", numberType, "", optional},
			{"ttl", messageType, ".google.protobuf.Duration", optional},
		},
		"ReserveResponse": {{"code", enumType, ".envoy.service.ratelimit.v3.RateLimitResponse.Code", optional}, {"reservation_id", textType, "", optional}},
		"CommitRequest": {
			{"domain", textType, "", optional},
			{"descriptors", messageType, ".envoy.extensions.common.ratelimit.v3.RateLimitDescriptor", repeated},
			{"reservation_id", textType, "", optional},
			{"actual_amount", numberType, "", optional},
		},
		"CommitResponse": {{"reservation_released", flagType, "", optional}},
	}
	kuadrantFile = kuadrantProto()
)

// kuadrantProto returns the file of the messages.
func kuadrantProto() protoreflect.FileDescriptor {
	file := &descriptorpb.FileDescriptorProto{
		Name: proto.String("zlimit/kuadrantrls.proto"), Package: proto.String(kuadrantName), Syntax: proto.String("proto3"),
		Dependency: []string{"envoy/extensions/common/ratelimit/v3/ratelimit.proto", "envoy/service/ratelimit/v3/rls.proto", "google/protobuf/duration.proto"},
	}
	for name, fields := range kuadrantMessages {
		message := &descriptorpb.DescriptorProto{Name: proto.String(name)}
		for i, f := range fields {
			d := &descriptorpb.FieldDescriptorProto{Name: proto.String(f.name), Number: proto.Int32(int32(i + 1)), Type: f.kind.Enum(), Label: f.label.Enum()}
			if f.of != "" {
				d.TypeName = proto.String(f.of)
			}
			message.Field = append(message.Field, d)
		}
		file.MessageType = append(file.MessageType, message)
	}
	built, err := protodesc.NewFile(file, protoregistry.GlobalFiles)
	if err != nil {
		panic(err) // the messages are constants
	}
	return built
}

// A message is one of Kuadrant's messages.
type message struct{ *dynamicpb.Message }

func newMessage(name string) message {
	return message{dynamicpb.NewMessage(kuadrantFile.Messages().ByName(protoreflect.Name(name)))}
}

func (m message) get(name string) protoreflect.Value {
	return m.Get(m.Descriptor().Fields().ByName(protoreflect.Name(name)))
}

func (m message) set(name string, value any) {
	m.Set(m.Descriptor().Fields().ByName(protoreflect.Name(name)), protoreflect.ValueOf(value))
}

// request returns the domain and the descriptors as a request of Envoy, each with an amount of hits.
func (m message) request(amount uint64) (*pb.RateLimitRequest, error) {
	data, err := proto.Marshal(m.Message)
	if err != nil {
		return nil, err
	}
	var r pb.RateLimitRequest
	if err := proto.Unmarshal(data, &r); err != nil {
		return nil, err
	}
	r.HitsAddend = 0 // which has the number of another field
	for _, d := range r.GetDescriptors() {
		d.HitsAddend = wrapperspb.UInt64(amount)
	}
	return &r, nil
}

// kuadrantService describes the service to gRPC.
func kuadrantService() *grpc.ServiceDesc {
	envoy := func() proto.Message { return new(pb.RateLimitRequest) }
	of := func(name string) func() proto.Message {
		return func() proto.Message { return newMessage(name).Message }
	}
	method := func(name string, in func() proto.Message, call func(*Service, context.Context, proto.Message) (proto.Message, error)) grpc.MethodDesc {
		return grpc.MethodDesc{MethodName: name, Handler: func(s any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
			request := in()
			if err := decode(request); err != nil {
				return nil, err
			}
			handle := func(ctx context.Context, request any) (any, error) {
				return call(s.(*Service), ctx, request.(proto.Message))
			}
			if intercept == nil {
				return handle(ctx, request)
			}
			return intercept(ctx, request, &grpc.UnaryServerInfo{Server: s, FullMethod: "/" + kuadrantName + ".RateLimitService/" + name}, handle)
		}}
	}
	return &grpc.ServiceDesc{
		ServiceName: kuadrantName + ".RateLimitService", HandlerType: (*any)(nil), Metadata: "zlimit/kuadrantrls.proto",
		Methods: []grpc.MethodDesc{
			method("CheckRateLimit", envoy, (*Service).checkRateLimit), method("Report", envoy, (*Service).reportHits),
			method("Reserve", of("ReserveRequest"), (*Service).reserve), method("Commit", of("CommitRequest"), (*Service).commit),
		},
	}
}

// checkRateLimit answers whether limits have the hits of a request, and charges nothing.
func (s *Service) checkRateLimit(ctx context.Context, request proto.Message) (proto.Message, error) {
	r := request.(*pb.RateLimitRequest)
	t, d, asks, caller, err := s.read(ctx, r)
	if err != nil {
		return nil, err
	}
	for i := range asks {
		asks[i].question = true
	}
	refused, err := s.decide(ctx, caller, d, asks)
	if err != nil {
		return nil, statusOf(err)
	}
	return s.answer(t, d, r, asks, refused, "")
}

// reportHits charges hits that are known, whatever is left.
func (s *Service) reportHits(ctx context.Context, request proto.Message) (proto.Message, error) {
	r := request.(*pb.RateLimitRequest)
	t, d, asks, _, err := s.read(ctx, r)
	if err != nil {
		return nil, err
	}
	for i := range asks {
		if err := s.owe(ctx, &asks[i]); err != nil {
			return nil, statusOf(err)
		}
	}
	return s.answer(t, d, r, asks, false, "")
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

// reserve charges an estimate, and returns its lease as the ID of the reservation.
func (s *Service) reserve(ctx context.Context, request proto.Message) (proto.Message, error) {
	m := message{request.(*dynamicpb.Message)}
	r, err := m.request(m.get("amount").Uint())
	if err != nil {
		return nil, err
	}
	ttl, err := m.ttl()
	if err != nil {
		return nil, err
	}
	t, d, asks, caller, err := s.read(ctx, r)
	if err != nil {
		return nil, err
	}
	held := *d
	switch {
	case ttl != 0:
		held.Lease = min(max(ttl, zlimit.MinTokenTime), zlimit.MaxTokenTime)
	case held.Lease == 0:
		held.Lease = defaultTTL
	}
	refused, err := s.decide(ctx, caller, &held, asks)
	out := newMessage("ReserveResponse")
	if err != nil {
		return nil, statusOf(err)
	}
	if refused && !t.shadow {
		out.set("code", protoreflect.EnumNumber(pb.RateLimitResponse_OVER_LIMIT))
		return out.Message, nil
	}
	for i := range asks { // an estimate of nothing is settled, too
		if a := &asks[i]; a.kind == askLimit && a.question && !a.refused {
			if a.lease, err = s.hold(ctx, a); err != nil {
				return nil, statusOf(err)
			}
		}
	}
	id, err := s.handOn(ctx, caller, &held, asks)
	if err != nil {
		return nil, statusOf(err)
	}
	s.count(ctx, t, d, asks)
	out.set("code", protoreflect.EnumNumber(pb.RateLimitResponse_OK))
	out.set("reservation_id", id)
	return out.Message, nil
}

// ttl returns the time of a reservation, 0 for none.
func (m message) ttl() (time.Duration, error) {
	at := m.Descriptor().Fields().ByName("ttl")
	if !m.Has(at) {
		return 0, nil
	}
	data, err := proto.Marshal(m.Get(at).Message().Interface())
	if err != nil {
		return 0, err
	}
	var d durationpb.Duration
	if err := proto.Unmarshal(data, &d); err != nil {
		return 0, err
	}
	if d.CheckValid() != nil || d.AsDuration() <= 0 {
		return 0, invalid("ttl", d.AsDuration().String(), "must be above 0")
	}
	return d.AsDuration(), nil
}

// commit settles a reservation. Without one, the actual amount is charged as by reportHits. A reservation that has expired keeps its
// estimate.
func (s *Service) commit(ctx context.Context, request proto.Message) (proto.Message, error) {
	m := message{request.(*dynamicpb.Message)}
	actual, out := m.get("actual_amount").Uint(), newMessage("CommitResponse")
	if id := m.get("reservation_id").String(); id != "" {
		settled := &pb.RateLimitRequest{Domain: m.get("domain").String(), Descriptors: []*common.RateLimitDescriptor{{HitsAddend: wrapperspb.UInt64(actual)}}}
		err := s.settleReservation(ctx, settled, id)
		if status.Code(statusOf(err)) == codes.FailedPrecondition && !errors.Is(err, errNoSigner) {
			return out.Message, nil
		}
		if err != nil {
			return nil, statusOf(err)
		}
		out.set("reservation_released", true)
		return out.Message, nil
	}
	r, err := m.request(actual)
	if err != nil {
		return nil, err
	}
	_, err = s.reportHits(ctx, r)
	return out.Message, err
}

// settleReservation settles a reservation by its ID.
func (s *Service) settleReservation(ctx context.Context, r *pb.RateLimitRequest, id string) error {
	caller, err := s.caller(ctx)
	if err != nil {
		return err
	}
	a := ask{kind: askSettlement, sealed: id}
	if err := a.readHits(r, r.GetDescriptors()[0]); err != nil {
		return err
	}
	return s.settle(ctx, caller, &a)
}
