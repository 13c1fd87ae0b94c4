package protocol

import (
	"testing"
	"unsafe"
)

// TestSizes keeps what each acquire allocates within its size class. What few buckets and requests have belongs to a part of its own.
func TestSizes(t *testing.T) {
	for name, test := range map[string]struct{ is, most uintptr }{
		"image":   {unsafe.Sizeof(image{}), 352},
		"Receipt": {unsafe.Sizeof(Receipt{}), 128}, // of a lease of 288
	} {
		if test.is > test.most {
			t.Errorf("%s has %d bytes, want at most %d", name, test.is, test.most)
		}
	}
}
