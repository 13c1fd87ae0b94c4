package llm

import (
	"context"
	"sync"
)

// A background is work that no caller waits for by itself. Its zero value has none. It is safe for concurrent use.
type background struct {
	mu      sync.Mutex
	running int
	idle    chan struct{} // closed when nothing runs any more; nil when no caller waits
}

// begin counts a piece of work; the returned function ends it.
func (b *background) begin() (end func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running++
	return b.end
}

func (b *background) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.running--; b.running == 0 && b.idle != nil {
		close(b.idle)
		b.idle = nil
	}
}

// wait returns when nothing runs, or with the error of the context.
func (b *background) wait(ctx context.Context) error {
	b.mu.Lock()
	if b.running == 0 {
		b.mu.Unlock()
		return nil
	}
	if b.idle == nil {
		b.idle = make(chan struct{})
	}
	idle := b.idle
	b.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
