package quotasqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/zlimit/zlimit-go/quota"
)

// History returns the records of a name and its stored quota.
func (d *db) History(ctx context.Context, sc quota.Scope, name string) (u quota.UsageStats, q *quota.ModelQuota, err error) {
	err = d.read(ctx, "read", func(ctx context.Context) error {
		st := quota.State{}
		if err := d.readScope(ctx, sc, &st, name); err != nil {
			return err
		}
		u, q = usage(&st, sc)[name], nil
		if stored, ok := quotas(&st, sc)[name]; ok {
			q = &stored
		}
		return st.Validate()
	})
	return u, q, err
}

// Quota returns the stored quota of a name.
func (d *db) Quota(ctx context.Context, sc quota.Scope, name string) (q quota.ModelQuota, stored bool, err error) {
	err = d.use(ctx, "read", func(ctx context.Context) error {
		return d.retry(ctx, func() error {
			return d.each(ctx, sc, readQuotas, "", name, func(rows *sql.Rows) error {
				stored = true
				_, q, err = scanQuota(rows)
				return err
			})
		})
	})
	if err == nil {
		err = q.Validate(sc.String() + " " + name)
	}
	return q, stored, err
}

const readQuotas = `SELECT model, max_rpm, max_tpm, max_rpd, max_input_tpm, max_output_tpm, max_tpd FROM {p}quotas`

func scanQuota(rows *sql.Rows) (model string, q quota.ModelQuota, err error) {
	var v [6]sql.NullInt64
	err = rows.Scan(&model, &v[0], &v[1], &v[2], &v[3], &v[4], &v[5])
	return model, quotaFrom(v), err
}

// State returns everything stored.
func (d *db) State(ctx context.Context) (st quota.State, err error) {
	err = d.read(ctx, "read", func(ctx context.Context) error {
		st = quota.State{}
		for _, sc := range scopes {
			if err := d.readScope(ctx, sc, &st, ""); err != nil {
				return err
			}
		}
		return st.Validate()
	})
	return st, err
}

// Verify lets SQLite check its own structures, compares the totals with the
// rows, and then reads everything.
func (d *db) Verify(ctx context.Context) error {
	err := d.read(ctx, "verify", func(ctx context.Context) error {
		found, err := d.strings(ctx, "PRAGMA integrity_check")
		if err != nil {
			return err
		}
		if len(found) != 1 || found[0] != "ok" {
			return fmt.Errorf("the file is corrupt: %q", found)
		}
		for _, sc := range scopes {
			if found, err = d.strings(ctx, forScope(sc, wrongTotals)); err != nil {
				return err
			}
			if len(found) > 0 {
				return fmt.Errorf("the file is corrupt: wrong totals of %ss %q", sc, found)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	_, err = d.State(ctx)
	return err
}

// wrongTotals lists the names whose totals do not match their rows.
const wrongTotals = `SELECT model FROM (
		SELECT model, requests, input, output FROM {p}totals
		UNION ALL SELECT model, -1, 0, 0 FROM {p}requests
		UNION ALL SELECT model, 0, output - count, -output FROM {p}tokens
	) GROUP BY model HAVING SUM(requests) <> 0 OR SUM(input) <> 0 OR SUM(output) <> 0`

func quotas(st *quota.State, sc quota.Scope) map[string]quota.ModelQuota {
	if sc == quota.ScopeKey {
		return st.KeyQuotas
	}
	return st.Quotas
}

func usage(st *quota.State, sc quota.Scope) map[string]quota.UsageStats {
	if sc == quota.ScopeKey {
		return st.KeyState
	}
	return st.State
}

// readScope reads the tables of a scope: of one name, or of all where name is
// empty.
func (d *db) readScope(ctx context.Context, sc quota.Scope, st *quota.State, name string) error {
	qs, us := map[string]quota.ModelQuota{}, map[string]quota.UsageStats{}
	err := errors.Join(
		d.each(ctx, sc, readQuotas, "", name, func(rows *sql.Rows) error {
			model, q, err := scanQuota(rows)
			qs[model] = q
			return err
		}),
		d.each(ctx, sc, `SELECT model, ts FROM {p}requests`, "ts, rowid", name, func(rows *sql.Rows) error {
			var model string
			var ts int64
			err := rows.Scan(&model, &ts)
			u := us[model]
			u.Requests = append(u.Requests, time.Unix(0, ts).UTC())
			us[model] = u
			return err
		}),
		d.each(ctx, sc, `SELECT model, ts, count, output FROM {p}tokens`, "ts, rowid", name, func(rows *sql.Rows) error {
			var model string
			var ts int64
			var e quota.TokenEntry
			err := rows.Scan(&model, &ts, &e.Count, &e.Output)
			e.Time = time.Unix(0, ts).UTC()
			u := us[model]
			u.Tokens = append(u.Tokens, e)
			us[model] = u
			return err
		}),
		d.each(ctx, sc, `SELECT model, day_start, day_count, day_tokens FROM {p}daily`, "", name, func(rows *sql.Rows) error {
			var model string
			var start, count, tokens int64
			err := rows.Scan(&model, &start, &count, &tokens)
			u := us[model]
			u.DayStart, u.DayCount, u.DayTokens = time.Unix(0, start).UTC(), count, tokens
			us[model] = u
			return err
		}),
	)
	if sc == quota.ScopeKey {
		st.KeyQuotas, st.KeyState = qs, us
	} else {
		st.Quotas, st.State = qs, us
	}
	return err
}

func (d *db) each(ctx context.Context, sc quota.Scope, text, order, name string, fn func(*sql.Rows) error) error {
	var args []any
	if name != "" {
		text += " WHERE model = ?"
		args = append(args, name)
	}
	if order != "" {
		text += " ORDER BY " + order
	}
	rows, err := d.conn.QueryContext(ctx, forScope(sc, text), args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := fn(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// Replace puts the usage of st in place of all that is stored, and adds its
// quotas.
func (d *db) Replace(ctx context.Context, st quota.State) error {
	if err := st.Validate(); err != nil {
		return err
	}
	return d.write(ctx, "replace", func(ctx context.Context) error {
		for _, sc := range scopes {
			if err := d.forget(ctx, sc, ""); err != nil {
				return err
			}
			if err := d.putQuotas(ctx, sc, quotas(&st, sc), false); err != nil {
				return err
			}
			for name, u := range usage(&st, sc) {
				if err := d.putUsage(ctx, sc, name, u); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

func (d *db) putUsage(ctx context.Context, sc quota.Scope, name string, u quota.UsageStats) error {
	stmts := &d.stmts[sc]
	for _, t := range u.Requests {
		if _, err := stmts[stmtAddRequest].ExecContext(ctx, name, t.UnixNano()); err != nil {
			return err
		}
	}
	for _, e := range u.Tokens {
		if _, err := stmts[stmtAddTokens].ExecContext(ctx, name, e.Time.UnixNano(), e.Count, e.Output); err != nil {
			return err
		}
	}
	if u.DayCount == 0 {
		return nil
	}
	_, err := stmts[stmtSetDay].ExecContext(ctx, name, u.DayStart.UnixNano(), u.DayCount, u.DayTokens)
	return err
}

// SetQuotas stores quotas.
func (d *db) SetQuotas(ctx context.Context, sc quota.Scope, qs map[string]quota.ModelQuota, keep bool) error {
	if len(qs) == 0 {
		return nil
	}
	return d.write(ctx, "set quota", func(ctx context.Context) error { return d.putQuotas(ctx, sc, qs, keep) })
}

func (d *db) putQuotas(ctx context.Context, sc quota.Scope, qs map[string]quota.ModelQuota, keep bool) error {
	text := `INSERT INTO {p}quotas(model, max_rpm, max_tpm, max_rpd, max_input_tpm, max_output_tpm, max_tpd) VALUES (?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT(model) DO `
	if keep {
		text += `NOTHING`
	} else {
		text += `UPDATE SET max_rpm = excluded.max_rpm, max_tpm = excluded.max_tpm, max_rpd = excluded.max_rpd,
			max_input_tpm = excluded.max_input_tpm, max_output_tpm = excluded.max_output_tpm, max_tpd = excluded.max_tpd`
	}
	for name, q := range qs {
		_, err := d.conn.ExecContext(ctx, forScope(sc, text), name, q.MaxRPM, q.MaxTPM, q.MaxRPD, q.MaxInputTPM, q.MaxOutputTPM, q.MaxTPD)
		if err != nil {
			return err
		}
	}
	return nil
}

// Reset forgets the usage of a name, or of all names of both scopes.
func (d *db) Reset(ctx context.Context, sc quota.Scope, name string) error {
	return d.write(ctx, "reset", func(ctx context.Context) error {
		if name != "" {
			return d.forget(ctx, sc, name)
		}
		for _, sc := range scopes {
			if err := d.forget(ctx, sc, ""); err != nil {
				return err
			}
		}
		return nil
	})
}

// forget deletes the usage of a name, or of all names of the scope.
func (d *db) forget(ctx context.Context, sc quota.Scope, name string) error {
	for _, table := range []string{"requests", "tokens", "daily", "totals"} {
		_, err := d.conn.ExecContext(ctx, "DELETE FROM "+prefixes[sc]+table+" WHERE ?1 = '' OR model = ?1", name)
		if err != nil {
			return err
		}
	}
	return nil
}
