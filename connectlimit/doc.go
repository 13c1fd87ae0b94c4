// Package connectlimit limits calls of Connect, gRPC and gRPC-Web that go through connectrpc.com/connect: an interceptor for
// handlers and clients, unary and streaming.
//
//	request := connectlimit.Requests("api", "rpm", connectlimit.ByHeader("X-API-Key"))
//	path, handler := booksconnect.NewHandler(books, connect.WithInterceptors(connectlimit.New(limiter, request)))
//
// A refused call fails with resource_exhausted. It has the details RetryInfo and QuotaFailure, and Retry-After and
// grpc-retry-pushback-ms in the metadata of the error. The page docs/grpc.md in the repository describes all of it.
package connectlimit
