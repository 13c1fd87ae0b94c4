package quotasqlite

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/zlimit/zlimit-go/quota"
)

// The tables of a scope. Keys have the same tables as models under a prefix.
// The tables quotas, requests, tokens and daily with their indexes are a layout
// that other programs read and write. This package adds columns with defaults,
// the totals, and the triggers that keep the totals right for every writer.
// Timestamps are nanoseconds of Unix time.
const scopeSchema = `
CREATE TABLE IF NOT EXISTS {p}quotas (
	model   TEXT PRIMARY KEY,
	max_rpm INTEGER NOT NULL DEFAULT 0,
	max_tpm INTEGER NOT NULL DEFAULT 0,
	max_rpd INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS {p}requests (
	model TEXT NOT NULL,
	ts    INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS {p}tokens (
	model TEXT NOT NULL,
	ts    INTEGER NOT NULL,
	count INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS {p}daily (
	model     TEXT PRIMARY KEY,
	day_start INTEGER NOT NULL,
	day_count INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX IF NOT EXISTS idx_{p}requests_model_ts ON {p}requests(model, ts);
CREATE INDEX IF NOT EXISTS idx_{p}tokens_model_ts ON {p}tokens(model, ts);
`

// addedColumns are the columns this package adds to the common layout.
var addedColumns = []struct{ table, column string }{
	{"quotas", "max_input_tpm"},
	{"quotas", "max_output_tpm"},
	{"quotas", "max_tpd"},
	{"tokens", "output"},
	{"daily", "day_tokens"},
}

// totalsSchema is made once, together with the totals of the rows there are.
const totalsSchema = `
CREATE TABLE {p}totals (
	model    TEXT PRIMARY KEY,
	requests INTEGER NOT NULL DEFAULT 0,
	input    INTEGER NOT NULL DEFAULT 0,
	output   INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
INSERT INTO {p}totals(model, requests) SELECT model, COUNT(*) FROM {p}requests GROUP BY model;
INSERT INTO {p}totals(model, input, output)
	SELECT model, SUM(count - output), SUM(output) FROM {p}tokens WHERE true GROUP BY model
	ON CONFLICT(model) DO UPDATE SET input = excluded.input, output = excluded.output;
CREATE TRIGGER {p}requests_added AFTER INSERT ON {p}requests BEGIN
	INSERT INTO {p}totals(model, requests) VALUES (NEW.model, 1)
		ON CONFLICT(model) DO UPDATE SET requests = requests + 1;
END;
CREATE TRIGGER {p}requests_removed AFTER DELETE ON {p}requests BEGIN
	UPDATE {p}totals SET requests = requests - 1 WHERE model = OLD.model;
END;
CREATE TRIGGER {p}requests_moved AFTER UPDATE OF model ON {p}requests BEGIN
	UPDATE {p}totals SET requests = requests - 1 WHERE model = OLD.model;
	INSERT INTO {p}totals(model, requests) VALUES (NEW.model, 1)
		ON CONFLICT(model) DO UPDATE SET requests = requests + 1;
END;
CREATE TRIGGER {p}tokens_added AFTER INSERT ON {p}tokens BEGIN
	INSERT INTO {p}totals(model, input, output) VALUES (NEW.model, NEW.count - NEW.output, NEW.output)
		ON CONFLICT(model) DO UPDATE SET input = input + excluded.input, output = output + excluded.output;
END;
CREATE TRIGGER {p}tokens_removed AFTER DELETE ON {p}tokens BEGIN
	UPDATE {p}totals SET input = input - (OLD.count - OLD.output), output = output - OLD.output WHERE model = OLD.model;
END;
CREATE TRIGGER {p}tokens_changed AFTER UPDATE ON {p}tokens BEGIN
	UPDATE {p}totals SET input = input - (OLD.count - OLD.output), output = output - OLD.output WHERE model = OLD.model;
	INSERT INTO {p}totals(model, input, output) VALUES (NEW.model, NEW.count - NEW.output, NEW.output)
		ON CONFLICT(model) DO UPDATE SET input = input + excluded.input, output = output + excluded.output;
END;
`

var prefixes = map[quota.Scope]string{quota.ScopeModel: "", quota.ScopeKey: "key_"}

var scopes = []quota.Scope{quota.ScopeModel, quota.ScopeKey}

func forScope(sc quota.Scope, sql string) string {
	return strings.ReplaceAll(sql, "{p}", prefixes[sc])
}

// createSchema brings the file to the layout; on a complete one it changes
// nothing. It runs in the caller's transaction.
func (d *db) createSchema(ctx context.Context) error {
	for _, sc := range scopes {
		if _, err := d.conn.ExecContext(ctx, forScope(sc, scopeSchema)); err != nil {
			return fmt.Errorf("create tables: %w", err)
		}
		for _, c := range addedColumns {
			if err := d.addColumn(ctx, prefixes[sc]+c.table, c.column); err != nil {
				return err
			}
		}
		var n int
		err := d.conn.QueryRowContext(ctx, `SELECT COUNT(*) FROM sqlite_schema WHERE name = ?`, prefixes[sc]+"totals").Scan(&n)
		if err != nil {
			return fmt.Errorf("read schema: %w", err)
		}
		if n == 0 {
			if _, err := d.conn.ExecContext(ctx, forScope(sc, totalsSchema)); err != nil {
				return fmt.Errorf("create totals: %w", err)
			}
		}
	}
	return nil
}

func (d *db) addColumn(ctx context.Context, table, column string) error {
	names, err := d.strings(ctx, `SELECT name FROM pragma_table_info(?)`, table)
	if err != nil {
		return fmt.Errorf("read columns of %s: %w", table, err)
	}
	if slices.Contains(names, column) {
		return nil
	}
	_, err = d.conn.ExecContext(ctx, "ALTER TABLE "+table+" ADD COLUMN "+column+" INTEGER NOT NULL DEFAULT 0")
	if err != nil {
		return fmt.Errorf("add column %s.%s: %w", table, column, err)
	}
	return nil
}

func (d *db) strings(ctx context.Context, query string, args ...any) ([]string, error) {
	rows, err := d.conn.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var out []string
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, rows.Err()
}

// The statements of a scope, prepared once.
const (
	stmtRead = iota
	stmtPruneRequests
	stmtPruneTokens
	stmtSetBackRequests
	stmtSetBackTokens
	stmtSetBackDay
	stmtAddRequest
	stmtAddTokens
	stmtSetDay
	stmtSettleTokens
	stmtSettleDay
	stmtCancelRequest
	stmtCancelTokens
	stmtCancelDay
	stmtCount
)

var statementTexts = [stmtCount]string{
	// Everything a decision needs, in one row.
	stmtRead: `SELECT q.max_rpm, q.max_tpm, q.max_rpd, q.max_input_tpm, q.max_output_tpm, q.max_tpd,
		COALESCE(t.requests, 0), COALESCE(t.input, 0), COALESCE(t.output, 0),
		COALESCE(d.day_start, 0), COALESCE(d.day_count, 0), COALESCE(d.day_tokens, 0),
		(SELECT MIN(ts) FROM {p}requests WHERE model = ?1), (SELECT MIN(ts) FROM {p}tokens WHERE model = ?1),
		(SELECT MAX(ts) FROM {p}requests WHERE model = ?1), (SELECT MAX(ts) FROM {p}tokens WHERE model = ?1)
		FROM (SELECT 1) LEFT JOIN {p}quotas q ON q.model = ?1 LEFT JOIN {p}totals t ON t.model = ?1
		LEFT JOIN {p}daily d ON d.model = ?1`,
	stmtPruneRequests: `DELETE FROM {p}requests WHERE model = ? AND ts <= ?`,
	stmtPruneTokens:   `DELETE FROM {p}tokens WHERE model = ? AND ts <= ?`,
	// Requests that were recorded before the clock was set back count from now.
	// Their rows may be earlier than the time at which they were added.
	stmtSetBackRequests: `UPDATE {p}requests SET ts = ?2 WHERE model = ?1 AND ts > ?2`,
	stmtSetBackTokens:   `UPDATE {p}tokens SET ts = ?2 WHERE model = ?1 AND ts > ?2`,
	stmtSetBackDay:      `UPDATE {p}daily SET day_start = ?2 WHERE model = ?1 AND day_start > ?2`,
	stmtAddRequest:      `INSERT INTO {p}requests(model, ts) VALUES (?, ?)`,
	stmtAddTokens:       `INSERT INTO {p}tokens(model, ts, count, output) VALUES (?, ?, ?, ?)`,
	stmtSetDay: `INSERT INTO {p}daily(model, day_start, day_count, day_tokens) VALUES (?, ?, ?, ?)
		ON CONFLICT(model) DO UPDATE SET day_start = excluded.day_start, day_count = excluded.day_count, day_tokens = excluded.day_tokens`,
	stmtSettleTokens:  `UPDATE {p}tokens SET count = ?, output = ? WHERE rowid = ? AND model = ? AND ts <= ?`,
	stmtSettleDay:     `UPDATE {p}daily SET day_tokens = MAX(0, day_tokens + ?) WHERE model = ? AND day_start <= ? AND day_count > 0`,
	stmtCancelRequest: `DELETE FROM {p}requests WHERE rowid = ? AND model = ? AND ts <= ?`,
	stmtCancelTokens:  `DELETE FROM {p}tokens WHERE rowid = ? AND model = ? AND ts <= ?`,
	stmtCancelDay: `UPDATE {p}daily SET day_count = day_count - 1, day_tokens = MAX(0, day_tokens - ?)
		WHERE model = ? AND day_start <= ? AND day_count > 0`,
}
