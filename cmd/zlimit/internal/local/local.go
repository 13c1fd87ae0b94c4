//go:build linux

// Package local runs a deployment on this machine: a DynamoDB engine, the table, and the aggregator behind its stream.
// It also sweeps expired items, as the engine does not. All of it is one process with the engine as its child, which
// `zlimit local up` starts in the background and `zlimit local down` ends.
package local

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/zlimit/zlimit-go/internal/tool/atomicfile"
	"github.com/zlimit/zlimit-go/internal/tool/wait"
)

// Supported is nil where a deployment can run on this machine.
var Supported error

// A State describes a running deployment, in the file state.json of its directory.
type State struct {
	PID      int       `json:"pid"`
	Started  string    `json:"process_start"` // as the system reports it, to detect another process with the same number
	Endpoint string    `json:"endpoint"`
	Table    string    `json:"table"`
	Engine   string    `json:"engine"` // path of its program
	Since    time.Time `json:"since"`
}

// Store is the DSN of the table.
func (s *State) Store() string { return "dynamodb:" + s.Table + "?region=local&endpoint=" + s.Endpoint }

// Environment are the variables with which programs find the table. The engine takes any credentials.
func (s *State) Environment() []string {
	return append([]string{"ZLIMIT_STORE=" + s.Store()}, credentials...)
}

// credentials are well-formed and worth nothing.
var credentials = []string{"AWS_ACCESS_KEY_ID=local", "AWS_SECRET_ACCESS_KEY=local"}

func statePath(dir string) string { return filepath.Join(dir, "state.json") }

// LogPath returns the log of the deployment in a directory.
func LogPath(dir string) string { return filepath.Join(dir, "log") }

// Find returns the deployment that runs in a directory, nil when none does.
func Find(dir string) (*State, error) {
	s, err := readState(dir)
	if err != nil || s == nil || processStart(s.PID) != s.Started {
		return nil, err
	}
	return s, nil
}

// readState returns the last written state, of a process that may be gone; nil for none.
func readState(dir string) (*State, error) {
	text, err := os.ReadFile(statePath(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	s := &State{}
	if err == nil {
		err = json.Unmarshal(text, s)
	}
	if err == nil && (s.PID <= 1 || s.Started == "") {
		err = errors.New("it names no process")
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", statePath(dir), err)
	}
	return s, nil
}

func (s *State) write(dir string) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return atomicfile.Write(statePath(dir), text)
}

// processStart returns when a process began, in ticks since the system did; "" when there is none. Two processes with one
// number began at different times.
func processStart(pid int) string {
	_, start := processStat(pid)
	return start
}

// processStat returns the state of a process, and when it began; "" for both when there is none.
func processStat(pid int) (status, began string) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return "", ""
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // behind the name, which may hold anything
	const state, start = 0, 19
	if len(fields) <= start || fields[state] == "Z" {
		return "", ""
	}
	return fields[state], fields[start]
}

// Stands returns the reason why an existing deployment serves nothing, "" for one that serves. Its process is stopped,
// or its engine does not answer within two seconds.
func (s *State) Stands(ctx context.Context) string {
	if status, _ := processStat(s.PID); status == "T" || status == "t" { // by a signal, or by a debugger
		return fmt.Sprintf("process %d is stopped, and serves nothing: kill -CONT %d lets it go on, zlimit local down ends it", s.PID, s.PID)
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Endpoint, http.NoBody)
	if err == nil {
		var reply *http.Response
		if reply, err = http.DefaultClient.Do(request); err == nil { // with any answer
			err = reply.Body.Close()
		}
	}
	if err != nil {
		return fmt.Sprintf("the engine does not answer: %v; zlimit local logs may say why, zlimit local down ends it", err)
	}
	return ""
}

// Up starts a command that serves in a directory, as [Serve] does, in the background, and returns once it is ready. One
// that runs already is returned as it is, with started false.
func Up(ctx context.Context, dir string, command []string) (s *State, started bool, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, false, err
	}
	if s, err := Find(dir); err != nil || s != nil {
		return s, false, err
	}
	log, err := os.OpenFile(LogPath(dir), os.O_CREATE|os.O_TRUNC|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, false, err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	cmd := exec.Command(command[0], command[1:]...) //nolint:noctx // it outlives the caller
	cmd.Env = append(os.Environ(), credentials...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // an interrupt at the terminal is not for it
	if err := cmd.Start(); err != nil {
		return nil, false, err
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // its log says how it ended
		close(ended)
	}()
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for {
		if s, err := Find(dir); err == nil && s != nil {
			return s, s.PID == cmd.Process.Pid, nil
		}
		select {
		case <-ended:
			if s, err := Find(dir); err == nil && s != nil { // of another one that was faster
				return s, false, nil
			}
			return nil, false, fmt.Errorf("it ended before it was ready: %s", Tail(dir))
		case <-ctx.Done():
			_ = cmd.Process.Signal(syscall.SIGTERM) // our own child, not waited for
			<-ended
			return nil, false, fmt.Errorf("it is not ready: %w\n%s", ctx.Err(), Tail(dir))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// readyTimeout is how long a deployment may take to start, stopTimeout how long to end, answerTimeout how long its engine to answer.
const (
	readyTimeout  = time.Minute
	stopTimeout   = 20 * time.Second
	answerTimeout = 2 * time.Second
)

// Tail returns the end of the log.
func Tail(dir string) string {
	text, err := os.ReadFile(LogPath(dir))
	if err != nil {
		return err.Error()
	}
	return string(bytes.TrimSpace(text[max(0, len(text)-2000):]))
}

// Down ends the deployment in a directory, and returns it; nil when none runs. It signals the process noted in the
// deployment, after a check that no other process has its number.
func Down(ctx context.Context, dir string) (*State, error) {
	s, err := readState(dir)
	if err != nil || s == nil {
		return nil, err
	}
	p, err := os.FindProcess(s.PID) // by a handle, which stays with this process
	if err != nil {
		return nil, err
	}
	defer func() { _ = p.Release() }() // nothing is left to do
	if processStart(s.PID) != s.Started {
		return nil, removeState(dir)
	}
	for _, signal := range []os.Signal{syscall.SIGTERM, syscall.SIGCONT} { // a process that is stopped gets signals when it goes on
		if err := p.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return nil, fmt.Errorf("end process %d: %w", s.PID, err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	for processStart(s.PID) == s.Started {
		if err := wait.For(ctx, 20*time.Millisecond); err != nil {
			return nil, fmt.Errorf("process %d has not ended yet: %w; its log is %s", s.PID, err, LogPath(dir))
		}
	}
	return s, removeState(dir)
}

// DeleteData deletes the data of the engine in a directory in which nothing runs.
func DeleteData(dir string) error {
	if s, err := Find(dir); err != nil || s != nil {
		return errors.Join(err, fmt.Errorf("a deployment runs in %s", dir))
	}
	files, err := filepath.Glob(dataPath(dir) + "*") // SQLite has files beside it
	for _, f := range files {
		err = errors.Join(err, os.Remove(f))
	}
	return err
}

func dataPath(dir string) string { return filepath.Join(dir, "data.db") }

func removeState(dir string) error {
	if err := os.Remove(statePath(dir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
