// Small is a reverse proxy that limits requests by bearer token, in 40 lines.
package main

import (
	"context"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"

	"github.com/zlimit/zlimit-go/httplimit"
	"github.com/zlimit/zlimit-go/zlimit"
)

// newProxy returns a proxy that passes on 60 requests a minute for each token.
func newProxy(ctx context.Context, limiter *zlimit.RateLimiter, target *url.URL, secret []byte) (http.Handler, error) {
	err := limiter.Limits.Set(ctx, zlimit.Level{Resource: "api"}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 60)}})
	limit := httplimit.New(limiter, httplimit.Requests("api", "rpm", httplimit.ByBearer(secret)))
	return limit(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}), err
}

func run(ctx context.Context) error {
	limiter, err := zlimit.Open(ctx, "memory:") // or "dynamodb:limits", with its import
	if err != nil {
		return err
	}
	defer func() { _ = limiter.Close() }()
	target := &url.URL{Scheme: "http", Host: "localhost:9000"}
	proxy, err := newProxy(ctx, limiter, target, []byte("a secret of the servers, from their configuration"))
	if err != nil {
		return err
	}
	return http.ListenAndServe("localhost:8080", proxy)
}

func main() { log.Fatal(run(context.Background())) }
