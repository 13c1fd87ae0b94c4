// Package bucket is the arithmetic of token buckets that share one refill stamp: refill, and the decision how a demand
// is to be written. It is pure: no I/O, no clock, no floating point. Tokens are millitokens, time is epoch milliseconds.
package bucket

// Params are the parameters of one limit.
type Params struct {
	Name         string
	Capacity     int64 // most tokens that the bucket holds, millitokens
	RefillAmount int64 // tokens that flow in per period, millitokens
	RefillPeriod int64 // milliseconds
}

// A Limit is the token bucket of one limit: its parameters and its state.
type Limit struct {
	Name         string
	Tokens       int64 // balance at the refill stamp of the item, millitokens; negative in debt
	Capacity     int64 // most tokens that the bucket holds, millitokens
	RefillAmount int64 // tokens that flow in per period, millitokens
	RefillPeriod int64 // milliseconds
	Consumed     int64 // net consumption since creation, millitokens, modulo 2^64
	Known        int64 // Consumed as the last refill left it, in a bucket that a mixed fleet writes; else 0
}
