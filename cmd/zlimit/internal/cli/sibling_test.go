package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
	_ "github.com/zlimit/zlimit-go/zlimit/sqlite"
)

// In TestListingsOfUnsupportedLevels, zae-limiter makes the limits of two resources sessions, in a form that no version knows. Listings go
// on past both, and name them. Calls that need them fail with their names, and nothing is written.
func TestListingsOfUnsupportedLevels(t *testing.T) {
	dsn := "sqlite:" + t.TempDir() + "/limits.db"
	do := func(args ...string) run {
		t.Helper()
		return command(t, "", append(args, "--store", dsn)...)
	}
	for _, resource := range []string{"cal", "gpt", "off"} {
		if r := do("limits", "set", "--resource", resource, "--limit", "rpm=60/min"); r.code != 0 {
			t.Fatalf("do() = %v", r)
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
	check.Fatal(t, "os.WriteFile()", os.WriteFile(file, []byte("resources:\n  \"off\":\n    limits:\n      rpm: 1/min\n"), 0o600))
	has("plan", do("limits", "plan", "-f", file), 1, nil, []string{`resource "off"`, "session quota (attribute l_rpm_rsa"})
	has("apply", do("limits", "apply", "-f", file, "--yes"), 1, nil, []string{`resource "off"`, "session quota (attribute l_rpm_rsa"})
	has("get", do("limits", "get", "--resource", "off"), 1, nil, []string{"session quota"})
	has("set", do("limits", "set", "--resource", "cal", "--limit", "rpm=1/min"), 1, nil, []string{"session quota"})
	has("acquire", do("acquire", "alice", "off", "--consume", "rpm=1"), 1, nil, []string{`resource "off"`, "session quota (attribute l_rpm_rsa"})
	has("acquire of another", do("acquire", "alice", "gpt", "--consume", "rpm=1"), 0, nil, nil)
}

// namespaceID returns the ID of the one namespace of a store.
func namespaceID(t *testing.T, s zlimit.Store) string {
	t.Helper()
	registry, err := store.Of(s).Query(t.Context(), store.Query{PK: "_/SYSTEM#", Prefix: "#NSID#", Consistent: true})
	check.Fatal(t, "Query()", err)
	return registry.Items[0].Get("namespace_id").Text()
}

// mark adds attributes to the config of a resource.
func mark(t *testing.T, dsn, place string, attributes ...expr.Attribute) {
	t.Helper()
	s := check.Call(zlimit.OpenStore(t.Context(), dsn)).Must(t, "zlimit.OpenStore()")
	defer func() { check.Error(t, "Close()", s.Close()) }()
	key := store.Key{PK: namespaceID(t, s) + "/" + place, SK: "#CONFIG"}
	items := check.Call(store.Of(s).Read(t.Context(), []store.Key{key}, true)).Must(t, "Read()")
	item := expr.Item(slices.Clone(attributes))
	for _, a := range items[0] {
		if _, again := item.Lookup(a.Name); !again && a.Name != store.PK && a.Name != store.SK {
			item = append(item, a)
		}
	}
	if _, err := store.Of(s).Write(t.Context(), store.Write{Kind: store.Put, Key: key, Item: item}); err != nil {
		t.Fatalf("Write() = %v", err)
	}
}

// In TestAttributesOfOthersStay, the commands for files of limits change a store in whose items other programs keep attributes. Items that
// remain afterwards still have all of these.
func TestAttributesOfOthersStay(t *testing.T) {
	dsn, file := "sqlite:"+filepath.Join(t.TempDir(), "limits.db"), filepath.Join(t.TempDir(), "limits.yaml")
	do := func(args ...string) {
		t.Helper()
		if r := command(t, "", append(args, "--store", dsn)...); r.code != 0 {
			t.Fatalf("%q: %+v", args, r)
		}
	}
	replace := func(old, with string) {
		t.Helper()
		text, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(text), old) {
			t.Fatalf("%v: no %q in\n%s", err, old, text)
		}
		check.Fatal(t, "os.WriteFile()", os.WriteFile(file, []byte(strings.ReplaceAll(string(text), old, with)), 0o600))
	}
	for _, at := range [][]string{{"--system"}, {"--resource", "gpt"}, {"--entity", "alice"}, {"--entity", "alice", "--resource", "gpt"}} {
		do(append([]string{"limits", "set", "--limit", "rpm=60/min"}, at...)...)
	}
	do("acquire", "alice", "gpt", "--consume", "rpm=1")
	kept := expr.Attribute{Name: "x_later", Value: expr.S("kept")}
	for _, writer := range []struct {
		name    string
		write   func()
		changed int // items
	}{
		{"import", func() { do("limits", "import", "-f", file) }, 0},
		{"the first apply", func() { do("limits", "apply", "-f", file, "--yes") }, 4},
		{"an apply", func() {
			replace("60", "70")
			do("limits", "apply", "-f", file, "--yes")
		}, 5}, // with the record of what is managed
		{"an apply of another manager", func() { do("limits", "apply", "-f", file, "--manager", "another", "--take-over", "--yes") }, 1},
		{"an import again", func() { do("limits", "import", "-f", file, "--force") }, 0},
	} {
		before := everything(t, dsn, kept)
		writer.write()
		changed := 0
		for key, item := range everything(t, dsn) {
			was, had := before[key]
			if v := item.Get(kept.Name); had && !v.Equal(kept.Value) {
				t.Errorf("%s: %s of PK %q, SK %q is %v", writer.name, kept.Name, key.PK, key.SK, v)
			}
			if had && !item.Equal(was) {
				changed++
			}
		}
		if changed < writer.changed || writer.changed == 0 && changed > 0 {
			t.Errorf("%s changes %d items, want %d", writer.name, changed, writer.changed)
		}
	}
}

// everything returns all items of a store, to which it adds attributes.
func everything(t *testing.T, dsn string, attributes ...expr.Attribute) map[store.Key]expr.Item {
	t.Helper()
	s := check.Call(zlimit.OpenStore(t.Context(), dsn)).Must(t, "zlimit.OpenStore()")
	defer func() { check.Error(t, "Close()", s.Close()) }()
	page, err := store.Of(s).Query(t.Context(), store.Query{Index: "GSI4", PK: namespaceID(t, s)})
	if err != nil || page.Next != nil {
		t.Fatal(err, page.Next)
	}
	keys := make([]store.Key, len(page.Items))
	for i, item := range page.Items {
		keys[i] = store.KeyOf(item)
	}
	items := check.Call(store.Of(s).Read(t.Context(), keys, true)).Must(t, "Read()")
	all := map[store.Key]expr.Item{}
	for _, item := range items {
		key := store.KeyOf(item)
		for _, a := range attributes {
			item.Set(a.Name, a.Value)
		}
		if len(attributes) > 0 {
			if _, err := store.Of(s).Write(t.Context(), store.Write{Kind: store.Put, Key: key, Item: item}); err != nil {
				t.Fatalf("Write() = %v", err)
			}
		}
		all[key] = item
	}
	return all
}
