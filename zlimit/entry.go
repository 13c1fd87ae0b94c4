package zlimit

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/table"
	"github.com/zlimit/zlimit-go/internal/tool/wait"
)

// A namespaceID is the ID with which the keys of a limiter begin. A limiter that was opened in an outage has none at first.
type namespaceID struct{ known atomic.Pointer[string] }

// id returns the ID, "" while it is not known.
func (n *namespaceID) id() string {
	if id := n.known.Load(); id != nil {
		return *id
	}
	return ""
}

// An entry is how a limiter comes to its namespace.
type entry struct {
	l      *RateLimiter
	cancel context.CancelFunc    // of what goes on in the background; nil for nothing
	cause  atomic.Pointer[error] // why the namespace is not known
	find   func(*NamespaceService, context.Context, string) (registration, error)
}

// stop ends what goes on in the background.
func (e *entry) stop() {
	if e.cancel != nil {
		e.cancel()
	}
}

// Pauses between looks for a store that was away when the limiter was opened.
const (
	firstLook = 250 * time.Millisecond
	longLook  = 5 * time.Second
)

// mayWait reports whether a limiter without its namespace may be used all the same: in an outage, where the failure
// policy admits requests.
func (e *entry) mayWait(ctx context.Context, err error) bool {
	return e.l.options.policy == PolicyAllow && ctx.Err() == nil && unavailable(err)
}

// enterLater enters the namespace in the background, which was not possible because of err.
func (e *entry) enterLater(ctx context.Context, embedded bool, err error) {
	e.l.options.logger.Warn("zlimit: the store is unavailable; requests are admitted uncounted until it is back", "error", err)
	e.cause.Store(&err)
	ctx, e.cancel = context.WithCancel(context.WithoutCancel(ctx))
	e.l.engine.Go(ctx, func(context.Context) { e.keepEntering(ctx, embedded) })
}

// keepEntering tries to enter the namespace until it did, or the limiter is closed.
func (e *entry) keepEntering(ctx context.Context, embedded bool) {
	for pause := firstLook; ; pause = min(2*pause, longLook) {
		half := int(pause / 2)
		if wait.For(ctx, pause-time.Duration(e.l.table.IntN(half))) != nil { // apart from other processes
			return
		}
		_, err := e.enter(ctx, embedded)
		if err == nil {
			e.l.options.logger.Info("zlimit: the store is back")
			return
		}
		if ctx.Err() == nil {
			e.cause.Store(&err)
		}
	}
}

// enter sets the store up as the options ask, and looks the namespace up. An error comes with the operation that failed.
func (e *entry) enter(ctx context.Context, embedded bool) (op string, err error) {
	ctx = table.Insist(context.WithValue(ctx, enteringKey{}, true))
	switch {
	case e.l.options.setup && e.l.options.policy == PolicyAllow:
		err = e.l.table.Call(ctx, e.l.store.Ping) // which is bounded, as the making of a table is not
		if err == nil || !unavailable(err) {
			err = e.l.prepare(ctx, e.l.options.namespace)
		}
	case e.l.options.setup:
		err = e.l.prepare(ctx, e.l.options.namespace)
	case embedded:
		err = e.l.prepare(ctx, DefaultNamespace)
	}
	if err != nil {
		return "set up", err
	}
	const look = "look up the namespace"
	found, err := e.find(e.l.Namespaces, ctx, e.l.options.namespace)
	if err != nil {
		return look, err
	}
	if found.namespace == nil {
		return look, missing(e.l.options.namespace)
	}
	e.l.ns.known.Store(&found.namespace.ID)
	return "", nil
}

// enteringKey marks the contexts of calls by which a limiter comes to its namespace.
type enteringKey struct{}

// errAway stands for a call with a key that was made before the namespace was known.
var errAway = &store.Error{Op: "look up the namespace", Unavailable: true, Err: errors.New("the store was unavailable when the call began")}

// waiting returns a store that refuses calls until the namespace is known. After that it refuses calls whose keys were built before.
func (l *RateLimiter) waiting(s store.Store) store.Store {
	return store.Around{Store: s, Call: func(ctx context.Context, c *store.Call, do func(context.Context) error) error {
		if ctx.Value(enteringKey{}) != nil {
			return do(ctx)
		}
		if l.ns.id() == "" {
			return &table.NotMade{Err: *l.entry.cause.Load()}
		}
		for pk := range c.Partitions() {
			if pk == "" || strings.HasPrefix(pk, "/") {
				return &table.NotMade{Err: errAway}
			}
		}
		return do(ctx)
	}}
}
