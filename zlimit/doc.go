// Package zlimit limits rates that many processes share. Balances are token buckets in a DynamoDB table, in a SQLite file or in memory. A
// request names an entity, a resource and how much of each limit it consumes. It is admitted if every limit has enough tokens, and is
// charged to all of them in one conditional write.
//
// Most callers use [RateLimiter.Do], which runs a function under a limit:
//
//	limiter, err := zlimit.Open(ctx, "dynamodb:limits") // with import _ "github.com/zlimit/zlimit-go/zlimit/dynamo"
//	request := zlimit.Request{
//		Entity: "alice", Resource: "gpt-4", Consume: zlimit.Amounts{"rpm": 1, "tpm": 500}, // an estimate
//	}
//	err = limiter.Do(ctx, request, func(ctx context.Context, lease *zlimit.Lease) error {
//		used := callModel(ctx)
//		return lease.Adjust(zlimit.Amounts{"tpm": used - 500})
//	})
//
// Amounts and limits are whole tokens. Balances are exact to a thousandth of a token.
//
// # Which call
//
//   - [RateLimiter.Do] admits a request, runs a function, and settles the real cost. An error refunds the request.
//   - [RateLimiter.Acquire] returns a [Lease], for work that one function does not span.
//   - [RateLimiter.Wait] sleeps until the tokens are there, in one queue over all processes. [RateLimiter.Reserve] returns when
//     that will be.
//   - [RateLimiter.AcquireAll] admits several requests, all or none.
//   - [RateLimiter.For] has the methods of golang.org/x/time/rate for one key.
//   - [RateLimiter.Available] and [RateLimiter.TimeUntil] take nothing.
//
// A rejection is an [*ExceededError], and an outage an [*UnavailableError]. [FailurePolicy] decides requests during an outage.
//
// # What to set up
//
//   - [Open] makes a limiter from a data source name, [New] from a [Store]. A process needs one.
//   - [PerMinute] and functions like it make a [Limit]. Limits are stored by [RateLimiter.Limits] at four levels, or come with
//     [Request.Limits].
//   - A [Consumption] is a map, [Amounts], or a type that the command zlimitgen generates from a file of limits.
//     [LimitService.Apply] stores those limits.
//   - [RateLimiter.Entities] gives entities parents, which are charged with them.
//   - [RateLimiter.Usage] returns past consumption, [RateLimiter.Audit] past changes. [RateLimiter.Namespaces] separates tenants.
//
// Package [github.com/zlimit/zlimit-go/zlimit/blocking] is the same without contexts. The pages of docs/ in the repository
// explain the concepts, prices and permissions, and how to run and test it.
//
// # The table
//
// [CloudFormation], and CreateTableInput of package [github.com/zlimit/zlimit-go/zlimit/dynamo], are alternatives to [RateLimiter.Setup]
// for creating the table. [BucketKey] and the other functions that return a [Key] address its items, for work on the table without a
// limiter. They are generated from spec/schema.yaml, as is docs/schema.md, which describes every item.
package zlimit
