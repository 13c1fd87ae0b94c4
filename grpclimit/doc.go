// Package grpclimit limits gRPC calls: interceptors of servers and clients, for unary calls and streams.
//
//	request := grpclimit.Requests("api", "rpm", grpclimit.ByMetadata("x-api-key"))
//	server := grpc.NewServer(
//		grpc.UnaryInterceptor(grpclimit.UnaryServerInterceptor(limiter, request)),
//		grpc.StreamInterceptor(grpclimit.StreamServerInterceptor(limiter, request)),
//	)
//
// A refused call fails with RESOURCE_EXHAUSTED, with the details RetryInfo and QuotaFailure, and with the trailer
// grpc-retry-pushback-ms, which the retry policy of a client obeys. docs/grpc.md in the repository has the whole of it.
package grpclimit
