// Package door opens what package zlimit keeps closed to its users, for tests that stand below its public API: a store of
// their own under a limiter, and the choice of its random numbers. Package zlimit sets both when it is initialized.
package door

import "github.com/zlimit/zlimit-go/internal/store"

// Store returns the zlimit.Store that keeps its items in s.
var Store func(s store.Store) any

// Random returns the zlimit.Option by which a limiter draws shards, and the lengths of pauses, with a function that
// returns a number in [0, n).
var Random func(intN func(n int) int) any
