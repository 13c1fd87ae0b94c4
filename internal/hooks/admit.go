package hooks

import "context"

type admitKey struct{}

// Admit returns a context in which a change of a switch stamps no buckets, and an entity that charges a parent may be created without one. It is
// for a program that makes an entity before anybody may use it.
func Admit(ctx context.Context) context.Context { return context.WithValue(ctx, admitKey{}, true) }

// Admits reports whether a context is one of [Admit].
func Admits(ctx context.Context) bool { return ctx.Value(admitKey{}) != nil }

type lookKey struct{}

// Look returns a context whose looks at balances pass switches that refuse requests: stored ones, and those that buckets are marked with.
func Look(ctx context.Context) context.Context { return context.WithValue(ctx, lookKey{}, true) }

// Looks reports whether looks of a context pass switches, see [Look].
func Looks(ctx context.Context) bool { return ctx.Value(lookKey{}) != nil }

type succeedKey struct{}

// Succeed returns a context in which [zlimit.LimitService.Reset] makes a bucket have what that of another entity has, with all that its limits
// remember, and counts nothing. A bucket that serves requests stays as it is.
func Succeed(ctx context.Context, from string) context.Context {
	return context.WithValue(ctx, succeedKey{}, from)
}

// Succeeds returns the entity of which a reset with a context makes a bucket the successor, see [Succeed].
func Succeeds(ctx context.Context) (from string, succeeds bool) {
	from, succeeds = ctx.Value(succeedKey{}).(string)
	return from, succeeds
}

type restampKey struct{}

// Restamp returns a context in which a change of a switch stores nothing, and stamps the buckets with what is stored. A bucket of an entity
// that refuses requests is made if there is none.
func Restamp(ctx context.Context) context.Context { return context.WithValue(ctx, restampKey{}, true) }

// Restamps reports whether changes of switches with a context store nothing, see [Restamp].
func Restamps(ctx context.Context) bool { return ctx.Value(restampKey{}) != nil }
