//go:build linux

package cli

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/local"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/tool/engine"
	"github.com/zlimit/zlimit-go/internal/tool/wait"
)

// enginePath returns the path of an engine, and skips the test if there is none.
func enginePath(t *testing.T) string {
	t.Helper()
	path := os.Getenv("ZLIMIT_ENGINE")
	if path == "" {
		path = engine.Path(engine.Cache("../../../.."))
	}
	path = check.Call(filepath.Abs(path)).Must(t, "filepath.Abs()")
	if _, err := os.Stat(path); err != nil {
		if os.Getenv("ZLIMIT_REQUIRE_ENGINE") == "1" && os.Getenv("ZLIMIT_TEST_ENDPOINT") == "" {
			t.Fatalf("os.Stat() = %v", err)
		}
		t.Skip("no DynamoDB engine: run `make engine`")
	}
	return path
}

// A machine is a machine with a directory for a deployment.
type machine struct {
	*testing.T
	dir string
}

// run runs a command of the laptop.
func (l *machine) run(args ...string) run {
	l.Helper()
	var stdout, stderr strings.Builder
	env := map[string]string{"HOME": l.dir}
	sh := &shell.Shell{
		Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr, Env: func(name string) string { return env[name] }, Now: time.Now, Sleep: wait.For,
		Self: []string{"/usr/bin/env", envCommand + "=1", os.Args[0]},
	}
	code := Run(l.Context(), sh, args)
	return run{code, stdout.String(), stderr.String()}
}

// state returns what runs, nil for nothing.
func (l *machine) state() *local.State {
	l.Helper()
	r := l.run("local", "status", "-o", "json")
	if r.code != shell.ExitOK {
		if !strings.Contains(r.stderr, "nothing runs here") {
			l.Fatalf("status: %+v", r)
		}
		return nil
	}
	s := &local.State{}
	check.Fatal(l, "json.Unmarshal()", json.Unmarshal([]byte(r.stdout), s))
	return s
}

func newLaptop(t *testing.T) *machine {
	t.Helper()
	l := &machine{T: t, dir: t.TempDir()}
	t.Cleanup(func() { // whatever the test came to
		if _, err := local.Down(t.Context(), filepath.Join(l.dir, ".local/state/zlimit/local")); err != nil {
			t.Logf("Down() = %v", err)
		}
	})
	return l
}

// TestLocal starts a deployment, uses it, ends it, and starts it again with its data.
func TestLocal(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a deployment")
	}
	path := enginePath(t)
	l := newLaptop(t)
	if r := l.run("local", "env"); r.code != shell.ExitFailure || !strings.Contains(r.stderr, "zlimit local up starts it") {
		t.Errorf("env of nothing: %+v", r)
	}
	if r := l.run("local", "up", "--engine", path, "--sweep", "1s"); r.code != shell.ExitOK || !strings.HasPrefix(r.stdout, "table limits at http://127.0.0.1:") {
		t.Fatalf("up: %+v", r)
	}
	s := l.state()
	if r := l.run("local", "up", "--engine", path); r.code != shell.ExitOK || !strings.Contains(r.stdout, "runs already, as process "+strconv.Itoa(s.PID)) || l.state().PID != s.PID {
		t.Errorf("up again: %+v", r)
	}
	dir := filepath.Join(l.dir, ".local/state/zlimit/local")
	if r := l.run("local", "up", "--engine", path, "--dir", dir); !strings.HasSuffix(r.stdout, "eval \"$(zlimit local env --dir '"+dir+"')\"\n") {
		t.Errorf("up with a directory: %+v", r)
	}
	r := l.run("local", "env")
	if want := "export 'ZLIMIT_STORE=" + s.Store() + "'\nexport 'AWS_ACCESS_KEY_ID="; r.code != shell.ExitOK || !strings.HasPrefix(r.stdout, want) {
		t.Errorf("env: %+v, want %s", r, want)
	}
	for _, v := range s.Environment() {
		name, value, _ := strings.Cut(v, "=")
		t.Setenv(name, value)
	}

	// A bucket that expires immediately is there, is summed up, and goes.
	if r := l.run("acquire", "--store", s.Store(), "alice", "gpt-4o", "--limit", "rpm=100/s", "--consume", "rpm=7"); r.code != shell.ExitOK {
		t.Fatalf("acquire: %+v", r)
	}
	within(t, func() bool {
		return strings.Contains(l.run("usage", "summary", "--store", s.Store(), "--entity", "alice", "--resource", "gpt-4o", "-o", "json").stdout, `"rpm","total":7`)
	})
	within(t, func() bool { return strings.Contains(l.run("local", "logs").stdout, "expired items are deleted") })

	// A process that is stopped serves nothing, and is ended all the same.
	check.Fatal(t, "syscall.Kill()", syscall.Kill(s.PID, syscall.SIGSTOP))
	const stopped = " is stopped, and serves nothing: kill -CONT "
	within(t, func() bool {
		r := l.run("local", "status")
		return r.code == shell.ExitFailure && strings.Contains(r.stdout, s.Store()) && strings.Contains(r.stderr, strconv.Itoa(s.PID)+stopped)
	})
	if r := l.run("local", "up", "--engine", path); r.code != shell.ExitFailure || !strings.Contains(r.stderr, stopped) {
		t.Errorf("up of a process that is stopped: %+v", r)
	}

	if r := l.run("local", "down"); r.code != shell.ExitOK || r.stdout != "process "+strconv.Itoa(s.PID)+" has ended\n" || l.state() != nil {
		t.Errorf("down: %+v", r)
	}
	if r := l.run("local", "down"); r.code != shell.ExitOK || r.stdout != "nothing ran\n" {
		t.Errorf("down again: %+v", r)
	}
	if r := l.run("local", "up", "--engine", path); r.code != shell.ExitOK {
		t.Fatalf("up with data: %+v", r)
	}
	if now := l.state(); now.Endpoint != s.Endpoint {
		t.Errorf("up with data is at %s, and was at %s", now.Endpoint, s.Endpoint)
	}
	if r := l.run("usage", "summary", "--store", l.state().Store(), "--entity", "alice", "--resource", "gpt-4o", "-o", "json"); !strings.Contains(r.stdout, `"total":7`) {
		t.Errorf("the data of before: %+v", r)
	}
	if r := l.run("local", "down", "--delete-data"); r.code != shell.ExitOK || !strings.HasSuffix(r.stdout, "the data is deleted\n") {
		t.Errorf("down with data: %+v", r)
	}
	if files, err := filepath.Glob(filepath.Join(l.dir, ".local/state/zlimit/local/data.db*")); err != nil || len(files) > 0 {
		t.Errorf("data is left: %v, %v", files, err)
	}
}

// within waits until something holds.
func within(t *testing.T, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !holds(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it does not get there within 30s")
		}
	}
}

// TestLocalDown ends no process of others, not even one with the number of a former deployment.
func TestLocalDown(t *testing.T) {
	l := newLaptop(t)
	dir := filepath.Join(l.dir, ".local/state/zlimit/local")
	check.Fatal(t, "os.MkdirAll()", os.MkdirAll(dir, 0o700))
	other := exec.CommandContext(t.Context(), "sleep", "60")
	check.Fatal(t, "Start()", other.Start())
	ended := make(chan error, 1)
	go func() { ended <- other.Wait() }()
	for _, text := range []string{
		`{"pid":` + strconv.Itoa(other.Process.Pid) + `,"process_start":"1","endpoint":"http://127.0.0.1:1","table":"limits"}`,
		`{"pid":999999999,"process_start":"1"}`,
	} {
		check.Fatal(t, "os.WriteFile()", os.WriteFile(filepath.Join(dir, "state.json"), []byte(text), 0o600))
		if s := l.state(); s != nil {
			t.Errorf("status: %+v runs", s)
		}
		if r := l.run("local", "down"); r.code != shell.ExitOK || r.stdout != "nothing ran\n" {
			t.Errorf("down: %+v", r)
		}
	}
	for _, text := range []string{`{}`, `{"pid":1,"process_start":"1"}`, `{"pid":0,"process_start":""}`, `{"pid":-1,"process_start":"1"}`, `[`} {
		check.Fatal(t, "os.WriteFile()", os.WriteFile(filepath.Join(dir, "state.json"), []byte(text), 0o600))
		if r := l.run("local", "down"); r.code != shell.ExitFailure || !strings.Contains(r.stderr, "state.json") {
			t.Errorf("down with state %s: %+v", text, r)
		}
	}
	check.Fatal(t, "os.Remove()", os.Remove(filepath.Join(dir, "state.json")))
	select {
	case err := <-ended:
		t.Errorf("the other process has ended: %v", err)
	default:
		_ = other.Process.Kill() // our own
		<-ended
	}
}

// In TestLocalStands, the process of a deployment runs, and its engine is gone.
func TestLocalStands(t *testing.T) {
	l := newLaptop(t)
	dir := filepath.Join(l.dir, ".local/state/zlimit/local")
	check.Fatal(t, "os.MkdirAll()", os.MkdirAll(dir, 0o700))
	stat := check.Call(os.ReadFile("/proc/self/stat")).Must(t, "os.ReadFile()")
	began := strings.Fields(string(stat[strings.LastIndex(string(stat), ")")+1:]))[19]
	text := `{"pid":` + strconv.Itoa(os.Getpid()) + `,"process_start":"` + began + `","endpoint":"http://127.0.0.1:1","table":"limits"}`
	path := filepath.Join(dir, "state.json")
	check.Fatal(t, "os.WriteFile()", os.WriteFile(path, []byte(text), 0o600))
	r := l.run("local", "status")
	if err := os.Remove(path); err != nil { // it names this process
		t.Fatalf("os.Remove() = %v", err)
	}
	if r.code != shell.ExitFailure || !strings.Contains(r.stderr, "the engine does not answer: ") {
		t.Errorf("status without an engine: %+v", r)
	}
}

// TestLocalFails says what is wrong, and leaves nothing behind.
func TestLocalFails(t *testing.T) {
	l := newLaptop(t)
	program := filepath.Join(l.dir, "engine")
	check.Fatal(t, "os.WriteFile()", os.WriteFile(program, []byte("#!/bin/sh\necho no such option >&2\nexit 3\n"), 0o755))
	if r := l.run("local", "up", "--engine", program); r.code != shell.ExitFailure || !strings.Contains(r.stderr, "it ended before it was ready: no such option") || !strings.Contains(r.stderr, "no such option") || l.state() != nil {
		t.Errorf("up with an engine that fails: %+v", r)
	}
	for _, bad := range [][]string{{"--engine", filepath.Join(l.dir, "nothing")}, {"--engine", l.dir}, {"--engine", program, "--sweep", "1ms"}} {
		if r := l.run(append([]string{"local", "up"}, bad...)...); r.code != shell.ExitUsage {
			t.Errorf("up %v: %+v", bad, r)
		}
	}
	t.Setenv("PATH", "")
	if r := l.run("local", "up"); r.code != shell.ExitFailure || !strings.Contains(r.stderr, "npm") {
		t.Errorf("up without an engine and npm: %+v", r)
	}
}
