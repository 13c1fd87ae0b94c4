// Package scale runs fleets of real limiters, each of which stands for a process, against a model of DynamoDB. The
// model is one table in memory whose partitions, indexes, quotas and latencies are those that AWS documents. All of it
// is inside a testing/synctest bubble, where time is virtual: an hour of a thousand processes takes seconds.
//
// A [Table] is the model, and [Params] are its figures, with where they come from. A [Load] is a fleet and its
// requests; running it gives an [Outcome]. The scenarios of `make scale` are in scenarios.go. Their results are kept in
// testdata/figures.json, from which docs/scale.md and its plots are drawn.
package scale
