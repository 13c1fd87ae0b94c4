package envoylimit

import (
	"context"
	"net"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/zlimit/zlimit-go/envoylimit/internal/kuadrant"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/leasetoken"
	"github.com/zlimit/zlimit-go/zlimit/zlimittest"
)

// dialKuadrant returns a function that calls a method of Kuadrant's service over the wire.
func dialKuadrant(t *testing.T, s *Service) func(method string, in, out proto.Message) error {
	t.Helper()
	port := check.Call(net.Listen("tcp", "127.0.0.1:0")).Must(t, "net.Listen()")
	server := grpc.NewServer()
	s.Register(server)
	done := make(chan error, 1)
	go func() { done <- server.Serve(port) }()
	conn, err := grpc.NewClient(port.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	check.Fatal(t, "grpc.NewClient()", err)
	t.Cleanup(func() {
		_ = conn.Close()
		server.Stop()
		<-done
	})
	return func(method string, in, out proto.Message) error {
		return conn.Invoke(context.Background(), "/kuadrant.service.ratelimit.v1.RateLimitService/"+method, in, out)
	}
}

// reserveRequest returns the message by its numbers on the wire.
func reserveRequest(t *testing.T, user string, amount uint64, ttl time.Duration) proto.Message {
	t.Helper()
	embedded := func(b []byte, number protowire.Number, m proto.Message) []byte {
		data := check.Call(proto.Marshal(m)).Must(t, "proto.Marshal()")
		return protowire.AppendBytes(protowire.AppendTag(b, number, protowire.BytesType), data)
	}
	b := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "llm")
	b = embedded(b, 2, descriptor("user="+user))
	b = protowire.AppendVarint(protowire.AppendTag(b, 3, protowire.VarintType), amount)
	if ttl != 0 {
		b = embedded(b, 4, durationpb.New(ttl))
	}
	out := kuadrant.New("ReserveRequest")
	check.Fatal(t, "proto.Unmarshal()", proto.Unmarshal(b, out))
	return out
}

func commitRequest(t *testing.T, user, id string, actual uint64) proto.Message {
	t.Helper()
	b := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "llm")
	data := check.Call(proto.Marshal(descriptor("user="+user))).Must(t, "proto.Marshal()")
	b = protowire.AppendBytes(protowire.AppendTag(b, 2, protowire.BytesType), data)
	b = protowire.AppendString(protowire.AppendTag(b, 3, protowire.BytesType), id)
	b = protowire.AppendVarint(protowire.AppendTag(b, 4, protowire.VarintType), actual)
	out := kuadrant.New("CommitRequest")
	check.Fatal(t, "proto.Unmarshal()", proto.Unmarshal(b, out))
	return out
}

func TestKuadrant(t *testing.T) {
	c := &Config{Files: []File{{Name: "llm.yaml", Text: []byte("domain: llm\ndescriptors: [{key: user, rate_limit: {unit: year, requests_per_unit: 1000}}]")}}}
	limiter, clock := zlimittest.New(t)
	held := leasetoken.NewHeld(clock.Now)
	s := check.Call(New(t.Context(), limiter, c, WithClock(clock.Now), WithHeld(held))).Must(t, "New()")
	call := dialKuadrant(t, s)
	left := func(user string) int64 {
		statuses, err := limiter.Available(t.Context(), zlimit.AvailableQuery{Entity: user, Resource: "llm|user"})
		check.Fatal(t, "Available()", err)
		return statuses[0].Available
	}
	count := func(what string, want int) {
		t.Helper()
		if n := len(held.Of(zlimit.DefaultNamespace, "llm|user")); n != want {
			t.Errorf("%d leases are held %s, want %d", n, what, want)
		}
	}
	verify := func(what string, user string, want int64) {
		t.Helper()
		if got := left(user); got != want {
			t.Errorf("left %s = %d, want %d", what, got, want)
		}
	}
	reserve := func(user string, amount uint64, ttl time.Duration) (code pb.RateLimitResponse_Code, id string) {
		t.Helper()
		out := kuadrant.New("ReserveResponse")
		check.Fatal(t, "call()", call("Reserve", reserveRequest(t, user, amount, ttl), out))
		return pb.RateLimitResponse_Code(out.Value("code").Enum()), out.Value("reservation_id").String()
	}
	commit := func(user, id string, actual uint64) (bool, codes.Code) {
		out := kuadrant.New("CommitResponse")
		err := call("Commit", commitRequest(t, user, id, actual), out)
		return out.Value("reservation_released").Bool(), status.Code(err)
	}
	envoy := func(method, user string, hits uint64) pb.RateLimitResponse_Code {
		t.Helper()
		out := new(pb.RateLimitResponse)
		check.Fatal(t, "call()", call(method, &pb.RateLimitRequest{Domain: "llm", Descriptors: list(withHits(descriptor("user="+user), hits))}, out))
		return out.OverallCode
	}
	const ok, over = pb.RateLimitResponse_OK, pb.RateLimitResponse_OVER_LIMIT

	code, id := reserve("ann", 600, time.Minute)
	if code != ok || id == "" {
		t.Fatalf("Reserve = %v, %q", code, id)
	}
	verify("after an estimate", "ann", 400)
	count("after an estimate", 1)
	if code, id := reserve("ann", 600, 0); code != over || id != "" {
		t.Errorf("Reserve of too much = %v, %q", code, id)
	}
	verify("after a refusal", "ann", 400)
	for range 2 {
		if released, failure := commit("ann", id, 250); !released || failure != codes.OK {
			t.Errorf("Commit = %v, %v", released, failure)
		}
		verify("after the actual amount", "ann", 750)
		count("after the actual amount", 0)
	}
	if _, failure := commit("ann", id, 1); failure != codes.AlreadyExists {
		t.Errorf("Commit of another amount = %v", failure)
	}
	if _, failure := commit("ann", id+"x", 1); failure != codes.InvalidArgument {
		t.Errorf("Commit of an altered reservation = %v", failure)
	}

	if code, id = reserve("ann", 0, 0); code != ok || id == "" {
		t.Fatalf("Reserve of nothing = %v, %q", code, id)
	}
	verify("after an estimate of nothing", "ann", 750)
	if released, _ := commit("ann", id, 800); !released {
		t.Error("Commit after an estimate of nothing was not released")
	}
	verify("after more than is left", "ann", -50)
	if code, _ := reserve("ann", 0, 0); code != over {
		t.Errorf("Reserve of nothing in debt = %v", code)
	}

	_, id = reserve("bob", 100, time.Minute)
	clock.Advance(2 * time.Minute)
	if released, failure := commit("bob", id, 10); released || failure != codes.OK {
		t.Errorf("Commit of an expired reservation = %v, %v", released, failure)
	}
	verify("after an expired reservation", "bob", 900)
	if released, failure := commit("bob", "", 50); released || failure != codes.OK {
		t.Errorf("Commit without a reservation = %v, %v", released, failure)
	}
	verify("after a commit without a reservation", "bob", 850)

	if got := envoy("CheckRateLimit", "cat", 1000); got != ok {
		t.Errorf("CheckRateLimit of all = %v", got)
	}
	if got := envoy("CheckRateLimit", "cat", 1001); got != over {
		t.Errorf("CheckRateLimit of more = %v", got)
	}
	verify("after questions", "cat", 1000)
	if got := envoy("Report", "cat", 1200); got != ok {
		t.Errorf("Report = %v", got)
	}
	verify("after a report of more than is left", "cat", -200)
	if err := call("Reserve", reserveRequest(t, "ann", 1, -time.Second), kuadrant.New("ReserveResponse")); status.Code(err) != codes.InvalidArgument {
		t.Errorf("Reserve for a negative time = %v", err)
	}
}

// TestKuadrantSettlesByCommit checks that no other call settles a lease among its descriptors.
func TestKuadrantSettlesByCommit(t *testing.T) {
	c := &Config{
		Files:   []File{{Name: "llm.yaml", Text: []byte("domain: llm\ndescriptors: [{key: user, rate_limit: {unit: year, requests_per_unit: 1000}}]")}},
		Domains: map[string]Domain{"llm": {Lease: time.Minute}},
	}
	s, limiter, _ := newService(t, c)
	answer := ask1(t, s, "llm", withHits(descriptor("user=ann"), 600))
	settlement := withHits(descriptor("lease="+answer.DynamicMetadata.GetFields()["lease"].GetStringValue()), 1)
	for _, method := range []string{"CheckRateLimit", "Report"} {
		err := dialKuadrant(t, s)(method, &pb.RateLimitRequest{Domain: "llm", Descriptors: list(settlement)}, new(pb.RateLimitResponse))
		want := `descriptors[0] key: must be that of a charge: Commit settles leases, got "lease"`
		if status.Code(err) != codes.InvalidArgument || status.Convert(err).Message() != want {
			t.Errorf("%s of a lease = %v, want InvalidArgument %s", method, err, want)
		}
	}
	left := check.Call(limiter.Available(t.Context(), zlimit.AvailableQuery{Entity: "ann", Resource: "llm|user"})).Must(t, "Available()")
	if left[0].Available != 400 {
		t.Errorf("%d are left, want 400, as before", left[0].Available)
	}
}

func TestKuadrantServesEveryMethod(t *testing.T) {
	s, _, _ := newService(t, &Config{})
	server := grpc.NewServer()
	s.Register(server)
	for _, m := range server.GetServiceInfo()["kuadrant.service.ratelimit.v1.RateLimitService"].Methods {
		if err := dialKuadrant(t, s)(m.Name, &pb.RateLimitRequest{}, new(emptypb.Empty)); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s of an empty request = %v, want InvalidArgument", m.Name, err)
		}
	}
	if n := len(server.GetServiceInfo()["kuadrant.service.ratelimit.v1.RateLimitService"].Methods); n != 4 {
		t.Errorf("%d methods are served, want 4", n)
	}
}
