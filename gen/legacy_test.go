package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zlimit/zlimit-go/gen/internal/schema"
	"github.com/zlimit/zlimit-go/internal/proof/check"
)

// TestLegacyErrors: each grammar refuses the other's words.
func TestLegacyErrors(t *testing.T) {
	const record = `
ttl: ttl
fields: { entity: { type: string, doc: an entity } }
records:
  old_thing:
    doc: A thing.
    pk: "THING#{entity}"
    sk: "#META"
`
	for _, test := range []struct{ name, text, want string }{
		{"a version", "version: 1.0.0" + record, "version"},
		{"an operation", record + "operations: {}\n", "operations"},
		{"an index", record + "indexes: {}\n", "indexes"},
		{"a nested attribute of a key", record + "    nested: PK\n", "PK"},
	} {
		if _, err := schema.LoadLegacy("legacy.yaml", []byte(test.text)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: LoadLegacy() = %v, want an error about %s", test.name, err, test.want)
		}
	}
	if _, err := schema.LoadLegacy("legacy.yaml", []byte(record+"    nested: data\n")); err != nil {
		t.Errorf("LoadLegacy() = %v", err)
	}
	nested := "version: 1.0.0\nclient_min_version: 1.0.0" + record + "    nested: data\n"
	if _, err := schema.Load("schema.yaml", []byte(nested)); err == nil || !strings.Contains(err.Error(), "nested") {
		t.Errorf("Load() of a nested record = %v, want an error about it", err)
	}
}

// TestRunReportsLegacy asks that a mistake in the older layouts is reported with its place.
func TestRunReportsLegacy(t *testing.T) {
	dir := t.TempDir()
	old := filepath.Join(dir, "legacy.yaml")
	text := bytes.Replace(readFile(t, legacySpec), []byte("type: N"), []byte("type: Q"), 1)
	check.Fatal(t, "os.WriteFile()", os.WriteFile(old, text, 0o644))
	var stderr bytes.Buffer
	if code := run([]string{"-spec", specFile, "-legacy", old, "-calls", callsSpec, "-members", bucketDir, "-core", coreDir, "-root", filepath.Join(dir, "out")}, &stderr); code != 1 || !strings.HasPrefix(stderr.String(), old+":") {
		t.Errorf("run = %d, %q, want 1 and the place of the mistake", code, &stderr)
	}
}
