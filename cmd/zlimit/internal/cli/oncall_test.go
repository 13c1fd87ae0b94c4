package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/internal/proof/check"
)

// TestWrongLimitOnCall rolls wrong limits of several entities out by a file. The command that the page names for it shows each of these
// changes, with the values before and after.
func TestWrongLimitOnCall(t *testing.T) {
	text := check.Call(os.ReadFile("../../../../docs/operations.md")).Must(t, "os.ReadFile()")
	row := regexp.MustCompile(`(?m)^\| a wrong limit was rolled out.*$`).FindString(string(text))
	found := regexp.MustCompile("`zlimit (audit list[^`]*)` shows the author of each change").FindStringSubmatch(row)
	if found == nil {
		t.Fatalf("the page names no command for the changes of a wrong limit: %s", row)
	}
	dir := t.TempDir()
	store := []string{"--store", "sqlite:" + filepath.Join(dir, "limits.db")}
	run := func(args ...string) string {
		t.Helper()
		got := command(t, "", append(args, store...)...)
		if got.code != shell.ExitOK {
			t.Fatalf("%v: code %d, %s", args, got.code, got.stderr)
		}
		return got.stdout
	}
	const entities = 60
	apply := func(perMinute int) {
		t.Helper()
		file := "namespace: default\nentities:\n"
		for i := range entities {
			file += fmt.Sprintf("  t-%03d:\n    resources:\n      gpt-4o:\n        limits:\n          rpm: %d/min\n", i, perMinute)
		}
		path := filepath.Join(dir, "limits.yaml")
		check.Fatal(t, "os.WriteFile()", os.WriteFile(path, []byte(file), 0o600))
		run("limits", "apply", "-f", path, "--yes")
	}
	apply(100)
	apply(1)
	shown := run(strings.Fields(found[1])...)
	for i := range entities {
		if want := fmt.Sprintf("(?m)t-%03d, .*100/min → 1/min", i); !regexp.MustCompile(want).MatchString(shown) {
			t.Fatalf("zlimit %s does not show %q:\n%s", found[1], want, shown)
		}
	}
}

// TestResetAsksWithCount asks before a reset of all buckets of a resource, with their number.
func TestResetAsksWithCount(t *testing.T) {
	store := "sqlite:" + filepath.Join(t.TempDir(), "limits.db")
	sh, _ := onTerminal(nil)
	for _, entity := range []string{"acme", "globex"} {
		for range 2 { // a bucket is listed from its second write on
			output(t, sh, "acquire", entity, "gpt", "--consume", "rpm=1", "--limit", "rpm=60/min", "--store", store)
		}
	}
	sh.Asks, sh.Stdin = true, strings.NewReader("n\n")
	got := execute(t.Context(), sh, "bucket", "reset", "--resource", "gpt", "--store", store)
	if !strings.Contains(got.stderr, "Reset 2 buckets? [y/N] ") || got.code == shell.ExitOK {
		t.Errorf("bucket reset asks %q, code %d", got.stderr, got.code)
	}
}
