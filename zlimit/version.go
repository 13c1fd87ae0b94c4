package zlimit

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
)

// Version is the version of this client. A table states which client versions may use it. zae-limiter uses the same
// version numbers: this client obeys all limits that zae-limiter up to 0.17.0 stores. Guaranteed shares require 0.17.1,
// see [Limit.Share].
const Version = "0.17.1"

// A VersionError reports a table that this client may not use: its layout has another major version, it requires a
// later client, or a migration has closed it. Only the version of the table was read.
type VersionError struct {
	Schema    string `json:"schema"`     // version of the table's layout
	ClientMin string `json:"client_min"` // version of the oldest client that may use the table
	Client    string `json:"client"`     // [Version]
}

// Migrating reports whether a migration has closed the table. The migration opens it again when it is finished.
func (e *VersionError) Migrating() bool { return e.ClientMin == layout.Migrating }

// Error says which of these it is.
func (e *VersionError) Error() string {
	if e.Migrating() {
		return "zlimit: the table is closed by a copy or a migration that is not finished; zlimit copy status or zlimit migrate status shows its progress"
	}
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

// always is the [layout.Version.ChildrenFrom] of a new table.
var always = layout.FormatTime(time.Time{})

// mayRepeat reports whether usage of a window may be from before the table counted the charges of parents for children,
// given the window's beginning.
func (l *RateLimiter) mayRepeat(ctx context.Context, start time.Time) (bool, error) {
	items, err := l.table.ReadEventually(ctx, layout.VersionKey{}.Key())
	if err != nil || items[0] == nil {
		return true, err
	}
	found, err := layout.DecodeVersion(items[0])
	return found.ChildrenFrom == "" || layout.FormatTime(start) < found.ChildrenFrom, err
}

// writeVersion writes the version record. Where the record exists, the table counts what requests of children are charged to their
// parents from now on, if it did not before.
func (l *RateLimiter) writeVersion(ctx context.Context) error {
	name, err := l.principal(ctx)
	if err != nil {
		return err
	}
	record := layout.Version{
		SchemaVersion:    SchemaVersion,
		ClientMinVersion: ClientMinVersion,
		UpdatedAt:        l.now().UTC().Format(layout.TimeFormat),
		UpdatedBy:        name,
		ChildrenFrom:     always,
	}
	absent, err := layout.Insert()
	if err != nil {
		return err
	}
	result, err := l.table.Write(ctx, store.Write{Kind: store.Put, Key: record.Key.Key(), Item: record.Encode(), Expr: absent})
	if err != nil || result.Applied {
		return err
	}
	if err := checkVersion(result.Item); err != nil || result.Item.Get(layout.AttrVersionChildrenFrom).Kind() != expr.KindNone {
		return err
	}
	return l.changeVersion(ctx, func(*layout.Version) {})
}

// raiseVersion raises the version record of the table to this client: the layout, the oldest client, and the version of
// the deployed aggregator, unless it is "". It lowers none of them. Clients that are older than the record allows are
// refused from then on.
//
// raiseVersion returns a [*VersionError] for a table that refuses this client. It costs a read, and two conditional
// write units where the record changes, with one for its index.
func (l *RateLimiter) raiseVersion(ctx context.Context, aggregator string) error {
	return l.changeVersion(ctx, func(v *layout.Version) {
		v.SchemaVersion = layout.Later(v.SchemaVersion, SchemaVersion)
		v.ClientMinVersion = layout.Later(v.ClientMinVersion, ClientMinVersion)
		v.LambdaVersion = layout.Later(v.LambdaVersion, aggregator)
	})
}

// askFor makes sure that the table asks for clients from a version on, "" for any. The table is asked once.
func (l *RateLimiter) askFor(ctx context.Context, client string) error {
	if asked := l.asked.Load(); client == "" || asked != nil && layout.Later(*asked, client) == *asked {
		return nil
	}
	err := l.changeVersion(ctx, func(v *layout.Version) { v.ClientMinVersion = layout.Later(v.ClientMinVersion, client) })
	if err == nil {
		l.asked.Store(&client)
	}
	return publicError("ask the table for clients from "+client+" on", err)
}

// changeVersion changes the version record as it is by then. An older record counts the charges of parents for children
// from now on.
func (l *RateLimiter) changeVersion(ctx context.Context, change func(*layout.Version)) error {
	return l.table.Optimistic(ctx, func() (done bool, err error) {
		items, err := l.table.Read(ctx, layout.VersionKey{}.Key())
		if err != nil {
			return false, err
		}
		if err := checkVersion(items[0]); err != nil {
			return false, err
		}
		now := layout.FormatTime(l.now())
		seen := layout.Version{ChildrenFrom: always}
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
		change(&next)
		next.ChildrenFrom = cmp.Or(seen.ChildrenFrom, now)
		if items[0] != nil && layout.SameVersions(&next, &seen) {
			return true, nil
		}
		next.UpdatedAt = now
		if next.UpdatedBy, err = l.principal(ctx); err != nil {
			return false, err
		}
		result, err := l.table.Write(ctx, store.Write{Kind: store.Put, Key: next.Key.Key(), Item: next.Encode(), Expr: expected})
		return err == nil && result.Applied, err
	})
}
