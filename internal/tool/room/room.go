// Package room makes room on the stacks of goroutines.
package room

// size is about the room that an acquire takes on the stack.
const size = 12 << 10

// Make makes room for a deep call. A new goroutine has a stack of a few KiB, which the runtime doubles where a call does not fit. Each time
// the runtime copies the stack, frame by frame. After Make there is room, and little was copied. A goroutine that goes on to the store calls
// Make first. It takes less than a microsecond.
//
//go:noinline
func Make() {
	var space [size]byte
	use(&space)
}

//go:noinline
func use(space *[size]byte) { space[0] = 1 }
