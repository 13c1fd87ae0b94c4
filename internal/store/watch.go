package store

import "context"

// A Watcher is told of the attempts of a call while the call is under way. A store answers some attempts with a
// throttle, or with a part of the result, and makes another. Such a call is not silent, however long it takes.
type Watcher interface {
	// Sent is called before each attempt, possibly by several goroutines at once.
	Sent()
}

type watcherKey struct{}

// Watch returns a context for one call, of whose attempts the store tells w.
func Watch(ctx context.Context, w Watcher) context.Context {
	return context.WithValue(ctx, watcherKey{}, w)
}

// NoteSent tells the watcher of a call that an attempt is sent.
func NoteSent(ctx context.Context) {
	if w, ok := ctx.Value(watcherKey{}).(Watcher); ok {
		w.Sent()
	}
}
