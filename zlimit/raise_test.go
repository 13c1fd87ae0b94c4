package zlimit_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A versioned is a store whose version record a test writes and reads.
type versioned struct {
	*testing.T
	store store.Store
}

func (v versioned) write(schema, least, lambda string) {
	v.Helper()
	record := layout.Version{SchemaVersion: schema, ClientMinVersion: least, LambdaVersion: lambda, UpdatedAt: "2026-01-01T00:00:00Z", UpdatedBy: "somebody"}
	if _, err := v.store.Write(v.Context(), store.Write{Kind: store.Put, Key: record.Key.Key(), Item: record.Encode()}); err != nil {
		v.Fatal(err)
	}
}

// read returns the versions in the record, and who wrote them.
func (v versioned) read() [4]string {
	v.Helper()
	items, err := v.store.Read(v.Context(), []store.Key{layout.VersionKey{}.Key()}, true)
	if err != nil || items[0] == nil {
		v.Fatalf("the version record is %v, %v", items, err)
	}
	r, err := layout.DecodeVersion(items[0])
	if err != nil {
		v.Fatal(err)
	}
	return [4]string{r.SchemaVersion, r.ClientMinVersion, r.LambdaVersion, r.UpdatedBy}
}

// TestRaiseVersion raises records of all kinds, and lowers none.
func TestRaiseVersion(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		l := newLimiter(t, s, zlimit.WithPrincipal("ops"))
		v := versioned{t, s.Internal()}
		schema, least := zlimit.SchemaVersion, zlimit.ClientMinVersion
		for _, test := range []struct {
			name               string
			had                [3]string
			aggregator         string
			want               [4]string
			wantErr, unchanged bool
		}{
			{"an older one", [3]string{"0.9.0", "0.5.0", "0.9.0"}, "0.10.0", [4]string{schema, least, "0.10.0", "ops"}, false, false},
			{"without an aggregator", [3]string{"0.9.0", "0.5.0", "0.9.0"}, "", [4]string{schema, least, "0.9.0", "ops"}, false, false},
			{"a later layout and aggregator", [3]string{"0.99.0", least, "0.99.0"}, "0.10.0", [4]string{"0.99.0", least, "0.99.0", "somebody"}, false, true},
			{"a later layout, an older client", [3]string{"0.99.0", "0.5.0", ""}, "", [4]string{"0.99.0", least, "", "ops"}, false, false},
			{"its own", [3]string{schema, least, "0.10.0"}, "0.10.0", [4]string{schema, least, "0.10.0", "somebody"}, false, true},
			{"for later clients", [3]string{schema, "0.99.0", ""}, "0.10.0", [4]string{schema, "0.99.0", "", "somebody"}, true, true},
		} {
			v.write(test.had[0], test.had[1], test.had[2])
			err := l.RaiseVersion(t.Context(), test.aggregator)
			var refused *zlimit.VersionError
			if errors.As(err, &refused) != test.wantErr || (err != nil) != test.wantErr {
				t.Errorf("%s: RaiseVersion() = %v", test.name, err)
			}
			if diff := cmp.Diff(test.want, v.read()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.name, diff)
			}
		}
		if err := s.Internal().Delete(t.Context(), []store.Key{layout.VersionKey{}.Key()}); err != nil {
			t.Fatal(err)
		}
		if err := l.RaiseVersion(t.Context(), "0.10.0"); err != nil || v.read() != [4]string{schema, least, "0.10.0", "ops"} {
			t.Errorf("without a record: RaiseVersion() = %v, %v", err, v.read())
		}
		bare := expr.Item{
			{Name: "schema_version", Value: expr.S("0.9.0")}, {Name: "client_min_version", Value: expr.S("0.5.0")}, {Name: "updated_at", Value: expr.S("x")},
		}
		if _, err := s.Internal().Write(t.Context(), store.Write{Kind: store.Put, Key: layout.VersionKey{}.Key(), Item: bare}); err != nil {
			t.Fatal(err)
		}
		if err := l.RaiseVersion(t.Context(), "0.10.0"); err != nil || v.read() != [4]string{schema, least, "0.10.0", "ops"} {
			t.Errorf("without a version of the aggregator: RaiseVersion() = %v, %v", err, v.read())
		}
	})
}

// TestRaisingAsksForTheRecord has another writer raise one version between the look and the write: it does not sink.
func TestRaisingAsksForTheRecord(t *testing.T) {
	for _, test := range []struct {
		name   string
		raised [3]string // layout, oldest client, aggregator
		want   [4]string // with who wrote it
		admits bool      // that record admits this client
	}{
		{"layout", [3]string{"0.99.0", "0.5.0", ""}, [4]string{"0.99.0", zlimit.ClientMinVersion, "0.10.0", "ops"}, true},
		{"client", [3]string{"0.9.0", "0.99.0", ""}, [4]string{"0.9.0", "0.99.0", "", "somebody"}, false},
		{"aggregator", [3]string{"0.9.0", "0.5.0", "0.42.0"}, [4]string{zlimit.SchemaVersion, zlimit.ClientMinVersion, "0.42.0", "ops"}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := &interrupted{Store: newMemory(t).Internal()}
			l := newLimiter(t, zlimit.StoreOn(p), zlimit.WithPrincipal("ops"))
			v := versioned{t, p.Store}
			v.write("0.9.0", "0.5.0", "")
			p.set(func() { v.write(test.raised[0], test.raised[1], test.raised[2]) })
			err := l.RaiseVersion(context.Background(), "0.10.0")
			if refused := errors.As(err, new(*zlimit.VersionError)); refused == test.admits || test.admits && err != nil {
				t.Errorf("RaiseVersion() = %v, want a VersionError: %t", err, !test.admits)
			}
			if v.read() != test.want {
				t.Errorf("the record has %v, want %v", v.read(), test.want)
			}
		})
	}
}
