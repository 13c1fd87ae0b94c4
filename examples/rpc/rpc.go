// Package rpc limits a service of gRPC and one of Connect, each with an interceptor, and decides for an Envoy.
package rpc

import (
	"context"
	"net/http"

	"connectrpc.com/connect"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/zlimit/zlimit-go/connectlimit"
	"github.com/zlimit/zlimit-go/grpclimit"
	"github.com/zlimit/zlimit-go/zlimit"
)

// NewGRPC returns a server of gRPC's health service whose calls are limited by the key in their metadata.
func NewGRPC(limiter *zlimit.RateLimiter) *grpc.Server {
	request := grpclimit.Requests("health", "rpm", grpclimit.ByMetadata("x-api-key"))
	limited := grpclimit.WithHealthAndReflection() // which are skipped by default
	server := grpc.NewServer(
		grpc.UnaryInterceptor(grpclimit.UnaryServerInterceptor(limiter, request, limited)),
		grpc.StreamInterceptor(grpclimit.StreamServerInterceptor(limiter, request, limited)),
	)
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	return server
}

// NewConnect returns a handler of a procedure that does nothing, limited by the key in its header.
func NewConnect(limiter *zlimit.RateLimiter) http.Handler {
	request := connectlimit.Requests("health", "rpm", connectlimit.ByHeader("X-API-Key"))
	return connect.NewUnaryHandler("/health.v1.Health/Check",
		func(context.Context, *connect.Request[emptypb.Empty]) (*connect.Response[emptypb.Empty], error) {
			return connect.NewResponse(&emptypb.Empty{}), nil
		}, connect.WithInterceptors(connectlimit.New(limiter, request)))
}
