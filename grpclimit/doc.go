// Package grpclimit limits gRPC calls: interceptors of servers and clients, for unary calls and streams.
//
//	request := grpclimit.Requests("api", "rpm", grpclimit.ByMetadata("x-api-key"))
//	server := grpc.NewServer(
//		grpc.UnaryInterceptor(grpclimit.UnaryServerInterceptor(limiter, request)),
//		grpc.StreamInterceptor(grpclimit.StreamServerInterceptor(limiter, request)),
//	)
//
// A refused call fails with RESOURCE_EXHAUSTED, and has the details RetryInfo and QuotaFailure. Its trailer has
// grpc-retry-pushback-ms, which the retry policy of a client obeys. The page docs/grpc.md in the repository describes
// all of it.
package grpclimit
