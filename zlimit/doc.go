// Package zlimit limits rates that many processes share: token buckets in a DynamoDB table, in a SQLite file, or in
// memory. A request names an entity, a resource and how much of each limit it consumes. It is admitted when every limit
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
// [RateLimiter.Do] does the same around a function. Amounts and limits are whole tokens; balances are exact to a
// thousandth of a token.
//
// # Where to start
//
//   - [Open] makes a limiter from a data source name, [New] from a [Store]. One is enough for a process.
//   - [PerMinute] and its like make a [Limit]. Limits are stored with [RateLimiter.Limits] at four levels, or come with
//     [Request.Limits].
//   - A [Consumption] is a map, [Amounts], or a type that the command zlimitgen writes from limits in a file.
//     [LimitService.Apply] stores those limits.
//   - [RateLimiter.Acquire] returns a [Lease] or an error. [*ExceededError] is a rejection, and [*UnavailableError] an
//     outage. [FailurePolicy] says what becomes of requests during an outage.
//   - [RateLimiter.Entities] gives entities parents, which are charged with them.
//   - [RateLimiter.Usage] tells past consumption, [RateLimiter.Audit] past changes. [RateLimiter.Namespaces] keeps
//     tenants apart.
//
// Package [github.com/zlimit/zlimit-go/zlimit/blocking] is the same without contexts. The pages of docs/ in the repository
// explain the concepts, prices and permissions, and how to run and test it.
//
// # The table
//
// [CloudFormation] and CreateTableInput of package [github.com/zlimit/zlimit-go/zlimit/dynamo] create the table by other means than [RateLimiter.Setup]. [BucketKey] and the
// other functions that return a [Key] address its items, for work on the table without a limiter. All of these are
// generated from spec/schema.yaml. So is docs/schema.md, which describes every item. Package blocking is generated from
// the methods of this package.
package zlimit
