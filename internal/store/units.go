package store

import "context"

// Units are the capacity units that calls consumed, as far as the store reports them. DynamoDB does for each finished
// call, but neither for a failed condition nor for a canceled transaction. Embedded stores have none.
type Units struct {
	Read  float64 `json:"read_units"`
	Write float64 `json:"write_units"`
}

type unitsKey struct{}

// CountUnits returns a context for one call, whose units the store adds to u before the call returns.
func CountUnits(ctx context.Context, u *Units) context.Context {
	return context.WithValue(ctx, unitsKey{}, u)
}

// UnitsOf returns the counter to which the units of a call are added, nil if there is none.
func UnitsOf(ctx context.Context) *Units {
	u, _ := ctx.Value(unitsKey{}).(*Units)
	return u
}
