package zlimit_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// earlier is the last commit before shards, parents and settlements moved to package protocol.
const earlier = "1771efd23adef048ddb7982c930a70239c912c8c"

// buildEarlier returns the test binary of this package at the commit. It skips the test where git does not have the
// commit, as in a shallow clone.
func buildEarlier(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	run := func(dir, name string, args ...string) error {
		command := exec.Command(name, args...)
		command.Dir = dir
		command.Env = append(os.Environ(), "GIT_INDEX_FILE="+filepath.Join(t.TempDir(), "index"), "GOWORK=off")
		out, err := command.CombinedOutput()
		if err != nil {
			t.Logf("%v: %v\n%s", command, err, out)
		}
		return err
	}
	if err := run("..", "git", "cat-file", "-e", earlier+"^{commit}"); err != nil {
		t.Skip("needs git, and a clone with its history")
	}
	source, binary := filepath.Join(dir, "source"), filepath.Join(dir, "earlier.test")
	if err := run("..", "git", "--work-tree="+mustMake(t, source), "checkout", earlier, "--", "."); err != nil {
		t.Fatal("the earlier version cannot be checked out")
	}
	if err := run(source, "go", "test", "-c", "-o", binary, "./zlimit"); err != nil {
		t.Fatal("the earlier version cannot be built")
	}
	return binary
}

func mustMake(t *testing.T, dir string) string {
	t.Helper()
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestRollingDeploy replaces processes of an earlier version one after another while all of them are under load. Both
// versions share a table or a file, as in TestHistories. What they did is checked in the same way (I1, I2, I7, I9).
func TestRollingDeploy(t *testing.T) {
	if testing.Short() {
		t.Skip("builds another version")
	}
	if os.Getenv("ZLIMIT_EXHAUSTIVE") == "" {
		t.Skip("compiles another version and what it needs: make check sets ZLIMIT_EXHAUSTIVE=1")
	}
	binary := buildEarlier(t)
	const rounds = 8
	lanes := func(skews ...time.Duration) (lanes []lane) {
		for i, skew := range skews {
			before := rounds * (i + 1) / (len(skews) + 1)
			lanes = append(lanes, lane{{binary: binary, Skew: skew, Rounds: before}, {Skew: skew, Rounds: rounds - before}})
		}
		return lanes
	}
	for name, lanes := range map[string][]lane{
		"clocks agree":    lanes(0, 0, 0, 0),
		"clocks disagree": lanes(0, 40*time.Millisecond, -40*time.Millisecond, 15*time.Millisecond),
	} {
		t.Run(name+"/file", func(t *testing.T) {
			testHistory(t, "sqlite:"+filepath.Join(t.TempDir(), "zlimit.db"), lanes)
		})
		t.Run(name+"/dynamodb", func(t *testing.T) { testHistory(t, newDSN(t), lanes) })
	}
}
