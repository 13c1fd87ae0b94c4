package zlimit

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"

	"github.com/zlimit/zlimit-go/internal/store"
)

// DefaultNamespace is the namespace of limiters that are opened without [WithNamespace].
const DefaultNamespace = "default"

// registryNamespace is the namespace id of the registry itself.
const registryNamespace = "_"

// timeFormat is the form of times in items.
const timeFormat = "2006-01-02T15:04:05Z"

// Values of the status attribute of a namespace.
const statusActive = "active"

// newNamespaceID returns 8 random bytes in unpadded URL-safe base64, never starting with a hyphen, which command lines
// would take for an option.
func newNamespaceID() string {
	for {
		var b [8]byte
		rand.Read(b[:]) //nolint:errcheck // crypto/rand.Read never fails
		if id := base64.RawURLEncoding.EncodeToString(b[:]); id[0] != '-' {
			return id
		}
	}
}

// lookupNamespace returns the id of a registered namespace.
func lookupNamespace(ctx context.Context, s store.Store, name string) (string, error) {
	found, err := s.Read(ctx, []store.Key{namespaceKey{Name: name}.key()}, true)
	if err != nil {
		return "", wrap("look up the namespace", err)
	}
	if found[0] == nil {
		return "", fmt.Errorf("%w: %q", ErrNamespaceNotFound, name)
	}
	item, err := decodeNamespace(found[0])
	if err != nil {
		return "", wrap("look up the namespace", err)
	}
	return item.ID, nil
}

// registerNamespace registers a namespace, or finds it registered.
func (l *RateLimiter) registerNamespace(ctx context.Context, name string) error {
	for attempt := range maxAttempts {
		if _, err := lookupNamespace(ctx, l.store, name); !errors.Is(err, ErrNamespaceNotFound) {
			return err
		}
		now := l.now().UTC().Format(timeFormat)
		id := newNamespaceID()
		forward := namespaceItem{Key: namespaceKey{Name: name}, ID: id, Name: name, Status: statusActive, CreatedAt: now}
		reverse := namespaceIDItem{Key: namespaceIDKey{ID: id}, ID: id, Name: name, Status: statusActive, CreatedAt: now}
		absent, err := insert()
		if err != nil {
			return wrap("register the namespace", err)
		}
		applied, err := l.transact(ctx, []store.Write{
			{Kind: store.Put, Key: forward.Key.key(), Item: forward.encode(), Expr: absent},
			{Kind: store.Put, Key: reverse.Key.key(), Item: reverse.encode(), Expr: absent},
		})
		if applied || err != nil {
			return wrap("register the namespace", err)
		}
		if err := pause(ctx, attempt); err != nil {
			return err
		}
	}
	return ErrContended
}
