// Package blocking is package zlimit without contexts, for code that has none to pass. A call takes at most a timeout,
// [DefaultTimeout] unless [RateLimiter.WithTimeout] says something else:
//
//	limiter, err := blocking.Open("dynamodb:limits")
//	lease, err := limiter.Acquire(zlimit.Request{
//		Entity: "alice", Resource: "gpt-4", Consume: zlimit.Amounts{"rpm": 1, "tpm": 500},
//	})
//	defer lease.Close()
//
// What has methods that take a context in package zlimit has the same methods here without it: the limiter, its services
// and leases. Everything else is used from package zlimit, requests, limits, options and errors: a type has one name, and
// code that moves to contexts keeps it. [Wrap] lets both kinds of code share a limiter.
//
// # Lists
//
// A list of package zlimit is here twice, under names like those of [strings.Split] and [strings.SplitSeq]:
// [EntityService.Children] returns a slice, and [EntityService.ChildrenSeq] an iterator that reads as its loop goes on.
// The timeout is for the slice as a whole, and for each step of the iterator; the time that the body of a loop takes does
// not count.
//
// # Functions
//
// The timeout of [RateLimiter.Do] is for acquiring. The function takes the time that it takes, since nothing could
// interrupt it; what it calls on its lease has a timeout of its own.
//
// # Generated code
//
// The files that end in _gen.go are generated from the exported methods of package zlimit and their comments. The calls
// start no goroutines and go straight to package zlimit.
package blocking
