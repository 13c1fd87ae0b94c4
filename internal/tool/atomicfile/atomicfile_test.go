package atomicfile

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/zlimit/zlimit-go/internal/proof/check"
)

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries := check.Call(os.ReadDir(dir)).Must(t, "os.ReadDir()")
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// TestWriteRemovesWhatAKilledProcessLeft: an abandoned temporary file goes. One in use stays, and
// so does a file with a similar name.
func TestWriteRemovesWhatAKilledProcessLeft(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{".state.yaml.123.tmp", ".state.yaml.456.tmp", ".other.yaml.123.tmp", "state.yaml.tmp"} {
		check.Fatal(t, "os.WriteFile()", os.WriteFile(filepath.Join(dir, name), []byte("half a st"), 0o600))
	}
	inUse := check.Call(create(dir, ".state.yaml.*.tmp")).Must(t, "create()")
	defer func() { _ = inUse.Close() }()
	check.Fatal(t, "Write", Write(filepath.Join(dir, "state.yaml"), []byte("a state")))
	want := []string{".other.yaml.123.tmp", filepath.Base(inUse.Name()), "state.yaml", "state.yaml.tmp"}
	slices.Sort(want)
	if got := names(t, dir); !slices.Equal(got, want) {
		t.Errorf("after Write the directory has %q, want %q", got, want)
	}
}

// TestWritersDoNotDisturbOneAnother: each writes its file as a whole, and none
// takes that of another for a leftover.
func TestWritersDoNotDisturbOneAnother(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "state.yaml")
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 5 {
				check.Error(t, "Write", Write(path, []byte(strconv.Itoa(i))))
			}
		})
	}
	wg.Wait()
	if got := names(t, dir); !slices.Equal(got, []string{"state.yaml"}) {
		t.Errorf("the directory has %q, want the file alone", got)
	}
	if got, err := os.ReadFile(path); err != nil || len(got) != 1 {
		t.Errorf("the file has %q, %v, want what one of them wrote", got, err)
	}
}

func TestWriteKeepsPermissionsAndLinks(t *testing.T) {
	dir := t.TempDir()
	path, link := filepath.Join(dir, "deep", "state"), filepath.Join(dir, "link")
	check.Fatal(t, "Write", Write(path, []byte("1")))
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("a new file is %v, %v, want the owner's alone", info.Mode(), err)
	}
	if err := os.Chmod(path, 0o640); err != nil { //nolint:gosec // What the test is about.
		t.Fatalf("os.Chmod() = %v", err)
	}
	if err := os.Symlink(path, link); err != nil {
		t.Skipf("no symbolic links: %v", err)
	}
	check.Fatal(t, "Write through a link", Write(link, []byte("2")))
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("a file that was there is %v, %v, want its permissions kept", info.Mode(), err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "2" {
		t.Errorf("the file behind the link has %q, %v, want what was written", got, err)
	}
}
