package hooks

import "context"

type admitKey struct{}

// Admit returns a context whose requests pass a switch that refuses requests: a stored one, and one that buckets are stamped with. A
// switch that is changed with the context stamps no buckets, and an entity that charges a parent may be created without one. It is for a program that fills the buckets of an entity before anybody
// may use it.
func Admit(ctx context.Context) context.Context { return context.WithValue(ctx, admitKey{}, true) }

// Admits reports whether requests of a context pass switches, see [Admit].
func Admits(ctx context.Context) bool { return ctx.Value(admitKey{}) != nil }

type adjustKey struct{}

// Adjust returns a context in which requests with an ID, and exact settlements of their tokens, change balances and are no consumption: no
// usage counts them. It is for a program that carries balances over from other buckets.
func Adjust(ctx context.Context) context.Context { return context.WithValue(ctx, adjustKey{}, true) }

// Adjusts reports whether what is taken with a context is no consumption, see [Adjust].
func Adjusts(ctx context.Context) bool { return ctx.Value(adjustKey{}) != nil }

type lookKey struct{}

// Look returns a context whose looks at balances pass switches that refuse requests: stored ones, and those that buckets are stamped with.
func Look(ctx context.Context) context.Context { return context.WithValue(ctx, lookKey{}, true) }

// Looks reports whether looks of a context pass switches, see [Look].
func Looks(ctx context.Context) bool { return ctx.Value(lookKey{}) != nil }
