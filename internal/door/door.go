// Package door opens what package zlimit keeps closed to its users, for tests that stand below its public API: a store of
// their own under a limiter, and the choice of its random numbers.
package door

import (
	"context"
	"math/rand/v2"

	"github.com/zlimit/zlimit-go/internal/store"
)

// Store returns the zlimit.Store that keeps its items in s. Package zlimit sets it when it is initialized.
var Store func(s store.Store) any

// Random returns a number that is at least 0 and less than n, which is positive. Limiters draw shards and the lengths of
// pauses with it; ctx is that of the call they work for. A test that replaces it does so before any limiter is made.
var Random = func(_ context.Context, n int64) int64 { return rand.Int64N(n) }
