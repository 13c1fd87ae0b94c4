package store

import "context"

// A Watcher is notified of the attempts of a call while the call is under way. A store answers some attempts with a
// throttle, or with a part of the result, and makes another. Such a call is not silent, however long it takes.
type Watcher interface {
	// Sent is called before each attempt, possibly by several goroutines concurrently.
	Sent()
}

type watcherKey struct{}

// Watch returns a context for one call, whose attempts the store reports to w.
func Watch(ctx context.Context, w Watcher) context.Context {
	return context.WithValue(ctx, watcherKey{}, w)
}

// NoteSent notifies the watcher of a call that an attempt is sent.
func NoteSent(ctx context.Context) {
	if w, ok := ctx.Value(watcherKey{}).(Watcher); ok {
		w.Sent()
	}
}
