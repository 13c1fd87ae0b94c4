package floors

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zlimit/zlimit-go/internal/proof/check"
)

// TestNestedModulesShareVersions checks that each nested module requires what the root requires, in the same version. With
// another version of one package of AWS, a test of the nested module would compile the client of DynamoDB and the SDK a
// second time.
func TestNestedModulesShareVersions(t *testing.T) {
	root := filepath.FromSlash("../../..")
	wanted := requirements(t, filepath.Join(root, "go.mod"))
	modules, shared := 0, 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (path == filepath.Join(root, "tools") || d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && path != root):
			return filepath.SkipDir
		case d.Name() != "go.mod" || filepath.Dir(path) == root:
			return nil
		}
		modules++
		for module, version := range requirements(t, path) {
			want, ok := wanted[module]
			if !ok {
				continue
			}
			shared++
			if version != want {
				t.Errorf("%s requires %s %s, and the root %s: run go get %s@%s there, or raise the version in all modules", path, module, version, want, module, want)
			}
		}
		return nil
	})
	check.Fatal(t, "filepath.WalkDir()", err)
	if modules < 5 || shared < 50 {
		t.Errorf("%d nested modules share %d requirements with the root", modules, shared)
	}
}

// requirements returns the modules that a go.mod file requires, with their versions.
func requirements(t *testing.T, path string) map[string]string {
	t.Helper()
	text := check.Call(os.ReadFile(path)).Must(t, "os.ReadFile()")
	found := map[string]string{}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(strings.TrimPrefix(line, "require "))
		if len(fields) >= 2 && strings.HasPrefix(fields[1], "v") {
			found[fields[0]] = fields[1]
		}
	}
	return found
}
