// Package door opens what package zlimit keeps closed to its users, for tests below its public API. They put a store of
// their own under a limiter, and choose its random numbers and when its requests share writes. Package zlimit sets them
// when it is initialized.
package door

import "github.com/zlimit/zlimit-go/internal/store"

// Store returns the zlimit.Store that keeps its items in s.
var Store func(s store.Store) any

// Random returns the zlimit.Option by which a limiter draws shards and the lengths of pauses with a function. The
// function returns a number in [0, n).
var Random func(intN func(n int) int) any

// WritesAtOnce returns the zlimit.Option by which requests share writes when so many writes of their bucket are under way.
var WritesAtOnce func(n int) any
