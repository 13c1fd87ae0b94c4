package envoylimit_test

import (
	"context"
	"fmt"
	"net"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/zlimit/zlimit-go/envoylimit"
	"github.com/zlimit/zlimit-go/zlimit"
)

// shop is a file of envoyproxy/ratelimit. A program reads its files by [envoylimit.Load] or [envoylimit.Config.ReadFiles].
var shop = envoylimit.File{Name: "shop.yaml", Text: []byte(`
domain: shop
descriptors:
- {key: user, rate_limit: {unit: hour, requests_per_unit: 2}}
`)}

// A program serves Envoy beside its own services.
func Example() {
	ctx := context.Background()
	limiter, err := zlimit.Open(ctx, "memory:")
	if err != nil {
		panic(err)
	}
	defer limiter.Close()
	service, err := envoylimit.New(ctx, limiter, &envoylimit.Config{Files: []envoylimit.File{shop}})
	if err != nil {
		panic(err)
	}
	server := grpc.NewServer()
	service.Register(server)
	port, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go func() { _ = server.Serve(port) }()
	defer server.Stop()

	envoy, err := grpc.NewClient(port.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		panic(err)
	}
	defer envoy.Close()
	request := &pb.RateLimitRequest{Domain: "shop", Descriptors: []*common.RateLimitDescriptor{
		{Entries: []*common.RateLimitDescriptor_Entry{{Key: "user", Value: "alice"}}},
	}}
	for range 3 {
		answer, err := pb.NewRateLimitServiceClient(envoy).ShouldRateLimit(ctx, request)
		if err != nil {
			panic(err)
		}
		fmt.Println(answer.OverallCode, answer.Statuses[0].LimitRemaining)
	}
	// Output:
	// OK 1
	// OK 0
	// OVER_LIMIT 0
}

// Gateways say who they are in the metadata of their calls. A gateway may charge the users of its own tenant.
func ExampleWithCallers() {
	ctx := context.Background()
	limiter, err := zlimit.Open(ctx, "memory:")
	if err != nil {
		panic(err)
	}
	defer limiter.Close()
	tenants := map[string]string{"the key of acme": "acme"}
	service, err := envoylimit.New(ctx, limiter, &envoylimit.Config{Files: []envoylimit.File{shop}},
		envoylimit.WithCallers(func(ctx context.Context) (envoylimit.Caller, error) {
			for _, key := range metadata.ValueFromIncomingContext(ctx, "x-key") {
				if tenant := tenants[key]; tenant != "" {
					return envoylimit.Caller{Name: tenant, MayCharge: func(entity string) bool { return entity == tenant }}, nil
				}
			}
			return envoylimit.Caller{}, status.Error(codes.Unauthenticated, "a key is needed")
		}))
	if err != nil {
		panic(err)
	}
	for _, key := range []string{"the key of acme", "a guess"} {
		ctx := metadata.NewIncomingContext(ctx, metadata.Pairs("x-key", key))
		answer, err := service.ShouldRateLimit(ctx, &pb.RateLimitRequest{Domain: "shop", Descriptors: []*common.RateLimitDescriptor{
			{Entries: []*common.RateLimitDescriptor_Entry{{Key: "user", Value: "acme"}}},
		}})
		fmt.Println(answer.GetOverallCode(), status.Code(err))
	}
	// Output:
	// OK OK
	// UNKNOWN Unauthenticated
}
