package table

import (
	"context"
	"sync"
	"time"
)

// A tasks runs functions after a time, until it is ended. It is safe for concurrent use.
type tasks struct {
	life    context.Context //nolint:containedctx // of the tasks; it ends with the last table
	stop    context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex               // held while a task is added, and while stop is called: no task is added after that
	pending map[*time.Timer]struct{} // the tasks that have not begun
}

func newTasks() *tasks {
	t := &tasks{pending: map[*time.Timer]struct{}{}}
	t.life, t.stop = context.WithCancel(context.Background())
	return t
}

// after calls a function after a time, unless the tasks are ended before. It returns nil where they are.
func (t *tasks) after(rest time.Duration, do func()) *time.Timer {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.life.Err() != nil {
		return nil
	}
	t.running.Add(1)
	var timer *time.Timer
	timer = time.AfterFunc(rest, func() {
		defer t.running.Done()
		t.mu.Lock()
		delete(t.pending, timer)
		t.mu.Unlock()
		do()
	})
	t.pending[timer] = struct{}{}
	return timer
}

// halt stops a timer of after, which may be nil or have fired.
func (t *tasks) halt(timer *time.Timer) {
	if timer == nil || !timer.Stop() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.pending, timer)
	t.running.Done()
}

// end ends the contexts of calls, and stops the tasks that have not begun. No task is added from then on.
func (t *tasks) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stop()
	for timer := range t.pending {
		if timer.Stop() {
			delete(t.pending, timer)
			t.running.Done()
		}
	}
}

// bounded makes a call of the store that ends after a time, or with the tasks.
func (t *tasks) bounded(bound time.Duration, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(t.life, bound)
	defer cancel()
	return call(ctx)
}
