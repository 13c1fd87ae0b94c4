package quotasqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"

	"github.com/zlimit/zlimit-go/quota"
)

// A window has the entries of one name that a transaction reads.
type window struct {
	scope    quota.Scope
	name     string
	quota    quota.ModelQuota
	usage    quota.Usage
	dayStart int64
	oldest   int64 // the oldest row; MaxInt64 if there is none
	latest   int64 // the latest row, or the beginning of the day
}

// A part is where a reservation finds its rows of one name again. Row numbers
// may be used again once rows are gone, by rows that are later; so the time is
// part of the search.
type part struct {
	scope    quota.Scope
	name     string
	ts       int64
	dayStart int64
	request  int64 // rowid
	tokens   int64 // rowid
}

type ticket struct {
	parts  []part
	tokens int64 // input and output, as reserved
}

// Check decides without the write lock if nothing has to be dropped first.
func (d *db) Check(ctx context.Context, c quota.Charge) error {
	decided := false
	err := d.use(ctx, "check", func(ctx context.Context) error {
		return d.retry(ctx, func() (err error) {
			decided, err = d.peek(ctx, &c)
			return err
		})
	})
	if decided || err != nil {
		return err
	}
	return d.pruneAndCheck(ctx, c)
}

func (d *db) pruneAndCheck(ctx context.Context, c quota.Charge) error {
	var refused error
	err := d.write(ctx, "check", func(ctx context.Context) error {
		_, err := d.decide(ctx, &c)
		refused = err
		if isRefusal(err) {
			return nil // Dropped entries stay dropped.
		}
		return err
	})
	if err != nil {
		return err
	}
	return refused
}

// peek decides from one statement per name and without a lock. It reports
// whether that was possible. It is not possible where rows have aged out or the
// clock was set back. Nor is it for two names, which peek would not see at one
// instant.
func (d *db) peek(ctx context.Context, c *quota.Charge) (decided bool, err error) {
	if c.Key != "" {
		return false, nil
	}
	now := d.now().UnixNano()
	w, err := d.window(ctx, quota.ScopeModel, c.Model, c.Quota)
	if err != nil || now-minute >= w.oldest || now < w.latest {
		return false, err
	}
	w.endDay(now)
	return true, w.admit(c)
}

// Reserve decides and records in one transaction. Where the last decision was a
// refusal, it looks without the lock first. A refusal is as good from there,
// and callers who wait for room do not hold up those who give it back.
func (d *db) Reserve(ctx context.Context, c quota.Charge) (quota.Ticket, error) {
	if d.refused.Load() {
		var refused error
		err := d.use(ctx, "reserve", func(ctx context.Context) error {
			return d.retry(ctx, func() error {
				_, refused = d.peek(ctx, &c)
				if isRefusal(refused) {
					return nil
				}
				return refused
			})
		})
		if err != nil {
			return nil, err
		}
		if refused != nil {
			return nil, refused
		}
	}
	var (
		t       *ticket
		refused error
	)
	err := d.write(ctx, "reserve", func(ctx context.Context) error {
		windows, err := d.decide(ctx, &c)
		if isRefusal(err) {
			refused = err
			return nil
		}
		if err == nil {
			t, err = d.add(ctx, windows, &c)
		}
		return err
	})
	d.refused.Store(refused != nil)
	switch {
	case err != nil:
		return nil, err
	case refused != nil:
		return nil, refused
	}
	return t, nil
}

// Record records at any limits.
func (d *db) Record(ctx context.Context, c quota.Charge) error {
	return d.write(ctx, "record", func(ctx context.Context) error {
		windows, err := d.windows(ctx, &c)
		if err != nil {
			return err
		}
		_, err = d.add(ctx, windows, &c)
		return err
	})
}

func isRefusal(err error) bool { return errors.As(err, new(*quota.ExceededError)) }

// decide reads the windows of a charge and returns an *ExceededError where one
// refuses. It runs in a write transaction.
func (d *db) decide(ctx context.Context, c *quota.Charge) ([]window, error) {
	windows, err := d.windows(ctx, c)
	if err != nil {
		return nil, err
	}
	for i := range windows {
		if err := windows[i].admit(c); err != nil {
			return nil, err
		}
	}
	return windows, nil
}

func (w *window) admit(c *quota.Charge) error {
	input, output := int64(c.Input), int64(c.Output)
	if l := w.quota.Exceeded(&w.usage, input, output); l != quota.LimitNone {
		return quota.Refusal(w.scope, w.name, w.quota, l, input, output)
	}
	return nil
}

func (w *window) endDay(now int64) {
	if w.usage.DayRequests <= 0 || now >= w.dayStart+day {
		w.usage.DayRequests, w.usage.DayTokens, w.dayStart = 0, 0, now
	}
}

// windows drops aged-out entries and reads the model's window and the key's.
func (d *db) windows(ctx context.Context, c *quota.Charge) ([]window, error) {
	now := d.now().UnixNano()
	out := make([]window, 0, 2)
	for _, at := range []struct {
		scope    quota.Scope
		name     string
		fallback quota.ModelQuota
	}{{quota.ScopeModel, c.Model, c.Quota}, {quota.ScopeKey, c.Key, c.KeyQuota}} {
		if at.name == "" {
			continue
		}
		w, err := d.window(ctx, at.scope, at.name, at.fallback)
		if err == nil && (now-minute >= w.oldest || now < w.latest) {
			if err := d.bringTo(ctx, at.scope, at.name, now); err != nil {
				return nil, err
			}
			w, err = d.window(ctx, at.scope, at.name, at.fallback)
		}
		if err != nil {
			return nil, err
		}
		w.endDay(now)
		out = append(out, w)
	}
	return out, nil
}

// bringTo drops the rows of a name that have aged out. Rows in the future,
// which come from before the clock was set back, count from now.
func (d *db) bringTo(ctx context.Context, sc quota.Scope, name string, now int64) error {
	for _, step := range []struct {
		stmt int
		ts   int64
	}{
		{stmtSetBackRequests, now},
		{stmtSetBackTokens, now},
		{stmtSetBackDay, now},
		{stmtPruneRequests, now - minute},
		{stmtPruneTokens, now - minute},
	} {
		if _, err := d.stmts[sc][step.stmt].ExecContext(ctx, name, step.ts); err != nil {
			return err
		}
	}
	return nil
}

func (d *db) window(ctx context.Context, sc quota.Scope, name string, fallback quota.ModelQuota) (window, error) {
	w := window{scope: sc, name: name, quota: fallback, oldest: math.MaxInt64, latest: math.MinInt64}
	var q [6]sql.NullInt64
	var oldest, latest [2]sql.NullInt64
	u := &w.usage
	err := d.stmts[sc][stmtRead].QueryRowContext(ctx, name).Scan(&q[0], &q[1], &q[2], &q[3], &q[4], &q[5],
		&u.Requests, &u.InputTokens, &u.OutputTokens, &w.dayStart, &u.DayRequests, &u.DayTokens, &oldest[0], &oldest[1], &latest[0], &latest[1])
	if err != nil {
		return window{}, err
	}
	if u.Requests < 0 || u.InputTokens < 0 || u.OutputTokens < 0 || u.DayRequests < 0 || u.DayTokens < 0 {
		return window{}, fmt.Errorf("the file is corrupt: negative usage of %s %q", sc, name)
	}
	if q[0].Valid {
		w.quota = quotaFrom(q)
		if err := w.quota.Validate(sc.String() + " " + name); err != nil {
			return window{}, err
		}
	}
	for _, ts := range oldest {
		if ts.Valid {
			w.oldest = min(w.oldest, ts.Int64)
		}
	}
	for _, ts := range latest {
		if ts.Valid {
			w.latest = max(w.latest, ts.Int64)
		}
	}
	if u.DayRequests > 0 {
		w.latest = max(w.latest, w.dayStart)
	}
	return w, nil
}

func quotaFrom(q [6]sql.NullInt64) quota.ModelQuota {
	return quota.ModelQuota{
		MaxRPM: q[0].Int64, MaxTPM: q[1].Int64, MaxRPD: q[2].Int64,
		MaxInputTPM: q[3].Int64, MaxOutputTPM: q[4].Int64, MaxTPD: q[5].Int64,
	}
}

// add records a charge in the windows that were read for it.
func (d *db) add(ctx context.Context, windows []window, c *quota.Charge) (*ticket, error) {
	now := d.now().UnixNano()
	input, output := int64(c.Input), int64(c.Output)
	t := &ticket{tokens: input + output}
	for i := range windows {
		w := &windows[i]
		stmts := &d.stmts[w.scope]
		if w.usage.DayRequests == 0 {
			w.dayStart = now
		}
		p := part{scope: w.scope, name: w.name, ts: now, dayStart: w.dayStart}
		var err error
		if p.request, err = insert(ctx, stmts[stmtAddRequest], w.name, now); err != nil {
			return nil, err
		}
		if p.tokens, err = insert(ctx, stmts[stmtAddTokens], w.name, now, input+output, output); err != nil {
			return nil, err
		}
		_, err = stmts[stmtSetDay].ExecContext(ctx, w.name, w.dayStart, w.usage.DayRequests+1, w.usage.DayTokens+input+output)
		if err != nil {
			return nil, err
		}
		t.parts = append(t.parts, p)
	}
	return t, nil
}

func insert(ctx context.Context, s *sql.Stmt, args ...any) (rowid int64, err error) {
	r, err := s.ExecContext(ctx, args...)
	if err != nil {
		return 0, err
	}
	return r.LastInsertId()
}

// Settle replaces the tokens of a reservation where they still count.
func (d *db) Settle(ctx context.Context, held quota.Ticket, input, output int64) error {
	t := held.(*ticket)
	return d.write(ctx, "settle", func(ctx context.Context) error {
		for _, p := range t.parts {
			stmts := &d.stmts[p.scope]
			if _, err := stmts[stmtSettleTokens].ExecContext(ctx, input+output, output, p.tokens, p.name, p.ts); err != nil {
				return err
			}
			if _, err := stmts[stmtSettleDay].ExecContext(ctx, input+output-t.tokens, p.name, p.dayStart); err != nil {
				return err
			}
		}
		return nil
	})
}

// Cancel takes a reservation out where it still counts.
func (d *db) Cancel(ctx context.Context, held quota.Ticket) error {
	t := held.(*ticket)
	return d.write(ctx, "cancel", func(ctx context.Context) error {
		for _, p := range t.parts {
			stmts := &d.stmts[p.scope]
			for _, s := range []struct {
				stmt int
				args []any
			}{
				{stmtCancelRequest, []any{p.request, p.name, p.ts}},
				{stmtCancelTokens, []any{p.tokens, p.name, p.ts}},
				{stmtCancelDay, []any{t.tokens, p.name, p.dayStart}},
			} {
				if _, err := stmts[s.stmt].ExecContext(ctx, s.args...); err != nil {
					return err
				}
			}
		}
		return nil
	})
}
