package zlimit

import (
	"context"
	"fmt"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
)

// Version is the version of this client. A table says which versions may use it. It counts as the layout does: a client
// of version 0.10.2 reads and writes layout 0.10.
const Version = "0.10.0"

// A VersionError reports a table that this client may not use. The major version of its layout is another one, or it
// asks for a later client. Nothing was read from the table but its version.
type VersionError struct {
	Schema    string `json:"schema"`     // version of the table's layout
	ClientMin string `json:"client_min"` // version of the oldest client that may use the table
	Client    string `json:"client"`     // [Version]
}

// Error says which of the two it is.
func (e *VersionError) Error() string {
	if !layout.SameMajor(e.Schema, SchemaVersion) {
		return fmt.Sprintf("zlimit: the table has layout %s, this client is for layout %s", e.Schema, SchemaVersion)
	}
	return fmt.Sprintf("zlimit: the table is for clients from version %s, this is %s", e.ClientMin, e.Client)
}

// checkVersion returns a [*VersionError] when a version record does not admit this client. A table without one is taken
// as it is, since some implementations of the layout keep the record in another place. Only this layout has a registry
// of namespaces where it would be.
func checkVersion(item expr.Item) error {
	if item == nil {
		return nil
	}
	found, err := layout.DecodeVersion(item)
	if err != nil {
		return err
	}
	if found.Admits(SchemaVersion, Version) {
		return nil
	}
	return &VersionError{Schema: found.SchemaVersion, ClientMin: found.ClientMinVersion, Client: Version}
}

// writeVersion writes the version record, unless it exists.
func (l *RateLimiter) writeVersion(ctx context.Context) error {
	record := layout.Version{
		SchemaVersion:    SchemaVersion,
		ClientMinVersion: ClientMinVersion,
		UpdatedAt:        l.now().UTC().Format(layout.TimeFormat),
		UpdatedBy:        l.principal(ctx),
	}
	absent, err := layout.Insert()
	if err != nil {
		return err
	}
	result, err := l.table.Write(ctx, store.Write{Kind: store.Put, Key: record.Key.Key(), Item: record.Encode(), Expr: absent})
	if err != nil || result.Applied {
		return err
	}
	return checkVersion(result.Item) // another process was first
}

// RaiseVersion raises the version record of the table to this client: the layout, the oldest client that may use the table,
// and the version of the aggregator that is deployed, unless that is "". It lowers none of them. It is for those who deploy,
// once the aggregator is there: clients that are older than the record allows are refused from then on.
//
// It returns a [*VersionError] for a table that this client may not use. It costs a read, and two conditional write units
// where the record changes, with one for its index.
func (l *RateLimiter) RaiseVersion(ctx context.Context, aggregator string) error {
	if l.closed.Load() {
		return ErrClosed
	}
	return publicError("raise the version", l.table.Optimistic(ctx, func() (done bool, err error) {
		items, err := l.table.Read(ctx, layout.VersionKey{}.Key())
		if err != nil {
			return false, err
		}
		if err := checkVersion(items[0]); err != nil {
			return false, err
		}
		var seen layout.Version
		expected, err := layout.Insert()
		if items[0] != nil {
			if seen, err = layout.DecodeVersion(items[0]); err == nil {
				expected, err = layout.RaiseVersion(seen.SchemaVersion, seen.ClientMinVersion, seen.LambdaVersion)
			}
		}
		if err != nil {
			return false, err
		}
		next := seen
		next.SchemaVersion = layout.Later(seen.SchemaVersion, SchemaVersion)
		next.ClientMinVersion = layout.Later(seen.ClientMinVersion, ClientMinVersion)
		next.LambdaVersion = layout.Later(seen.LambdaVersion, aggregator)
		if items[0] != nil && next.SchemaVersion == seen.SchemaVersion && next.ClientMinVersion == seen.ClientMinVersion && next.LambdaVersion == seen.LambdaVersion {
			return true, nil
		}
		next.UpdatedAt, next.UpdatedBy = l.now().UTC().Format(layout.TimeFormat), l.principal(ctx)
		result, err := l.table.Write(ctx, store.Write{Kind: store.Put, Key: next.Key.Key(), Item: next.Encode(), Expr: expected})
		return err == nil && result.Applied, err
	}))
}
