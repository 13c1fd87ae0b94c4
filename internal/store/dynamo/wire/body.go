package wire

import "sync"

// A Buffer holds the body of a request, or of a reply while it is read.
type Buffer struct{ Bytes []byte }

// keptBuffer is the size of the largest buffer that is kept for another call.
const keptBuffer = 64 << 10

var buffers = sync.Pool{New: func() any { return &Buffer{make([]byte, 0, 2<<10)} }}

// NewBuffer returns an empty buffer, which may have been used before.
func NewBuffer() *Buffer {
	b := buffers.Get().(*Buffer)
	b.Bytes = b.Bytes[:0]
	return b
}

// Free gives the buffer back, which must not be used any more.
func (b *Buffer) Free() {
	if cap(b.Bytes) <= keptBuffer {
		buffers.Put(b)
	}
}
