package hooks

import "context"

type admitKey struct{}

// Admit returns a context whose requests pass a stored switch that refuses requests. A bucket that is stamped with the switch still refuses
// them. A switch that is changed with the context stamps no buckets. It is for a program that fills the buckets of an entity before anybody
// may use it.
func Admit(ctx context.Context) context.Context { return context.WithValue(ctx, admitKey{}, true) }

// Admits reports whether requests of a context pass a stored switch, see [Admit].
func Admits(ctx context.Context) bool { return ctx.Value(admitKey{}) != nil }
