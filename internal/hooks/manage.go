package hooks

import "context"

type manageKey struct{}

// Manage returns a context in which the audit events of changed limits name the manager of a file of limits that changes them.
func Manage(ctx context.Context, manager string) context.Context {
	return context.WithValue(ctx, manageKey{}, manager)
}

// Manager returns the manager by which limits are changed with a context, see [Manage]; "" for none.
func Manager(ctx context.Context) string {
	manager, _ := ctx.Value(manageKey{}).(string)
	return manager
}
