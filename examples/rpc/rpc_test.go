package rpc

import (
	"context"
	"net"
	"net/http/httptest"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/zlimittest"
)

func TestGRPC(t *testing.T) {
	limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 1))
	listener, server := bufconn.Listen(1<<16), NewGRPC(limiter)
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()
	conn, err := grpc.NewClient("passthrough:///test", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		t.Fatalf("grpc.NewClient() = %v", err)
	}
	defer conn.Close()
	ctx := metadata.AppendToOutgoingContext(t.Context(), "x-api-key", "alice")
	for i, want := range []codes.Code{codes.OK, codes.ResourceExhausted} {
		_, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
		if status.Code(err) != want {
			t.Errorf("call %d: %v, want %v", i, err, want)
		}
	}
}

func TestConnect(t *testing.T) {
	limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 1))
	server := httptest.NewServer(NewConnect(limiter))
	defer server.Close()
	client := connect.NewClient[emptypb.Empty, emptypb.Empty](server.Client(), server.URL+"/health.v1.Health/Check")
	for i := range 2 {
		r := connect.NewRequest(&emptypb.Empty{})
		r.Header().Set("X-API-Key", "alice")
		if _, err := client.CallUnary(t.Context(), r); (err != nil) != (i == 1) || i == 1 && connect.CodeOf(err) != connect.CodeResourceExhausted {
			t.Errorf("call %d: %v", i, err)
		}
	}
}
