package zlimit_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// TestVersions opens tables with version records of all kinds.
func TestVersions(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		ctx := context.Background()
		c := newClock()
		newLimiter(t, s, zlimit.WithClock(c.now), zlimit.WithPrincipal("ops"))
		key := layout.VersionKey{}.Key()
		read := func() expr.Item {
			t.Helper()
			items := check.Call(store.Of(s).Read(ctx, []store.Key{key}, true)).Must(t, "Read()")
			return items[0]
		}
		got, err := layout.DecodeVersion(read())
		if err != nil || got.SchemaVersion != zlimit.SchemaVersion || got.ClientMinVersion != zlimit.ClientMinVersion ||
			got.UpdatedAt != "2026-03-01T12:00:00Z" || got.UpdatedBy != "ops" || got.LambdaVersion != "" {
			t.Errorf("the version record is %+v, %v", got, err)
		}

		for _, test := range []struct {
			name, schema, least string
			refusal             string // part of the error; "" for none
		}{
			{"its own", zlimit.SchemaVersion, zlimit.ClientMinVersion, ""},
			{"an older layout of the major version", "0.9.0", "0.9.0", ""},
			{"a newer layout of the major version", "0.99.7", "0.10.0", ""},
			{"a layout of the next major version", "1.0.0", "0.10.0", "has layout 1.0.0"},
			{"a newer client", zlimit.SchemaVersion, "0.17.99", "from version 0.17.99"},
			{"a much newer client", zlimit.SchemaVersion, "0.18", "from version 0.18"},
			{"a client of the next major version", zlimit.SchemaVersion, "1", "from version 1"},
			{"an older client", zlimit.SchemaVersion, "0.2.30", ""},
			{"any client", zlimit.SchemaVersion, "", ""},
			{"a prerelease", "0.10.0-rc.1+build.5", "v0.10.0-beta", ""},
			{"no number", "latest", "0.10.0", "has layout latest"},
			{"no number of a client", zlimit.SchemaVersion, "0.x", "from version 0.x"},
			{"too many numbers", zlimit.SchemaVersion, "0.1.2.3", "from version 0.1.2.3"},
		} {
			record := layout.Version{SchemaVersion: test.schema, ClientMinVersion: test.least, UpdatedAt: "2026-01-01T00:00:00Z", UpdatedBy: "somebody", ChildrenFrom: "2026-01-01T00:00:00Z"}
			if _, err := store.Of(s).Write(ctx, store.Write{Kind: store.Put, Key: key, Item: record.Encode()}); err != nil {
				t.Fatalf("Write() = %v", err)
			}
			before := dump(t, store.Of(s), zlimit.RegistryNamespace)
			for call, opts := range map[string][]zlimit.Option{
				"New": nil, "New with setup": {zlimit.WithSetup()}, "New with setup of a namespace": {zlimit.WithSetup(), zlimit.WithNamespace("new " + test.name)},
			} {
				l, err := zlimit.New(ctx, s, opts...)
				if err == nil {
					check.Error(t, "Close()", l.Close())
				}
				var refused *zlimit.VersionError
				switch {
				case test.refusal == "":
					if err != nil {
						t.Errorf("%s: %s = %v", test.name, call, err)
					}
				case !errors.As(err, &refused) || refused.Schema != test.schema || refused.ClientMin != test.least || refused.Client != zlimit.Version:
					t.Errorf("%s: %s = %v, want a VersionError", test.name, call, err)
				case !strings.Contains(err.Error(), test.refusal):
					t.Errorf("%s: %s = %q, want it to say %q", test.name, call, err, test.refusal)
				}
			}
			if test.refusal != "" {
				if after := dump(t, store.Of(s), zlimit.RegistryNamespace); len(after) != len(before) {
					t.Errorf("%s: the registry grew from %d to %d items", test.name, len(before), len(after))
				}
			}
			if got := read(); !got.Equal(key.Join(record.Encode())) {
				t.Errorf("%s: the record is now %v", test.name, got)
			}
		}

		// A table without a record is taken as it is; setting it up completes it.
		check.Fatal(t, "Delete()", store.Of(s).Delete(ctx, []store.Key{key}))
		if !store.IsEmbedded(s) { // an embedded store is always set up
			l := check.Call(zlimit.New(ctx, s)).Must(t, "New() on a table without a version")
			check.Error(t, "Close()", l.Close())
			if got := read(); got != nil {
				t.Errorf("New() wrote %v", got)
			}
		}
		newLimiter(t, s)
		if got := read(); got.Get("schema_version").Text() != zlimit.SchemaVersion {
			t.Errorf("Setup() wrote %v", got)
		}
	})
}

// TestConcurrentSetups sets a table up from several limiters at the same time.
func TestConcurrentSetups(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		ctx := context.Background()
		var group sync.WaitGroup
		ids := make([]string, 6)
		for i := range ids {
			group.Go(func() {
				l, err := zlimit.New(ctx, s, zlimit.WithSetup(), zlimit.WithNamespace("a"))
				if err != nil {
					t.Errorf("New() = %v", err)
					return
				}
				ids[i] = l.NS()
				check.Error(t, "Close()", l.Close())
			})
		}
		group.Wait()
		for _, id := range ids {
			if id != ids[0] {
				t.Errorf("namespace ids %q, want one", ids)
			}
		}
		if got := len(dump(t, store.Of(s), zlimit.RegistryNamespace)); got != 3 {
			t.Errorf("the registry has %d items, want 3", got)
		}
	})
}

// TestVersionIsOneOfTheLayout asks that this client may use the tables that it creates.
func TestVersionIsOneOfTheLayout(t *testing.T) {
	own := layout.Version{SchemaVersion: zlimit.SchemaVersion, ClientMinVersion: zlimit.ClientMinVersion}
	if !own.Admits(zlimit.SchemaVersion, zlimit.Version) {
		t.Errorf("Version %s does not suit layout %s for clients from %s", zlimit.Version, zlimit.SchemaVersion, zlimit.ClientMinVersion)
	}
}
