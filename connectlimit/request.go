package connectlimit

import (
	"context"
	"fmt"
	"net/http"

	"connectrpc.com/connect"

	"github.com/zlimit/zlimit-go/zlimit"
)

// A RequestFunc returns the caller and the amounts of a call, by its procedure and the header of its request. An error
// of it fails the call as [Error] says; a [*connect.Error] stays as it is.
type RequestFunc func(ctx context.Context, spec connect.Spec, header http.Header) (zlimit.Request, error)

// A Key finds the entity that a call is charged to, in the header of its request.
type Key func(header http.Header) (entity string, err error)

// Requests returns a RequestFunc for limits of calls: each takes one of a limit of a resource, from the entity that a key
// finds. It panics when the key is nil.
func Requests(resource, limit string, key Key) RequestFunc {
	if key == nil {
		panic("connectlimit: the key function is nil")
	}
	one := zlimit.Amounts{limit: 1}
	return func(_ context.Context, _ connect.Spec, header http.Header) (zlimit.Request, error) {
		entity, err := key(header)
		return zlimit.Request{Entity: entity, Resource: resource, Consume: one}, err
	}
}

// longestKey is the most bytes of an entity.
const longestKey = 256

// ByHeader finds the entity in a header field, as it is. Use it for a field that a trusted party has set. A key that is
// missing, repeated, or longer than 256 bytes fails the call with unauthenticated.
func ByHeader(name string) Key {
	return func(header http.Header) (string, error) {
		var reason string
		switch values := header.Values(name); {
		case len(values) == 0 || len(values) == 1 && values[0] == "":
			reason = "is missing"
		case len(values) > 1:
			reason = fmt.Sprintf("is there %d times", len(values))
		case len(values[0]) > longestKey:
			reason = fmt.Sprintf("has %d bytes; it must have at most %d", len(values[0]), longestKey)
		default:
			return values[0], nil
		}
		return "", connect.NewError(connect.CodeUnauthenticated, fmt.Errorf("the key in the header %s %s", name, reason))
	}
}

// For charges every call to one entity, as clients do.
func For(entity string) Key { return func(http.Header) (string, error) { return entity, nil } }
