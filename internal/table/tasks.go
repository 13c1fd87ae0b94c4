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

	mu sync.Mutex // held while a task is added, and while stop is called: no task is added after that
}

func newTasks() *tasks {
	t := new(tasks)
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
	return time.AfterFunc(rest, func() {
		defer t.running.Done()
		do()
	})
}

// halt stops a timer of after, which may be nil or have fired.
func (t *tasks) halt(timer *time.Timer) {
	if timer != nil && timer.Stop() {
		t.running.Done()
	}
}

// end ends the contexts of calls. No task is added from then on.
func (t *tasks) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stop()
}

// bounded makes a call of the store that ends after a time, or with the tasks.
func (t *tasks) bounded(bound time.Duration, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(t.life, bound)
	defer cancel()
	return call(ctx)
}
