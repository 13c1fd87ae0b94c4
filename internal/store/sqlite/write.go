package sqlite

import (
	"context"
	"errors"
	"time"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/store"
)

// Write reads the item and writes it in one transaction. It waits while another call or process writes, until the context
// ends.
func (s *Store) Write(ctx context.Context, w store.Write) (result store.Result, err error) {
	err = s.update(ctx, "write", false, func(ctx context.Context, c *conn) (bool, error) {
		p, err := s.plan(ctx, c, &w)
		if err != nil || !p.Applied {
			result = store.Result{Item: p.old}
			return false, err
		}
		result = store.Result{Applied: true, Item: p.Next}
		return true, s.save(ctx, c, &p)
	})
	if err != nil {
		return store.Result{}, err
	}
	return result, nil
}

// Transact reads and writes all items in one transaction.
func (s *Store) Transact(ctx context.Context, writes []store.Write) ([]store.Result, error) {
	const op = "transact"
	if err := store.ValidateTransaction(writes); err != nil {
		return nil, failure(op, err)
	}
	results := make([]store.Result, len(writes))
	err := s.update(ctx, op, true, func(ctx context.Context, c *conn) (bool, error) {
		plans := make([]plan, len(writes))
		all := true
		for i := range writes {
			p, err := s.plan(ctx, c, &writes[i])
			if err != nil {
				return false, err
			}
			plans[i] = p
			all = all && p.Applied
			results[i] = store.Result{Applied: p.Applied}
			if !p.Applied {
				results[i].Item = p.old
			}
		}
		if !all {
			return false, nil
		}
		for i := range plans {
			if err := s.save(ctx, c, &plans[i]); err != nil {
				return false, err
			}
		}
		return true, nil
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

// update calls f with the connection that may write, in a transaction if asked to, or if it needs one; f says whether
// to commit.
//
// Without a transaction each statement of f is one of its own. The effect is the same for an f of one
// statement, in a database with no other connection and no log.
func (s *Store) update(ctx context.Context, op string, transaction bool, f func(context.Context, *conn) (bool, error)) error {
	began := time.Now()
	c, err := s.take(ctx, s.writer)
	if err != nil {
		return failure(op, err)
	}
	c, err = s.prepared(ctx, c)
	defer func() { s.writer <- c }()
	if err != nil {
		return failure(op, err)
	}
	endless := context.WithoutCancel(ctx)
	if !transaction && s.path == "" && !s.logging {
		_, err := f(endless, c)
		return failure(op, err)
	}
	if err := c.begin.exec(endless); err != nil {
		if isBusy(err) {
			since := began // those who wait for the same lock one after another fail together
			if s.gained.After(began) {
				since = s.gained
			}
			err = s.wait(ctx, since, func(ctx context.Context) error { return c.begin.exec(ctx) })
		}
		if err != nil {
			return failure(op, err)
		}
	}
	s.gained = time.Now()
	commit, err := f(endless, c)
	if commit && err == nil {
		if err = c.commit.exec(endless); err == nil {
			s.boundWAL(endless, c)
			return nil
		}
	}
	return failure(op, rolledBack(err, c.rollback.exec(endless)))
}

// A plan is a write that was decided on the stored item.
type plan struct {
	store.Plan

	write   *store.Write
	rowid   int64     // of the old item
	old     expr.Item // nil for none
	logging bool      // changes are logged
}

// plan reads the item and evaluates the write on it.
func (s *Store) plan(ctx context.Context, c *conn, w *store.Write) (plan, error) {
	p := plan{write: w}
	if err := errors.Join(w.Validate(), w.Key.Validate()); err != nil {
		return p, invalid{err}
	}
	var err error
	if p.old, p.rowid, p.logging, err = c.load(ctx, w.Key); err != nil {
		return p, err
	}
	if p.Plan, err = s.layout.Plan(w, p.old, nil, nil); err != nil {
		return p, invalid{err}
	}
	return p, nil
}

func (s *Store) save(ctx context.Context, c *conn, p *plan) error {
	switch {
	case p.write.Kind == store.Check || p.old == nil && p.Next == nil:
		return nil
	case p.Next == nil:
		return s.remove(ctx, c, p.write.Key, p.rowid, p.logging, false)
	}
	if _, err := store.CheckSize(p.Next); err != nil {
		return invalid{err}
	}
	c.blob = appendItem(c.blob[:0], p.Next)
	if p.logging && !p.Next.Equal(p.old) {
		if err := s.log(ctx, c, p.write.Key, p.rowid, c.blob, false); err != nil {
			return err
		}
	}
	if p.old != nil && !p.Moves {
		return c.change.exec(ctx, c.blob, p.rowid)
	}
	args := make([]any, 0, len(s.layout.columns)+3)
	if p.old == nil {
		args = append(args, p.write.Key.PK, p.write.Key.SK)
	}
	args = append(args, c.blob)
	for _, name := range s.layout.columns {
		if v, ok := p.Next.Lookup(name); ok {
			args = append(args, v.Text())
		} else {
			args = append(args, nil)
		}
	}
	if p.old == nil {
		return c.insert.exec(ctx, args...)
	}
	return c.replace.exec(ctx, append(args, p.rowid)...)
}

func (s *Store) remove(ctx context.Context, c *conn, k store.Key, rowid int64, logging, expired bool) error {
	if logging {
		if err := s.log(ctx, c, k, rowid, nil, expired); err != nil {
			return err
		}
	}
	return c.remove.exec(ctx, rowid)
}
