package rpc

import (
	"context"

	"google.golang.org/grpc"

	"github.com/zlimit/zlimit-go/envoylimit"
	"github.com/zlimit/zlimit-go/zlimit"
)

// NewEnvoy returns a server that decides for an Envoy, by a config with files of envoyproxy/ratelimit.
func NewEnvoy(ctx context.Context, limiter *zlimit.RateLimiter, path string) (*grpc.Server, error) {
	config, err := envoylimit.Load(path)
	if err != nil {
		return nil, err
	}
	service, err := envoylimit.New(ctx, limiter, config)
	if err != nil {
		return nil, err
	}
	server := grpc.NewServer()
	service.Register(server)
	return server, nil
}
