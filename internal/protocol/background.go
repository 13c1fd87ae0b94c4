package protocol

import (
	"context"
	"sync"
)

// background counts work that outlives its call. It is safe for concurrent use.
type background struct {
	mu      sync.Mutex // guards what follows
	closed  bool
	running int       // pieces of work
	tending int       // goroutines that sleep and work until they are not needed, or the engine is closed
	idle    sync.Cond // none is running; its lock is mu

	open  context.Context //nolint:containedctx // it ends when the engine is closed
	close func()
}

func (b *background) init() {
	b.idle.L = &b.mu
	b.open, b.close = context.WithCancel(context.Background())
}

// Begin counts work in the background, which [background.End] ends; false when the engine is closed.
func (b *background) Begin() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.running++
	return true
}

// BeginTending counts a goroutine that tends something until [background.EndTending]; false when the engine is closed.
func (b *background) BeginTending() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.tending++
	return true
}

// EndTending ends what [background.BeginTending] began.
func (b *background) EndTending() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.tending--; b.tending == 0 {
		b.idle.Broadcast()
	}
}

// GoOn counts more work that continues work under way, also while the engine is being closed. It returns false if no work is
// under way.
func (b *background) GoOn() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.running == 0 {
		return false
	}
	b.running++
	return true
}

// InBackground runs a shared call in a goroutine of its own, so that the caller who began it may leave. It returns false, and
// runs nothing, when the engine is closed and no work is under way.
func (b *background) InBackground(ctx context.Context, call func(context.Context)) bool {
	if !b.Begin() && !b.GoOn() {
		return false
	}
	go func() {
		defer b.End()
		call(context.WithoutCancel(ctx))
	}()
	return true
}

// End ends work that [background.Begin] or GoOn began.
func (b *background) End() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.running--; b.running == 0 {
		b.idle.Broadcast()
	}
}

// Close waits for work in the background. From then on only calls that this work needs may begin.
func (b *background) Close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.close()
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.running > 0 || b.tending > 0 {
		b.idle.Wait()
	}
}

// Quiesce waits until no work is under way in the background. It does not wait for goroutines that tend something, since they
// sleep in between.
func (b *background) Quiesce() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.running > 0 {
		b.idle.Wait()
	}
}
