package wire

import (
	"io"
	"sync"
)

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

// A requestBody is the body of one request. The transport may read it until it is closed, even after the reply came.
// The bytes that it reads may be used again after Close returned.
type requestBody struct {
	mu   sync.Mutex
	data []byte // what is left
}

// Read implements [io.Reader].
func (b *requestBody) Read(to []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.data) == 0 {
		return 0, io.EOF
	}
	n := copy(to, b.data)
	b.data = b.data[n:]
	return n, nil
}

// Close implements [io.Closer].
func (b *requestBody) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.data = nil
	return nil
}
