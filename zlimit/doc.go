// Package zlimit limits rates that many processes share: token buckets in a DynamoDB table, in a SQLite file, or in
// memory. A request names an entity, a resource and how much of each limit it consumes; it is admitted when every limit
// has room, and charged to all of them in one conditional write.
//
//	limiter, err := zlimit.Open(ctx, "dynamodb:limits")
//	lease, err := limiter.Acquire(ctx, zlimit.Request{
//		Entity: "alice", Resource: "gpt-4", Consume: zlimit.Amounts{"rpm": 1, "tpm": 500},
//	})
//	// call the model, learn that it took 620 tokens
//	err = lease.Adjust(zlimit.Amounts{"tpm": 120})
//	err = lease.Commit(ctx)
//
// [RateLimiter.Do] does the same around a function. Limits are stored with [RateLimiter.Limits], or come with the
// request. Amounts and limits are tokens, whole numbers; balances are exact to a thousandth of a token.
//
// Package blocking, beside this one, is the same without contexts.
//
// # Generated code
//
// The files that end in _gen.go are generated from spec/schema.yaml: keys_gen.go builds and parses keys, items_gen.go
// encodes and decodes items, exprs_gen.go binds conditional writes, table_gen.go describes the table. Their content is
// internal but for [CreateTableInput] and [CloudFormation], which create the table by other means than
// [RateLimiter.Setup].
package zlimit
