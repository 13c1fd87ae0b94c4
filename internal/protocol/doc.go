// Package protocol takes tokens from buckets that other processes use at the same time, and settles what was taken. It
// knows the levels of a request, the shards of a bucket and what this process last saw of them. It does not know how
// limits are stored, or named to users.
//
// A request takes this way:
//   - [Engine.Take] makes the levels (take.go).
//   - It takes from all levels side by side, each from one shard (shard.go) or from several (shards.go).
//   - It tells a rejection from a view of all of them (refuse.go).
//   - A [Receipt] records what was taken, and a [Settlement] corrects that (settle.go).
//
// Callers may share writes (queue.go), and shards divide and join in the background (resize.go). What this process last saw of
// a shard is in image.go, and how often others write it in traffic.go. Where the store throttles a key, goroutines share reads of
// it (look.go), and calls wait for their pace (pace.go).
package protocol
