package rpc

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/zlimit/zlimit-go/zlimit/zlimittest"
)

func TestEnvoy(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"envoy.yaml": "files: [shop.yaml]\n",
		"shop.yaml":  "domain: shop\ndescriptors: [{key: user, rate_limit: {unit: hour, requests_per_unit: 1}}]\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	limiter, _ := zlimittest.New(t)
	server, err := NewEnvoy(t.Context(), limiter, filepath.Join(dir, "envoy.yaml"))
	if err != nil {
		t.Fatalf("NewEnvoy() = %v", err)
	}
	listener := bufconn.Listen(1 << 16)
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()
	conn, err := grpc.NewClient("passthrough:///test", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		t.Fatalf("grpc.NewClient() = %v", err)
	}
	defer conn.Close()
	request := &pb.RateLimitRequest{Domain: "shop", Descriptors: []*common.RateLimitDescriptor{
		{Entries: []*common.RateLimitDescriptor_Entry{{Key: "user", Value: "alice"}}},
	}}
	for i, want := range []pb.RateLimitResponse_Code{pb.RateLimitResponse_OK, pb.RateLimitResponse_OVER_LIMIT} {
		got, err := pb.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), request)
		if err != nil || got.OverallCode != want {
			t.Errorf("call %d: %v, %v, want %v", i, got, err, want)
		}
	}
	if _, err := NewEnvoy(t.Context(), limiter, filepath.Join(dir, "none.yaml")); err == nil {
		t.Error("NewEnvoy() without a config = nil, want an error")
	}
}
