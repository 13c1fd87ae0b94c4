package faulttest

import (
	"context"
	"errors"
	"sync/atomic"

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
	Nth // the call at which the process is killed

	how atomic.Value // a Crash: what becomes of it
}

// NewMortal returns a store as a process sees it that is not killed yet.
func NewMortal(s store.Store) *Mortal {
	m := &Mortal{}
	m.Around = store.Around{Store: s, Call: m.call}
	return m
}

func (m *Mortal) call(ctx context.Context, c *store.Call, do func(context.Context) error) (err error) {
	is, after := m.Count()
	if !is && !after {
		return do(ctx)
	}
	switch how := m.how.Load(); {
	case is && how == After:
		_ = do(ctx)
	case is && how == Amid && c.Operation == "delete":
		_ = m.Store.Delete(ctx, c.Keys[:len(c.Keys)/2])
	}
	return ErrKilled
}

// Kill kills the process at a call from now on, from 1; 0 for never.
func (m *Mortal) Kill(at int, how Crash) {
	m.how.Store(how)
	m.Await(at)
}

// Died reports whether the process was killed.
func (m *Mortal) Died() bool { return m.Came() }
