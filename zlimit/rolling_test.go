package zlimit_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
	"github.com/zlimit/zlimit-go/internal/proof/soak"
	"github.com/zlimit/zlimit-go/zlimit"
)

// earlier is the last commit before shards, parents and settlements moved to package protocol.
const earlier = "1771efd23adef048ddb7982c930a70239c912c8c"

// needed are the files of tests at that commit that its processes are compiled from, without _test.go.
var needed = []string{"chain", "history", "main", "process", "program", "shards", "traffic", "witness"}

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
	tests := check.Call(filepath.Glob(filepath.Join(source, "zlimit", "*_test.go"))).Must(t, "filepath.Glob()")
	for _, file := range tests {
		if slices.Contains(needed, strings.TrimSuffix(filepath.Base(file), "_test.go")) {
			continue
		}
		check.Fatal(t, "os.Remove()", os.Remove(file))
	}
	if err := run(source, "go", "test", "-c", "-ldflags=-s -w", "-o", binary, "./zlimit"); err != nil {
		t.Fatal("the earlier version cannot be built")
	}
	return binary
}

func mustMake(t *testing.T, dir string) string {
	t.Helper()
	check.Fatal(t, "os.Mkdir()", os.Mkdir(dir, 0o700))
	return dir
}

// TestRollingDeploy replaces processes of an earlier version one after another while all of them are under load. Both
// versions share a table or a file, as in TestHistories. What they did is checked in the same way (I1, I2, I7, I9).
func TestRollingDeploy(t *testing.T) {
	if testing.Short() {
		t.Skip("builds another version")
	}
	if !soak.Runs() && !enginetest.IsMean() {
		t.Skip("compiles another version and what it needs: make long and make mean run it")
	}
	t.Parallel() // its processes wait more than they compute
	binary := buildEarlier(t)
	t.Run("waiters and slots", func(t *testing.T) { testWithoutWaits(t, binary) })
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

// In testWithoutWaits, a process of a version that knows neither waits nor slots asks beside a queue. It takes nothing of what others wait
// for. It refuses the table by name once slots are stored.
func testWithoutWaits(t *testing.T, binary string) {
	ctx, dsn := t.Context(), "sqlite:"+filepath.Join(t.TempDir(), "zlimit.db")
	l := openHistory(t, dsn)
	r := zlimit.Request{Entity: "bursty", Resource: "gpt-4", Consume: zlimit.Amounts{"rpm": 60}}
	for range 400 { // a minute
		if _, err := l.Reserve(ctx, r, zlimit.MaxWait(time.Hour)); err != nil {
			t.Fatalf("Reserve() = %v", err)
		}
	}
	tr := &traffic{binary: binary, DSN: dsn, Rounds: 2, Goroutines: 12, Asks: 6}
	acts := check.Call(observe(tr)).Must(t, "observe()")
	deeds := map[operation]int{}
	for _, a := range acts {
		if a.Entity == r.Entity {
			deeds[a.Deed]++
		}
	}
	if deeds[took] > 0 || deeds[refused] == 0 {
		t.Errorf("beside a queue it took %d times, and was refused %d times", deeds[took], deeds[refused])
	}
	slots := zlimit.Config{Limits: []zlimit.Limit{zlimit.Slots("slots", 2, zlimit.Term(10*time.Second))}}
	check.Fatal(t, "Limits.Set()", l.Limits.Set(ctx, zlimit.Level{Resource: "other"}, slots))
	tr.complaint = new(bytes.Buffer)
	if _, err := observe(tr); err == nil || !strings.Contains(tr.complaint.String(), "from version 0.17.1") {
		t.Errorf("on a table with slots: %v: %s", err, tr.complaint)
	}
}
