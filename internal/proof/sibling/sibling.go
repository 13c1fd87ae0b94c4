// Package sibling gives tests zae-limiter 0.17, the Python package that shares the layout, in a process of its own.
//
// ZLIMIT_ZAE names a Python that has the package. Tests are skipped without it.
package sibling

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
)

//go:embed zae.py
var script string

// A Process is zae-limiter on a table, without caches. Its clock has the time of each call. It is for one goroutine.
type Process struct {
	in  io.Writer
	out *bufio.Scanner
}

// Start starts zae-limiter in a namespace of a table.
func Start(t *testing.T, table, namespace string) *Process {
	t.Helper()
	return start(t, table, namespace, "")
}

// Create makes zae-limiter create the table and the namespace, and starts it.
func Create(t *testing.T, table, namespace string) *Process {
	t.Helper()
	return start(t, table, namespace, "new")
}

func start(t *testing.T, arguments ...string) *Process {
	t.Helper()
	python := os.Getenv("ZLIMIT_ZAE")
	if python == "" {
		t.Skip("ZLIMIT_ZAE names no Python with zae-limiter 0.17")
	}
	arguments = append([]string{"-c", script, enginetest.Start(t).Endpoint()}, arguments...)
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), python, arguments...)
	cmd.Env = append(os.Environ(), "AWS_ACCESS_KEY_ID=a", "AWS_SECRET_ACCESS_KEY=b", "AWS_DEFAULT_REGION=us-east-1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	check.Fatal(t, "StdinPipe()", err)
	out, err := cmd.StdoutPipe()
	check.Fatal(t, "StdoutPipe()", err)
	check.Fatal(t, "Start()", cmd.Start())
	t.Cleanup(func() {
		check.Error(t, "Close() and Wait()", errors.Join(in.Close(), cmd.Wait()))
	})
	p := &Process{in, bufio.NewScanner(out)}
	if !p.out.Scan() {
		t.Fatalf("zae-limiter did not start: %v", p.out.Err())
	}
	return p
}

// A Take is a request, and what its lease gives back at the end. Empty are the entity key-1, the resource gpt-4, and the
// stored limits.
type Take struct {
	Entity, Resource string
	Consume, Back    map[string]int64
	Limits           []Limit
}

// Named are the named arguments of a call, as its last one.
type Named map[string]any

// A Limit describes a limit: "name" and "amount" a minute; with "session" a quota for that many seconds; with "cron" and "zone" a quota of
// the calendar. "windows" are the windows of a schedule, with the arguments of ScheduleEntry. A "soft" one refuses nothing.
type Limit = map[string]any

// Take makes a request, and returns whether it was admitted, rejected or disabled.
func (p *Process) Take(t *testing.T, at time.Time, what Take) string {
	t.Helper()
	if what.Entity == "" {
		what.Entity = "key-1"
	}
	if what.Resource == "" {
		what.Resource = "gpt-4"
	}
	return p.ask(t, at, map[string]any{
		"entity": what.Entity, "resource": what.Resource, "consume": what.Consume, "back": what.Back, "limits": what.Limits,
	})
}

// Call calls a method of a Repository.
func (p *Process) Call(t *testing.T, at time.Time, method string, arguments ...any) {
	t.Helper()
	named := Named{}
	if n := len(arguments); n > 0 {
		if last, ok := arguments[n-1].(Named); ok {
			named, arguments = last, arguments[:n-1]
		}
	}
	p.ask(t, at, map[string]any{"call": method, "args": append([]any{}, arguments...), "named": named})
}

func (p *Process) ask(t *testing.T, at time.Time, what map[string]any) (answer string) {
	t.Helper()
	what["at"] = at.UnixMilli()
	line, err := json.Marshal(what)
	check.Fatal(t, "json.Marshal()", err)
	if _, err := p.in.Write(append(line, '\n')); err != nil {
		t.Fatalf("Write() = %v", err)
	}
	if !p.out.Scan() {
		t.Fatalf("zae-limiter ended at %v: %v", what, p.out.Err())
	}
	if err := json.Unmarshal(p.out.Bytes(), &answer); err != nil {
		t.Fatalf("zae-limiter answered %s", p.out.Bytes())
	}
	return answer
}
