// Package httplimit limits HTTP requests, as middleware of a server and as the transport of a client, with the standard
// library alone.
//
//	limit := httplimit.New(limiter, httplimit.Requests("api", "rpm", httplimit.ByHeader("X-API-Key")))
//	http.ListenAndServe(":8080", limit(mux))
//
// Responses say where the limits stand, in the fields RateLimit and RateLimit-Policy of
// draft-ietf-httpapi-ratelimit-headers-10. Refusals have status 429 with Retry-After and a body of
// application/problem+json. The page docs/http.md in the repository describes all of it.
package httplimit
