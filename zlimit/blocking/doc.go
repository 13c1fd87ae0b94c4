// Package blocking is package zlimit without contexts, for code that has none to pass. A call takes at most a timeout,
// [DefaultTimeout] unless [RateLimiter.Within] says something else:
//
//	limiter, err := blocking.Open("dynamodb:limits") // with import _ "github.com/zlimit/zlimit-go/zlimit/dynamo"
//	lease, err := limiter.Acquire(zlimit.Request{
//		Entity: "alice", Resource: "gpt-4", Consume: zlimit.Amounts{"rpm": 1, "tpm": 500},
//	})
//	defer lease.Close()
//
// The limiter, its services and leases have methods that take a context in package zlimit. Here they have the same
// methods without it. Everything else is used from package zlimit: requests, limits, options and errors. A type has one
// name, and code that moves to contexts keeps it. [Wrap] lets both kinds of code share a limiter.
//
// # Lists
//
// Each list of package zlimit has two forms here, named like [strings.Split] and [strings.SplitSeq].
// [EntityService.Children] returns a slice, and [EntityService.ChildrenSeq] an iterator that reads as its loop proceeds.
// The timeout covers the slice as a whole, and each step of the iterator. The time that the body of a loop takes
// does not count.
//
// # Functions
//
// The timeout of [RateLimiter.Do] is for acquiring. The function has no timeout, since nothing could interrupt it. Each
// call that it makes on its lease has a timeout of its own.
//
// # Generated code
//
// The files that end in _gen.go are generated from the exported methods of package zlimit and their comments. The calls
// start no goroutines and go straight to package zlimit.
package blocking
