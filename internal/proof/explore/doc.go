// Package explore runs small programs on real limiters through every order of their calls of the store. Each limiter
// stands for a process. All of them share a [table] inside a testing/synctest bubble, where time is virtual and the
// scheduler sees when every goroutine waits. Each call is held until the scheduler chooses it, so that an order of the
// calls is a path through a tree of choices. Faults of a store are further branches of the tree: it loses a call or a
// reply, throttles, answers with a conflict or late, or lags. The tree is searched depth first, and a state that was
// seen before is not followed again.
//
// A witness judges every write, the tokens of every bucket, and the outcome of every operation. When all processes are
// done, it judges their answers. The rules, and their allowances, are in witness.go.
package explore
