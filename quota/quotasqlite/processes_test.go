package quotasqlite_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/quota"
	_ "github.com/zlimit/zlimit-go/quota/quotasqlite"
)

const (
	processes = 8
	rateLimit = 400 // requests per minute that all processes together may make
	dayLimit  = 4_000_000
)

// TestMain lets the test binary be one of the processes.
func TestMain(m *testing.M) {
	if path := os.Getenv("QUOTASQLITE_WORKER"); path != "" {
		if err := worker(path, os.Getenv("QUOTASQLITE_MODE"), os.Getenv("QUOTASQLITE_FOR")); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// worker reserves as fast as it can and reports "admitted refused slowest".
func worker(path, mode, duration string) error {
	d, err := time.ParseDuration(duration)
	if err != nil {
		return err
	}
	ctx := context.Background()
	l, err := quota.NewWithSQLite(ctx, path)
	if err != nil {
		return err
	}
	var admitted, refused int
	var slowest time.Duration
	end := time.Now().Add(d)
	for i := 0; time.Now().Before(end); i++ {
		start := time.Now()
		r, err := l.Reserve(ctx, quota.Request{Model: mode, Input: 10, Output: 10})
		slowest = max(slowest, time.Since(start))
		switch {
		case errors.As(err, new(*quota.ExceededError)):
			refused++
			continue
		case err != nil:
			return err
		}
		// A part settles for less, and a part gives everything back.
		switch i % 4 {
		case 0:
			err = r.Settle(ctx, 5, 5)
		case 1:
			err = r.Cancel(ctx)
			admitted--
		}
		if err != nil {
			return err
		}
		admitted++
	}
	fmt.Println("result:", admitted, refused, slowest.Nanoseconds())
	return l.Close()
}

type workerResult struct {
	admitted, refused int
	slowest           time.Duration
}

func startWorkers(t *testing.T, path, mode string, d time.Duration) []workerResult {
	t.Helper()
	type running struct {
		cmd *exec.Cmd
		out *strings.Builder
	}
	var all []running
	for range processes {
		r := running{exec.CommandContext(t.Context(), os.Args[0]), &strings.Builder{}} //nolint:gosec // The test's own binary.
		r.cmd.Env = append(os.Environ(), "QUOTASQLITE_WORKER="+path, "QUOTASQLITE_MODE="+mode, "QUOTASQLITE_FOR="+d.String())
		r.cmd.Stdout, r.cmd.Stderr = r.out, os.Stderr
		check.Fatal(t, "Start()", r.cmd.Start())
		all = append(all, r)
	}
	var results []workerResult
	for i, r := range all {
		if err := r.cmd.Wait(); err != nil {
			t.Errorf("process %d: %v: %s", i, err, r.out)
			continue
		}
		var res workerResult
		sc := bufio.NewScanner(strings.NewReader(r.out.String()))
		for sc.Scan() {
			var ns int64
			if n, _ := fmt.Sscanf(sc.Text(), "result: %d %d %d", &res.admitted, &res.refused, &ns); n == 3 {
				res.slowest = time.Duration(ns)
				results = append(results, res)
			}
		}
	}
	return results
}

// soakTime is how long the processes run: long enough to collide thousands of
// times, or as QUOTASQLITE_SOAK says.
func soakTime(t *testing.T) time.Duration {
	t.Helper()
	d := 3 * time.Second
	if s := os.Getenv("QUOTASQLITE_SOAK"); s != "" {
		var err error
		if d, err = time.ParseDuration(s); err != nil {
			t.Fatalf("QUOTASQLITE_SOAK: %v", err)
		}
	}
	return d
}

// TestProcessesShareOneQuota runs processes on one file, for less than a minute. Together they
// admit the quota, and the file holds the admitted requests.
func TestProcessesShareOneQuota(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes that run for seconds")
	}
	path := filepath.Join(t.TempDir(), "shared.db")
	l, err := quota.NewWithSQLiteConfig(t.Context(), path, quota.Config{Quotas: map[string]quota.ModelQuota{
		"scarce": {MaxRPM: rateLimit, MaxTPM: 1 << 40, MaxRPD: dayLimit},
		"ample":  {MaxRPM: 1 << 40, MaxTPM: 1 << 40, MaxRPD: dayLimit},
	}})
	if err != nil {
		t.Fatalf("NewWithSQLiteConfig = %v", err)
	}
	defer func() { _ = l.Close() }()
	d := soakTime(t)
	for _, mode := range []string{"scarce", "ample"} {
		results := startWorkers(t, path, mode, d)
		if len(results) != processes {
			t.Fatalf("%d of %d processes reported", len(results), processes)
		}
		var admitted, refused int
		var slowest time.Duration
		for _, r := range results {
			admitted, refused, slowest = admitted+r.admitted, refused+r.refused, max(slowest, r.slowest)
		}
		// A process that cancels at the very end may leave its place empty. On a
		// busy machine the limit may not be reached at all.
		if mode == "scarce" && d < time.Minute && (admitted > rateLimit || refused > 0 && admitted < rateLimit-processes) {
			t.Errorf("admitted = %d in all and %d refused, want %d, never more", admitted, refused, rateLimit)
		}
		st := check.Call(l.Stats(t.Context(), mode)).Must(t, "Stats")
		if got := strconv.FormatInt(st.RPD, 10); got != strconv.Itoa(admitted) {
			t.Errorf("%s: requests of the day = %s, want the %d that were admitted and kept", mode, got, admitted)
		}
		if err := l.Load(t.Context()); err != nil {
			t.Errorf("%s: Load = %v, want a whole file", mode, err)
		}
		t.Logf("%s: %d processes, %v: %d kept, %d refused, %.0f decisions/s, slowest %v",
			mode, processes, d, admitted, refused, float64(admitted+refused)/d.Seconds(), slowest)
	}
}
