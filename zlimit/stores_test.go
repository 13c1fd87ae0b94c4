package zlimit_test

import (
	"context"
	"errors"
	"sync"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
)

// errCrash is what calls of a process get that has been killed: nothing hears it.
var errCrash = errors.New("killed")

// A crash is what becomes of the call at which a process is killed.
type crash string

const (
	crashBefore crash = "before the call"
	crashAmid   crash = "counts the call" // half of a batch is done; other calls are not
	crashAfter  crash = "after the call"
)

// A mortal store is that of a process that is killed at a call: none of its later calls arrives.
type mortal struct {
	store.Store
	turn  sync.Mutex
	calls int   // made so far
	last  int   // the call at which the process is killed, from 1; 0 for never
	how   crash // what becomes of it
}

// kill kills the process at a call from now on, from 1.
func (m *mortal) kill(at int, how crash) {
	m.turn.Lock()
	defer m.turn.Unlock()
	m.calls, m.last, m.how = 0, at, how
}

// died reports whether the process was killed.
func (m *mortal) died() bool {
	m.turn.Lock()
	defer m.turn.Unlock()
	return m.last > 0 && m.calls >= m.last
}

// next counts a call; it returns whether to carry it out, and whether it is answered.
func (m *mortal) next() (carry crash, answer bool) {
	m.turn.Lock()
	defer m.turn.Unlock()
	m.calls++
	switch {
	case m.last == 0 || m.calls < m.last:
		return crashAfter, true
	case m.calls == m.last:
		return m.how, false
	default:
		return crashBefore, false
	}
}

func survive[T any](m *mortal, do func() (T, error)) (result T, err error) {
	carry, answer := m.next()
	if carry == crashAfter {
		result, err = do()
	}
	if !answer {
		return *new(T), errCrash
	}
	return result, err
}

func (m *mortal) Read(ctx context.Context, keys []store.Key, consistent bool) ([]expr.Item, error) {
	return survive(m, func() ([]expr.Item, error) { return m.Store.Read(ctx, keys, consistent) })
}

func (m *mortal) Write(ctx context.Context, w store.Write) (store.Result, error) {
	return survive(m, func() (store.Result, error) { return m.Store.Write(ctx, w) })
}

func (m *mortal) Transact(ctx context.Context, writes []store.Write) ([]store.Result, error) {
	return survive(m, func() ([]store.Result, error) { return m.Store.Transact(ctx, writes) })
}

func (m *mortal) Query(ctx context.Context, q store.Query) (store.Page, error) {
	return survive(m, func() (store.Page, error) { return m.Store.Query(ctx, q) })
}

func (m *mortal) Delete(ctx context.Context, keys []store.Key) error {
	carry, answer := m.next()
	var err error
	switch carry {
	case crashAfter:
		err = m.Store.Delete(ctx, keys)
	case crashAmid:
		err = m.Store.Delete(ctx, keys[:len(keys)/2])
	default: // lost
	}
	if !answer {
		return errCrash
	}
	return err
}

// An interrupted store has something happen, once, right before a call that writes.
type interrupted struct {
	store.Store
	counts func(store.Key) bool // the writes that count; nil for all

	mu sync.Mutex
	do func()
}

// ofBuckets reports whether a key is that of a bucket.
func ofBuckets(key store.Key) bool {
	_, ok := layout.ParseBucketKey(key)
	return ok
}

// set sets a function to call before the next write.
func (s *interrupted) set(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.do = do
}

func (s *interrupted) interrupt(keys ...store.Key) {
	for _, key := range keys {
		if s.counts != nil && !s.counts(key) {
			continue
		}
		s.mu.Lock()
		do := s.do
		s.do = nil
		s.mu.Unlock()
		if do != nil {
			do()
		}
	}
}

func (s *interrupted) Write(ctx context.Context, w store.Write) (store.Result, error) {
	s.interrupt(w.Key)
	return s.Store.Write(ctx, w)
}

func (s *interrupted) Transact(ctx context.Context, writes []store.Write) ([]store.Result, error) {
	for _, w := range writes {
		s.interrupt(w.Key)
	}
	return s.Store.Transact(ctx, writes)
}

func (s *interrupted) Delete(ctx context.Context, keys []store.Key) error {
	s.interrupt(keys...)
	return s.Store.Delete(ctx, keys)
}
