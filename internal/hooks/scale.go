package hooks

import "context"

type scaleKey struct{}

// A Scaling is by what a program multiplies limits for a while.
type Scaling struct {
	Factor string // such as 3/2; 1 for the limits of before
	File   string // that has the limits of factor 1
}

// Scale returns a context in which the audit events of changed limits say by what they were multiplied.
func Scale(ctx context.Context, s Scaling) context.Context {
	return context.WithValue(ctx, scaleKey{}, s)
}

// Scaled returns by what limits that are changed with a context are multiplied, see [Scale].
func Scaled(ctx context.Context) (s Scaling, is bool) {
	s, is = ctx.Value(scaleKey{}).(Scaling)
	return s, is
}
