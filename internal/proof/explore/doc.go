// Package explore runs small programs on real limiters through every order of their calls of the store. Each limiter
// stands for a process. All of them share a [table] inside a testing/synctest bubble, where time is virtual and the
// scheduler sees when every goroutine waits. Each call is held until the scheduler chooses it, so that an order of the
// calls is a path through a tree of choices. What a store may do besides answering (lose a call or a reply, throttle,
// answer with a conflict or late, lag) are further branches of the tree. The tree is searched depth first, and a state
// that was seen before is not followed again.
//
// A witness judges every write, the tokens of every bucket, the outcome of every operation and, when all processes are
// done, what they tell. The rules, and what they allow, are in witness.go.
package explore
