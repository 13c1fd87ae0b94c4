package cli

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/rotation"
)

// guarded are the commands that change an entity, each with the arguments that name ID. They refuse an entity that has a new ID, and one that is
// becoming the new ID of another one.
var guarded = map[string][]string{
	"bucket reset":        {"ID pay", "--entity ID --yes"},
	"bucket top-up":       {"ID pay --add usd=1"},
	"entity create":       {"new --parent ID"},
	"entity move":         {"ID --no-parent", "ID --parent key", "key --parent ID"},
	"limits apply":        {"-f FILE --yes"},
	"limits bypass":       {"--entity ID", "--entity ID --resource pay"},
	"limits delete":       {"--entity ID --resource pay", "--entity ID --if-present"},
	"limits enable":       {"--entity ID", "--entity ID --resource pay"},
	"limits exclude":      {"--entity ID --resource pay --limit usd"},
	"limits inherit":      {"--entity ID --resource pay --limit usd"},
	"limits leave-switch": {"--entity ID"},
	"limits patch":        {"--entity ID --limit rpm=1/min"},
	"limits set":          {"--entity ID --resource pay --limit usd=9/month@UTC", "--entity ID --on-unavailable allow"},
	"team set":            {"ID --budget 5/month", "crew --budget 5/month --key ID", "crew --key ID --key-budget 5/month"},
}

// Reasons why the other commands do no harm to an entity that has a new ID.
const (
	reads    = "it changes nothing"
	elsewhat = "it changes no single entity, but a store, a deployment or a file"
	suspends = "the old ID is suspended, and stays so"
)

// harmless are the commands that take an entity with a new ID, or no entity, with the reason.
var harmless = map[string]string{
	"acquire": suspends, "entity delete": "its switch stays; it refuses an entity whose rotation is under way",
	"bench": suspends, "limits disable": suspends,
	"entity rotate": "it has a check of its own, and suspends the old ID again",
	"entity update": "a name and metadata are notes; it changes nothing that a rotation keeps there",
	"limits scale":  "it multiplies what no request of the old ID gets to, and restores it",

	"audit": reads, "audit list": reads, "available": reads, "bucket get": reads, "bucket list": reads, "capacity": reads, "entity children": reads,
	"entity get": reads, "entity list": reads, "explain": reads, "limits diff": reads, "limits get": reads, "limits import": reads, "limits list": reads,
	"limits plan": reads, "limits resolve": reads, "limits schema": reads, "limits switches": reads, "namespace get": reads, "namespace list": reads,
	"namespace orphans": reads, "prices check": reads, "resource get": reads, "resource list": reads, "simulate": reads, "team get": reads, "top": reads,
	"usage": reads, "usage bill": reads, "usage forecast": reads, "usage list": reads, "usage month": reads, "usage plot": reads, "usage summary": reads, "version": reads,

	"aggregate": elsewhat, "dashboard": "its page has tests of its own", "demo": elsewhat, "man": elsewhat, "setup": elsewhat, "resource put": elsewhat,
}

// groups are commands whose parts all change something else than entities.
var groups = []string{"completion", "copy", "local", "migrate", "namespace", "quota", "stack"}

// TestCommandsOfRotatedEntity names an entity that has a new ID, and one that is becoming a new ID, in every command that changes an entity. A new
// command belongs into one of the lists.
func TestCommandsOfRotatedEntity(t *testing.T) {
	dsn := "sqlite:" + filepath.Join(t.TempDir(), "limits.db")
	l := check.Call(zlimit.Open(t.Context(), dsn, zlimit.WithSetup())).Must(t, "zlimit.Open()")
	defer l.Close()
	for id, metadata := range map[string]map[string]string{
		"old": {rotation.ToKey: "next"}, "next": {rotation.FromKey: "old"}, "key": nil,
		"former": {rotation.ToKey: "coming"}, "coming": {rotation.FromKey: "former", rotation.StageKey: "closing"},
	} {
		check.Call(l.Entities.Create(t.Context(), zlimit.Entity{ID: id, Metadata: metadata})).Must(t, "Entities.Create()")
		limits := []zlimit.Limit{zlimit.PerMonth("usd", 5), zlimit.PerMinute("rpm", 5)}
		check.Fatal(t, "Limits.Set()", l.Limits.Set(t.Context(), zlimit.Level{Entity: id, Resource: "pay"}, zlimit.Config{Limits: limits}))
	}
	state := func() string {
		t.Helper()
		var all strings.Builder
		for _, args := range [][]string{{"entity", "list"}, {"limits", "list", "--details"}, {"audit", "list", "--entity", "old"}, {"audit", "list", "--entity", "coming"}} {
			r := command(t, "", append(args, "-o", "csv", "--store", dsn)...)
			if r.code != 0 {
				t.Fatalf("%v = %+v", args, r)
			}
			all.WriteString(r.stdout)
		}
		return all.String()
	}
	before := state()
	for _, c := range listedCommands() {
		name, _ := strings.CutPrefix(c.path, "zlimit ")
		first, _, _ := strings.Cut(name, " ")
		lines, refuses := guarded[name]
		_, harms := harmless[name]
		if known := refuses || harms || c.group || slices.Contains(groups, first) || name == "zlimit"; !known || refuses && harms {
			t.Errorf("%s must be in one list: guarded, if it changes an entity, or harmless, with the reason", name)
		}
		for _, line := range lines {
			for id, want := range map[string]string{"old": "has the new ID next", "coming": "is becoming the new ID of former"} {
				file := writeFile(t, "entities:\n  "+id+":\n    limits:\n      rpm: 9/min\n")
				args := strings.Fields(name + " " + strings.NewReplacer("ID", id, "FILE", file).Replace(line))
				if r := command(t, "", append(args, "--store", dsn)...); r.code == 0 || !strings.Contains(r.stderr, want) {
					t.Errorf("%s = %+v, want %q", strings.Join(args, " "), r, want)
				}
			}
		}
	}
	if after := state(); after != before {
		t.Errorf("refused commands change\n%s\nto\n%s", before, after)
	}
	for _, name := range slices.Concat(slices.Collect(maps.Keys(guarded)), slices.Collect(maps.Keys(harmless))) {
		if c, rest := find(listedCommands(), strings.Fields("zlimit "+name)); len(rest) > 0 {
			t.Errorf("there is no command %q beyond %s", name, c.path)
		}
	}
	for _, id := range []string{"former", "coming"} {
		if r := command(t, "", "entity", "delete", id, "--yes", "--store", dsn); r.code != 2 || !strings.Contains(r.stderr, "run zlimit entity rotate former coming first") {
			t.Errorf("entity delete %s = %+v, want an error", id, r)
		}
	}
	for _, line := range []string{"limits enable --entity old --although-rotated", "limits disable --entity old", "entity delete old --yes"} {
		if r := command(t, "", append(strings.Fields(line), "--store", dsn)...); r.code != 0 {
			t.Errorf("%s = %+v", line, r)
		}
	}
	if r := command(t, "", "acquire", "old", "pay", "--consume", "rpm=1", "--limit", "rpm=5/min", "--store", dsn); !strings.Contains(r.stderr, "disabled") {
		t.Errorf("acquire of a deleted ID = %+v, want it disabled", r)
	}
}

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "limits.yaml")
	check.Fatal(t, "WriteFile()", os.WriteFile(path, []byte(text), 0o600))
	return path
}
