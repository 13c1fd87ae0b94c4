// Package connectlimit limits calls of Connect, gRPC and gRPC-Web that go through connectrpc.com/connect: an interceptor for
// handlers and clients, unary and streaming.
//
//	request := connectlimit.Requests("api", "rpm", connectlimit.ByHeader("X-API-Key"))
//	path, handler := booksconnect.NewHandler(books, connect.WithInterceptors(connectlimit.New(limiter, request)))
//
// A refused call fails with resource_exhausted, with the details RetryInfo and QuotaFailure, and with Retry-After and
// grpc-retry-pushback-ms in the metadata of the error. docs/grpc.md in the repository has the whole of it.
package connectlimit
