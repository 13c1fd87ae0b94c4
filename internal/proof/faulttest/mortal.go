package faulttest

import (
	"context"
	"errors"
	"sync"

	"github.com/zlimit/zlimit-go/internal/store"
)

// ErrKilled is what calls of a process get that has been killed: nothing hears it.
var ErrKilled = errors.New("killed")

// A Crash is what becomes of the call at which a process is killed.
type Crash string

// The crashes.
const (
	Before Crash = "before the call"
	Amid   Crash = "amid the call" // half of a deletion is done; other calls are not
	After  Crash = "after the call"
)

// A Mortal is the store of a process that is killed at a call: none of its later calls arrives. It is safe for concurrent use.
type Mortal struct {
	store.Around

	mu    sync.Mutex // guards what follows
	calls int        // made so far
	last  int        // the call at which the process is killed, from 1; 0 for never
	how   Crash      // what becomes of it
}

// NewMortal returns a store as a process sees it that is not killed yet.
func NewMortal(s store.Store) *Mortal {
	m := &Mortal{}
	m.Around = store.Around{Store: s, Call: m.call}
	return m
}

func (m *Mortal) call(ctx context.Context, c *store.Call, do func(context.Context) error) (err error) {
	carry, answer := m.next()
	switch {
	case carry == After:
		err = do(ctx)
	case carry == Amid && c.Operation == "delete":
		err = m.Store.Delete(ctx, c.Keys[:len(c.Keys)/2])
	}
	if !answer {
		return ErrKilled
	}
	return err
}

// Kill kills the process at a call from now on, from 1; 0 for never.
func (m *Mortal) Kill(at int, how Crash) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls, m.last, m.how = 0, at, how
}

// Died reports whether the process was killed.
func (m *Mortal) Died() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last > 0 && m.calls >= m.last
}

// Calls returns the number of calls since the last [Mortal.Kill].
func (m *Mortal) Calls() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.calls
}

// next counts a call; it returns whether to carry it out, and whether it is answered.
func (m *Mortal) next() (carry Crash, answer bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls++
	switch {
	case m.last == 0 || m.calls < m.last:
		return After, true
	case m.calls == m.last:
		return m.how, false
	default:
		return Before, false
	}
}
