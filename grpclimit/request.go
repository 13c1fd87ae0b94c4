package grpclimit

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/zlimit/zlimit-go/zlimit"
)

// A RequestFunc returns the caller and the amounts of a call. The method is its full name, such as /library.Books/Get.
// An error of it fails the call as [Error] says; one that has a status of gRPC keeps it.
type RequestFunc func(ctx context.Context, method string) (zlimit.Request, error)

// A Key finds the entity that a call is charged to.
type Key func(ctx context.Context) (entity string, err error)

// Requests returns a RequestFunc for limits of calls: each takes one of a limit of a resource, from the entity that a key
// finds. It panics when the key is nil.
func Requests(resource, limit string, key Key) RequestFunc {
	if key == nil {
		panic("grpclimit: the key function is nil")
	}
	one := zlimit.Amounts{limit: 1}
	return func(ctx context.Context, _ string) (zlimit.Request, error) {
		entity, err := key(ctx)
		return zlimit.Request{Entity: entity, Resource: resource, Consume: one}, err
	}
}

// longestKey is the most bytes of an entity.
const longestKey = 256

// ByMetadata finds the entity of a server's call in its metadata, as it is. Use it for metadata that a trusted party
// has set. A key that is missing, repeated, or longer than 256 bytes fails the call with UNAUTHENTICATED.
func ByMetadata(name string) Key {
	return func(ctx context.Context) (string, error) {
		switch values := metadata.ValueFromIncomingContext(ctx, name); {
		case len(values) == 0 || len(values) == 1 && values[0] == "":
			return "", status.Errorf(codes.Unauthenticated, "the key in the metadata %s is missing", name)
		case len(values) > 1:
			return "", status.Errorf(codes.Unauthenticated, "the key in the metadata %s is there %d times", name, len(values))
		case len(values[0]) > longestKey:
			reason := fmt.Sprintf("has %d bytes; it must have at most %d", len(values[0]), longestKey)
			return "", status.Errorf(codes.Unauthenticated, "the key in the metadata %s %s", name, reason)
		default:
			return values[0], nil
		}
	}
}

// For charges every call to one entity, as clients do.
func For(entity string) Key { return func(context.Context) (string, error) { return entity, nil } }
