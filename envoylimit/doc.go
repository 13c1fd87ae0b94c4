// Package envoylimit is Envoy's rate limit service v3, envoy.service.ratelimit.v3.RateLimitService, over the limits of a limiter. It reads the
// YAML of envoyproxy/ratelimit, and rules that map descriptors to entities and resources.
//
//	config, err := envoylimit.Load("limits.yaml")
//	// …
//	service, err := envoylimit.New(ctx, limiter, config)
//	// …
//	server := grpc.NewServer()
//	service.Register(server)
//
// A request is decided as a whole: all its descriptors are charged, or none. A gateway that knows the cost of a call only at its end sends an
// estimate as hits_addend. The metadata of the answer has a lease then, which settles the estimate by the actual amount, once. The service of
// Kuadrant, kuadrant.service.ratelimit.v1.RateLimitService, is served beside it and does the same by Reserve and Commit.
//
// The server zlimitd serves this package. The page docs/envoy.md in the repository describes the files, and what Envoy lets pass.
package envoylimit
