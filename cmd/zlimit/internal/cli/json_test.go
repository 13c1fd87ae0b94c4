package cli

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
)

// TestJSONOfPublicTypes: the command prints a type of package zlimit as its JSON.
func TestJSONOfPublicTypes(t *testing.T) {
	ctx := t.Context()
	dsn := "sqlite:" + t.TempDir() + "/limits.db"
	l := check.Call(zlimit.Open(ctx, dsn, zlimit.WithSetup())).Must(t, "zlimit.Open()")
	t.Cleanup(func() { _ = l.Close() })
	var made []zlimit.Entity
	for _, e := range []zlimit.Entity{{ID: "acme", Name: "Acme", Metadata: map[string]string{"plan": "gold"}}, {ID: "key-1", ParentID: "acme", Cascade: true}} {
		created, err := l.Entities.Create(ctx, e)
		if err == nil {
			created.Name += "!"
			created, err = l.Entities.Update(ctx, created)
		}
		check.Fatal(t, "Entities.Create()", err)
		made = append(made, created)
	}
	namespace := check.Call(l.Namespaces.Get(ctx, zlimit.DefaultNamespace)).Must(t, "Namespaces.Get()")
	for _, c := range []struct {
		command string
		want    any
	}{
		{"entity get acme", made[0]},
		{"entity get key-1", made[1]},
		{"entity list", map[string]any{"entities": made}},
		{"entity children acme", map[string]any{"entities": made[1:]}},
		{"namespace get default", namespace},
		{"namespace list", map[string]any{"namespaces": []zlimit.Namespace{namespace}}},
	} {
		want := check.Call(json.Marshal(c.want)).Must(t, "json.Marshal()")
		var stdout, stderr bytes.Buffer
		args := append(strings.Fields(c.command), "--store", dsn, "-o", "json")
		code := Main(ctx, args, strings.NewReader(""), &stdout, &stderr, func(string) string { return "" })
		if got := strings.TrimSpace(stdout.String()); code != shell.ExitOK || got != string(want) {
			t.Errorf("zlimit %s -o json = %d, %s%s, want %s", c.command, code, got, stderr.String(), want)
		}
	}
}
