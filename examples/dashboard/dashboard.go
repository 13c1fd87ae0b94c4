// Package dashboard mounts the page of operators in a service.
package dashboard

import (
	"context"
	"crypto/subtle"
	"net/http"

	"github.com/zlimit/zlimit-go/dashboard"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/recent"
)

// New returns a limiter of a store, and the page about it. Who has the key changes limits.
func New(ctx context.Context, store, key string) (*zlimit.RateLimiter, http.Handler, error) {
	seen := recent.New(nil)
	limiter, err := zlimit.Open(ctx, store, zlimit.WithObserver(seen.Observe))
	if err != nil {
		return nil, nil, err
	}
	signIn := func(_ context.Context, given string) (dashboard.User, error) {
		if subtle.ConstantTimeCompare([]byte(given), []byte(key)) == 0 {
			return dashboard.User{}, dashboard.ErrSignIn
		}
		return dashboard.User{Name: "operator", Admin: true}, nil
	}
	page, err := dashboard.New(dashboard.Options{Limiter: limiter, Recent: seen, Store: store, SignIn: signIn})
	return limiter, page, err
}
