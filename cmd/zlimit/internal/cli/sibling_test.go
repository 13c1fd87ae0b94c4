package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
	_ "github.com/zlimit/zlimit-go/zlimit/sqlite"
)

// TestListingsOfUnsupportedLevels has zae-limiter make the limits of two resources sessions, in a form that no version knows. Listings go on past
// both, and name them; what is about them alone fails with their names, and nothing is written.
func TestListingsOfUnsupportedLevels(t *testing.T) {
	dsn := "sqlite:" + t.TempDir() + "/limits.db"
	do := func(args ...string) run {
		t.Helper()
		return command(t, "", append(args, "--store", dsn)...)
	}
	for _, resource := range []string{"cal", "gpt", "off"} {
		if r := do("limits", "set", "--resource", resource, "--limit", "rpm=60/min"); r.code != 0 {
			t.Fatal(r)
		}
	}
	mark(t, dsn, "RESOURCE#off", expr.Attribute{Name: "l_rpm_rsa", Value: expr.N(5)})
	mark(t, dsn, "RESOURCE#cal", expr.Attribute{Name: "l_rpm_rsa", Value: expr.N(6)})
	has := func(what string, r run, code int, stdout, stderr []string) {
		t.Helper()
		if r.code != code {
			t.Errorf("%s: exit code %d, want %d: %s", what, r.code, code, r.stderr)
		}
		for _, want := range stdout {
			if !strings.Contains(r.stdout, want) {
				t.Errorf("%s: the output lacks %q:\n%s", what, want, r.stdout)
			}
		}
		for _, want := range stderr {
			if !strings.Contains(r.stderr, want) {
				t.Errorf("%s: the errors lack %q:\n%s", what, want, r.stderr)
			}
		}
	}
	has("list", do("limits", "list", "--details"), 0, []string{"session quota (l_rpm_rsa)", "gpt", "60"}, nil)
	has("list as JSON", do("limits", "list", "--details", "-o", "json"), 0, []string{`"unsupported":[{"name":"session quota","attribute":"l_rpm_rsa","since":"0.15.0"}]`}, nil)
	has("import", do("limits", "import"), 0, []string{"gpt:"}, []string{"left out: resource cal: session quota", "left out: resource off: session quota"})
	file := filepath.Join(t.TempDir(), "limits.yaml")
	if err := os.WriteFile(file, []byte("resources:\n  \"off\":\n    limits:\n      rpm: 1/min\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	has("plan", do("limits", "plan", "-f", file), 1, nil, []string{`resource "off"`, "session quota (attribute l_rpm_rsa"})
	has("apply", do("limits", "apply", "-f", file, "--yes"), 1, nil, []string{`resource "off"`, "session quota (attribute l_rpm_rsa"})
	has("get", do("limits", "get", "--resource", "off"), 1, nil, []string{"session quota"})
	has("set", do("limits", "set", "--resource", "cal", "--limit", "rpm=1/min"), 1, nil, []string{"session quota"})
	has("acquire", do("acquire", "alice", "off", "--consume", "rpm=1"), 1, nil, []string{`resource "off"`, "session quota (attribute l_rpm_rsa"})
	has("acquire of another", do("acquire", "alice", "gpt", "--consume", "rpm=1"), 0, nil, nil)
}

// mark adds attributes to the config of a resource.
func mark(t *testing.T, dsn, place string, attributes ...expr.Attribute) {
	t.Helper()
	s, err := zlimit.OpenStore(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	registry, err := store.Of(s).Query(t.Context(), store.Query{PK: "_/SYSTEM#", Prefix: "#NSID#", Consistent: true})
	if err != nil {
		t.Fatal(err)
	}
	key := store.Key{PK: registry.Items[0].Get("namespace_id").Text() + "/" + place, SK: "#CONFIG"}
	items, err := store.Of(s).Read(t.Context(), []store.Key{key}, true)
	if err != nil {
		t.Fatal(err)
	}
	item := expr.Item(slices.Clone(attributes))
	for _, a := range items[0] {
		if _, again := item.Lookup(a.Name); !again && a.Name != store.PK && a.Name != store.SK {
			item = append(item, a)
		}
	}
	if _, err := store.Of(s).Write(t.Context(), store.Write{Kind: store.Put, Key: key, Item: item}); err != nil {
		t.Fatal(err)
	}
}
