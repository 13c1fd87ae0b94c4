// Package protocol takes tokens from buckets that other processes use at the same time, and settles them. It knows the
// levels of a request, the shards of a bucket, and the last images seen by this process. It does not know how limits
// are stored, or named to users.
//
// An [Engine] is parts, and each of them knows those above it in this list:
//
//	core       the store, the options, the time (engine.go, clock.go)
//	items      reads and writes single items, and remembers their images (image.go, shard.go)
//	looks      reads that goroutines share, and views of all shards (look.go, view.go)
//	aligner    brings shards in line with limits that were changed (shards.go)
//	judge      where limits stand, and rejections (refuse.go)
//	lister     enters buckets into the index of their resource (list.go)
//	resizer    splits and merges shards (resize.go)
//	memory     the buckets that the process remembers (buckets.go)
//	families   the levels of a request (families.go)
//	slotKeeper goes on holding slots, and gives them back (slots.go, slots_tend.go, slots_leave.go)
//	settler    corrects what was taken (settle.go)
//	refunds    gives back what requests took that were not admitted (refunds.go)
//	slots      takes slots of a level (slots_take.go)
//	taker      takes from one level (level.go, shard.go, shards.go)
//	clock      asks the store for the time, which slots need (slots_clock.go)
//	admitter   takes from all levels of a request, or from none (admit.go)
//
// [Waits] lets callers sleep until what they took is there (wait.go), or until slots are free (slots_wait.go).
//
// Callers of the taker and of the settler share writes, by a queue of each bucket and of each shard (queue.go). Calls that
// the store throttles wait for a pace (pace.go). How often others write an item is in traffic.go.
package protocol
