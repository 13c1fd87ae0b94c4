// Package protocol takes tokens from buckets that other processes use at the same time, and settles them. It handles the levels of a
// request, the shards of a bucket, and the last images seen by this process. It does not know how limits are stored, or what users call
// them.
//
// An [Engine] consists of parts. Each part uses only the parts above it in this list:
//
//	core       the store, the options, the time (engine.go, clock.go)
//	items      reads and writes single items, and remembers their images (image.go, shard.go)
//	looks      reads that goroutines share, and views of all shards (look.go, view.go)
//	aligner    brings shards in line with changed limits (shards.go)
//	judge      reports the state of limits, and rejections (refuse.go)
//	lister     enters buckets into the index of their resource (list.go)
//	resizer    splits and merges shards (resize.go)
//	memory     the buckets that the process remembers (buckets.go)
//	families   finds the levels of a request (families.go)
//	slotKeeper renews held slots, and gives them back (slots.go, slots_tend.go, slots_leave.go)
//	settler    corrects what was taken (settle.go)
//	refunds    returns what rejected requests took (refunds.go)
//	slots      takes slots of a level (slots_take.go)
//	taker      takes from one level (level.go, shard.go, shards.go)
//	clock      asks the store for the time, which slots need (slots_clock.go)
//	admitter   takes from all levels of a request, or from none (admit.go)
//
// [Waits] lets callers sleep until the tokens that they took are available (wait.go), or until slots are free (slots_wait.go).
//
// Calls of the taker and of the settler share writes, through a queue for each bucket and each shard (queue.go). Throttled calls wait for a
// pace (pace.go). traffic.go estimates how often other processes write an item.
package protocol
