package room

import (
	"runtime/debug"
	"testing"
	"unsafe"
)

// TestMake asks that the stack of a new goroutine stays in its place during a deep call, once room is made, and moves without.
func TestMake(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // a collection shrinks stacks
	for _, made := range []bool{false, true} {
		moved := make(chan bool)
		go func() {
			if made {
				Make()
			}
			var here byte
			before := uintptr(unsafe.Pointer(&here))
			deep(size / 384)
			moved <- uintptr(unsafe.Pointer(&here)) != before
		}()
		if got := <-moved; got == made {
			t.Errorf("with room made: %v, the stack moved: %v", made, got)
		}
	}
}

// deep calls itself, with 128 bytes and more for each call.
//
//go:noinline
func deep(calls int) byte {
	var frame [128]byte
	if calls > 0 {
		frame[calls%len(frame)] = deep(calls - 1)
	}
	return frame[calls%3]
}
