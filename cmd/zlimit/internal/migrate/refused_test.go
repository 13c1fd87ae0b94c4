package migrate

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
)

// In TestRefusedSources, zae-limiter limits sources in other ways than the target would. Their plan says so, with
// numbers, and a run ends before it writes anything.
func TestRefusedSources(t *testing.T) {
	number := func(name string, n int64) expr.Attribute { return expr.Attribute{Name: name, Value: expr.N(n)} }
	resource := func(name string) store.Key { return layout.ResourceConfigKey{NS: "ns", Resource: name}.Key() }
	limits := expr.Item{number("l_rpm_cp", 10), number("l_rpm_ra", 10), number("l_rpm_rp", 60)}
	bucket := expr.Item{number("rf", 1), number("b_rpm_tk", 1), number("b_rpm_cp", 10), number("b_rpm_ra", 0), number("b_rpm_rp", 1000)}
	version := func(schema, clientMin string) expr.Item {
		it := layout.Version{SchemaVersion: schema, ClientMinVersion: clientMin}
		return it.Encode()
	}
	for _, test := range []struct {
		name  string
		items []expr.Item
		want  []string
	}{
		{"session", []expr.Item{resource("a").Join(expr.Item{number("l_m_rsa", 5)}), resource("b").Join(append(limits, number("l_rpm_rsa", 5)))}, []string{"2 items with a session quota", "attribute l_"}},
		{"bucket", []expr.Item{layout.BucketKey{NS: "ns", Entity: "e", Resource: "r"}.Key().Join(append(bucket, expr.Attribute{Name: "b_rpm_sched", Value: expr.S("2h9x500")}))}, []string{"1 items with a later schedule"}},
		{"version", []expr.Item{layout.VersionKey{}.Key().Join(version("0.10.0", "0.17.0"))}, []string{"for clients from version 0.17.0"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				source, target := newStore(t), newStore(t)
				fill(t, source, []expr.Item{layout.VersionKey{}.Key().Join(version("0.10.0", "0.0.0"))})
				fill(t, source, test.items)
				c := Config{
					Source: source, Target: target, SourceName: "source", SchemaVersion: "0.10.0", ClientMinVersion: "0.10.0", ClientVersion: "0.16.0",
					Rules: Rules{NS: "other"}, Offline: true,
				}
				expect := func(what string, err error) {
					t.Helper()
					if !errors.As(err, new(*RefusedError)) {
						t.Fatalf("%s: %v, want a RefusedError", what, err)
					}
					for _, want := range test.want {
						if !strings.Contains(err.Error(), want) {
							t.Errorf("%s: %v does not say %q", what, err, want)
						}
					}
				}
				p, err := MakePlan(t.Context(), c, 1000)
				if err != nil || p.Refused == nil {
					t.Fatalf("MakePlan() = %+v, %v", p, err)
				}
				expect("plan", p.Refused)
				before := contents(t, target)
				_, err = Start(t.Context(), c)
				expect("start", err)
				if diff := cmp.Diff(before, contents(t, target)); diff != "" {
					t.Errorf("the target was written:\n%s", diff)
				}
			})
		})
	}
}

// In TestRefusedWhileCopied, a program turns the limit of a resource into a session, in a form unknown to all versions,
// during the copy. The run ends, and the target stays closed.
func TestRefusedWhileCopied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTestbed(t, "0.10.0")
		m := check.Call(Start(t.Context(), w.config(&process{}))).Must(t, "Start()")
		w.put(layout.ResourceConfigKey{NS: "ns", Resource: "late"}.Key(), func(item *expr.Item) {
			*item = append(*item, expr.Attribute{Name: "l_rpm_rsa", Value: expr.N(5)})
		})
		if _, err := m.Finish(t.Context()); !errors.As(err, new(*RefusedError)) {
			t.Errorf("Finish() = %v, want a RefusedError", err)
		}
		items := check.Call(w.target.Read(t.Context(), []store.Key{layout.VersionKey{}.Key()}, true)).Must(t, "Read()")
		if it, err := layout.DecodeVersion(items[0]); err != nil || it.ClientMinVersion != guardVersion {
			t.Errorf("the target is for clients from %s, %v", it.ClientMinVersion, err)
		}
	})
}
