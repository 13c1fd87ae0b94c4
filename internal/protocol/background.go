package protocol

import (
	"context"
	"sync"
	"time"
)

// background counts work that outlives its call. It is safe for concurrent use.
type background struct {
	mu      sync.Mutex // guards the fields below
	closed  bool
	running int       // pieces of work
	tending int       // goroutines that sleep and work until they are no longer needed, or the engine is closed
	gaveUp  bool      // Close does not wait any longer
	idle    sync.Cond // none is running; its lock is mu

	open  context.Context //nolint:containedctx // it ends when the engine is closed
	close func()
}

func (b *background) init() {
	b.idle.L = &b.mu
	b.open, b.close = context.WithCancel(context.Background())
}

// Begin counts a piece of work in the background, which [background.End] ends. It returns false if the engine is closed.
func (b *background) Begin() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.running++
	return true
}

// End ends work that [background.Begin] began.
func (b *background) End() { b.end(&b.running) }

// end subtracts a goroutine or a piece of work from its count.
func (b *background) end(count *int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if *count--; *count == 0 {
		b.idle.Broadcast()
	}
}

// Go runs work in a new goroutine, which does not end with the context of the caller. It returns false, and runs nothing, if the engine is
// closed.
func (b *background) Go(ctx context.Context, work func(context.Context)) bool {
	return b.start(ctx, &b.running, false, work)
}

// GoOn is Go for work that other work may wait for: it also runs while the engine is being closed, as long as other work is under way.
func (b *background) GoOn(ctx context.Context, work func(context.Context)) bool {
	return b.start(ctx, &b.running, true, work)
}

// Tend is Go for a goroutine that sleeps and works until it is no longer needed, or the engine is closed.
func (b *background) Tend(ctx context.Context, work func(context.Context)) bool {
	return b.start(ctx, &b.tending, false, work)
}

// start runs work in a goroutine, and adds it to a count.
func (b *background) start(ctx context.Context, count *int, goesOn bool, work func(context.Context)) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed && (!goesOn || b.running == 0) {
		return false
	}
	*count++
	go func() {
		defer b.end(count)
		work(context.WithoutCancel(ctx))
	}()
	return true
}

// outlive runs work that continues after the caller's context has ended. The caller waits for the work until its context ends.
func (b *background) outlive(ctx context.Context, work func(context.Context)) {
	done := make(chan struct{})
	if ctx.Done() == nil || !b.GoOn(ctx, func(ctx context.Context) { defer close(done); work(ctx) }) {
		work(ctx)
		return
	}
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// whileOpen returns a context that also ends when the engine is closed.
func (b *background) whileOpen(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(b.open, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// closeLimit is how long closing waits for work in the background.
const closeLimit = 10 * time.Second

// Close waits for work in the background, for closeLimit at most. Meanwhile only calls that this work needs may begin.
func (b *background) Close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.close()
	defer time.AfterFunc(closeLimit, b.giveUp).Stop()
	b.mu.Lock()
	defer b.mu.Unlock()
	for !b.gaveUp && (b.running > 0 || b.tending > 0) {
		b.idle.Wait()
	}
}

// giveUp lets Close return.
func (b *background) giveUp() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gaveUp = true
	b.idle.Broadcast()
}

// isOpen reports whether the engine is not closed.
func (b *background) isOpen() bool { return b.open.Err() == nil }

// Quiesce waits until no work is under way in the background. It does not wait for goroutines of [background.Tend], since they sleep in
// between.
func (b *background) Quiesce() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.running > 0 {
		b.idle.Wait()
	}
}
