package quotasqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/quota"
	"github.com/zlimit/zlimit-go/quota/quotasqlite"
)

// commonSchema is the layout as other programs make it.
const commonSchema = `
CREATE TABLE IF NOT EXISTS quotas (model TEXT PRIMARY KEY, max_rpm INTEGER NOT NULL DEFAULT 0, max_tpm INTEGER NOT NULL DEFAULT 0, max_rpd INTEGER NOT NULL DEFAULT 0);
CREATE TABLE IF NOT EXISTS requests (model TEXT NOT NULL, ts INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS tokens (model TEXT NOT NULL, ts INTEGER NOT NULL, count INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS daily (model TEXT PRIMARY KEY, day_start INTEGER NOT NULL, day_count INTEGER NOT NULL DEFAULT 0);
CREATE INDEX IF NOT EXISTS idx_requests_model_ts ON requests(model, ts);
CREATE INDEX IF NOT EXISTS idx_tokens_model_ts ON tokens(model, ts);
`

var start = time.Date(2026, 2, 20, 14, 32, 1, 123456789, time.UTC)

type clock struct{ now time.Time }

func (c *clock) Now() time.Time { return c.now }

func open(t *testing.T, path string, c quota.Config) *quota.Limiter {
	t.Helper()
	l := check.Call(quota.NewWithSQLiteConfig(t.Context(), path, c)).Must(t, "NewWithSQLiteConfig")
	t.Cleanup(func() {
		check.Error(t, "Close", l.Close())
	})
	return l
}

// raw opens the file as another program would.
func raw(t *testing.T, path string) *sql.DB {
	t.Helper()
	db := check.Call(sql.Open("sqlite", path)).Must(t, "sql.Open()")
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func run(t *testing.T, db *sql.DB, query string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// TestFilesOfOtherProgramsAreUnderstood opens a file in the common layout, and
// lets the other program go on writing.
func TestFilesOfOtherProgramsAreUnderstood(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ratelimits.db")
	db := raw(t, path)
	run(t, db, commonSchema)
	ns := start.UnixNano()
	run(t, db, `INSERT INTO quotas VALUES ('m', 3, 100, 10)`)
	run(t, db, `INSERT INTO requests VALUES ('m', ?), ('m', ?)`, ns-1, ns-int64(time.Minute)+1)
	run(t, db, `INSERT INTO tokens VALUES ('m', ?, 40), ('m', ?, 20)`, ns-1, ns-int64(time.Minute)+1)
	run(t, db, `INSERT INTO daily VALUES ('m', ?, 7)`, ns-int64(time.Hour))

	clk := &clock{start}
	l := open(t, path, quota.Config{Clock: clk.Now})
	want := quota.Stats{RPM: 2, MaxRPM: 3, TPM: 60, MaxTPM: 100, RPD: 7, MaxRPD: 10, InputTPM: 60, DayStart: start.Add(-time.Hour)}
	got, err := l.Stats(t.Context(), "m")
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Fatalf("Stats = %v, differs (-want +got):\n%s", err, diff)
	}
	if ok, err := l.CanSend(t.Context(), "m", 41); ok || err != nil {
		t.Errorf("CanSend(41) with 40 left = %v, %v, want false", ok, err)
	}
	// The other program replaces everything, as it does when it saves.
	run(t, db, `BEGIN; DELETE FROM requests; DELETE FROM tokens; DELETE FROM daily;
		INSERT INTO requests VALUES ('m', ?1); INSERT INTO tokens(model, ts, count) VALUES ('m', ?1, 99); COMMIT`, ns-89)
	for tokens, want := range map[int]bool{1: true, 2: false} {
		if ok, err := l.CanSend(t.Context(), "m", tokens); ok != want || err != nil {
			t.Errorf("CanSend(%d) with 1 left = %v, %v, want %v", tokens, ok, err, want)
		}
	}
	check.Fatal(t, "RecordUsage()", l.RecordUsage(t.Context(), "m", 1, 0))
	// And it reads what was recorded here.
	var requests, tokens, days int
	err = db.QueryRowContext(t.Context(), `SELECT (SELECT COUNT(*) FROM requests WHERE model='m' AND ts > ?), (SELECT SUM(count) FROM tokens WHERE model='m'),
		(SELECT day_count FROM daily WHERE model='m' AND day_start = ?)`, ns-int64(time.Minute), ns).Scan(&requests, &tokens, &days)
	if err != nil || requests != 2 || tokens != 100 || days != 1 {
		t.Errorf("the other program reads %d requests, %d tokens, %d of the day, %v, want 2, 100, 1", requests, tokens, days, err)
	}
	if err := l.Load(t.Context()); err != nil {
		t.Errorf("Load = %v, want a whole file", err)
	}
}

func TestLayoutIsTheCommonOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deep", "er", "x?y%20#z.db")
	open(t, path, quota.Config{})
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("the file is not where it was asked for: %v", err)
	}
	moved := filepath.Join(t.TempDir(), "copy.db")
	l2 := open(t, moved, quota.Config{})
	_ = l2
	db := raw(t, moved)
	for table, want := range map[string]string{"quotas": "model max_rpm max_tpm max_rpd", "requests": "model ts", "tokens": "model ts count", "daily": "model day_start day_count"} {
		rows := check.Call(db.QueryContext(t.Context(), `SELECT name FROM pragma_table_info(?)`, table)).Must(t, "QueryContext()")
		var got []string
		for rows.Next() {
			var name string
			check.Fatal(t, "Scan()", rows.Scan(&name))
			got = append(got, name)
		}
		check.Fatal(t, "Err() and Close()", errors.Join(rows.Err(), rows.Close()))
		if s := strings.Join(got, " "); !strings.HasPrefix(s, want) {
			t.Errorf("columns of %s = %s, want them to begin with %s", table, s, want)
		}
	}
	var indexes int
	err := db.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM sqlite_schema WHERE type='index' AND name IN ('idx_requests_model_ts', 'idx_tokens_model_ts')`).Scan(&indexes)
	if err != nil || indexes != 2 {
		t.Errorf("indexes = %d, %v, want 2", indexes, err)
	}
}

// TestSavingIsIncremental checks that a decision writes its own rows and leaves the others.
func TestSavingIsIncremental(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	l := open(t, path, quota.Config{Quotas: map[string]quota.ModelQuota{"m": {MaxRPM: 1000}}})
	db := raw(t, path)
	var before, after string
	ids := `SELECT group_concat(rowid, ' ') FROM requests`
	for range 5 {
		check.Fatal(t, "RecordUsage()", l.RecordUsage(t.Context(), "m", 1, 1))
	}
	check.Fatal(t, "Scan()", db.QueryRowContext(t.Context(), ids).Scan(&before))
	check.Fatal(t, "RecordUsage() and Persist()", errors.Join(l.RecordUsage(t.Context(), "m", 1, 1), l.Persist(t.Context())))
	if err := db.QueryRowContext(t.Context(), ids).Scan(&after); err != nil || after != before+" 6" {
		t.Errorf("rows after = %q, %v, want %q and one more", after, err, before)
	}
}

func TestQuotasOfAFileCountForEveryProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	first := open(t, path, quota.Config{Quotas: map[string]quota.ModelQuota{"m": {MaxRPM: 5}}})
	second := open(t, path, quota.Config{Providers: []quota.Provider{quota.ProviderOpenAI}})
	maxRPM := func(l *quota.Limiter, model string) int64 {
		t.Helper()
		st, err := l.Stats(t.Context(), model)
		all, errAll := l.AllStats(t.Context())
		if err != nil || errAll != nil || all[model].MaxRPM != st.MaxRPM {
			t.Fatalf("Stats = %+v, %v, AllStats = %+v, %v, want the same", st, err, all[model], errAll)
		}
		return st.MaxRPM
	}
	if got := maxRPM(second, "m"); got != 5 {
		t.Errorf("MaxRPM of m in the second process = %d, want the 5 of the first", got)
	}
	if got := maxRPM(second, "gpt-4o"); got != 500 {
		t.Errorf("MaxRPM of gpt-4o = %d, want the default of 500", got)
	}
	check.Fatal(t, "SetQuota()", first.SetQuota(t.Context(), "gpt-4o", quota.ModelQuota{MaxRPM: 1}))
	if got := maxRPM(second, "gpt-4o"); got != 1 {
		t.Errorf("MaxRPM of gpt-4o when the first process set it = %d, want 1", got)
	}
	check.Fatal(t, "Persist()", second.Persist(t.Context()))
	if got := maxRPM(first, "gpt-4o-mini"); got != 500 {
		t.Errorf("MaxRPM of gpt-4o-mini when the second process persisted = %d, want its default of 500", got)
	}
	if got := maxRPM(first, "gpt-4o"); got != 1 {
		t.Errorf("MaxRPM of gpt-4o after that = %d, want still 1", got)
	}
}

func TestResetOnAFile(t *testing.T) {
	ctx := t.Context()
	l := open(t, filepath.Join(t.TempDir(), "x.db"), quota.Config{Quotas: map[string]quota.ModelQuota{"a": {MaxRPM: 5}}})
	for _, m := range []string{"a", "b", "b"} {
		check.Fatal(t, "Record()", l.Record(ctx, quota.Request{Model: m, Key: "k", Input: 1}))
	}
	counts := func() [3]int64 {
		t.Helper()
		a, errA := l.Stats(ctx, "a")
		b, errB := l.Stats(ctx, "b")
		k, errK := l.KeyStats(ctx, "k")
		check.Fatal(t, "Stats() and KeyStats()", errors.Join(errA, errB, errK))
		return [3]int64{a.RPM + a.RPD, b.RPM + b.RPD, k.RPM + k.RPD}
	}
	for _, step := range []struct {
		reset func() error
		want  [3]int64
	}{
		{func() error { return nil }, [3]int64{2, 4, 6}},
		{func() error { return l.Reset(ctx, "a") }, [3]int64{0, 4, 6}},
		{func() error { return l.ResetKey(ctx, "k") }, [3]int64{0, 4, 0}},
		{func() error { return l.ResetAll(ctx) }, [3]int64{0, 0, 0}},
	} {
		check.Fatal(t, "reset()", step.reset())
		if got := counts(); got != step.want {
			t.Errorf("counts = %v, want %v", got, step.want)
		}
	}
	if ok, err := l.CanSend(ctx, "a", 1); !ok || err != nil {
		t.Errorf("CanSend after a reset = %v, %v, want true", ok, err)
	}
	if err := l.Load(ctx); err != nil {
		t.Errorf("Load = %v, want a whole file", err)
	}
}

// In TestALockedFileIsWaitedFor, another program holds the write lock for a while.
func TestALockedFileIsWaitedFor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	l := open(t, path, quota.Config{Quotas: map[string]quota.ModelQuota{"m": {MaxRPM: 100}}})
	db := raw(t, path)
	conn := check.Call(db.Conn(t.Context())).Must(t, "Conn()")
	hold := func() {
		t.Helper()
		if _, err := conn.ExecContext(t.Context(), "BEGIN IMMEDIATE"); err != nil {
			t.Fatalf("ExecContext() = %v", err)
		}
	}
	release := func() {
		t.Helper()
		if _, err := conn.ExecContext(t.Context(), "COMMIT"); err != nil {
			t.Fatalf("ExecContext() = %v", err)
		}
	}
	hold()
	// Looking needs no lock.
	if ok, err := l.CanSend(t.Context(), "m", 1); !ok || err != nil {
		t.Errorf("CanSend on a locked file = %v, %v, want true", ok, err)
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := l.Reserve(short, quota.Request{Model: "m"}); !errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "locked") {
		t.Errorf("Reserve on a locked file = %v, want the deadline of its context", err)
	}
	done := make(chan error)
	go func() {
		_, err := l.Reserve(t.Context(), quota.Request{Model: "m"})
		done <- err
	}()
	select {
	case err := <-done:
		t.Fatalf("Reserve on a locked file = %v, want it to wait", err)
	case <-time.After(100 * time.Millisecond):
	}
	release()
	check.Error(t, "Reserve when the lock is gone", <-done)
	if st, err := l.Stats(t.Context(), "m"); err != nil || st.RPM != 1 {
		t.Errorf("Stats = %+v, %v, want the one request that got through", st, err)
	}
}

func TestManyGoroutinesOnOneFile(t *testing.T) {
	const limit = 300
	l := open(t, filepath.Join(t.TempDir(), "x.db"), quota.Config{Quotas: map[string]quota.ModelQuota{"m": {MaxRPM: limit}}})
	var admitted sync.Map
	var wg sync.WaitGroup
	for w := range 20 {
		wg.Go(func() {
			for i := range 30 {
				_, err := l.Reserve(t.Context(), quota.Request{Model: "m", Input: 1})
				switch {
				case err == nil:
					admitted.Store([2]int{w, i}, true)
				case !errors.As(err, new(*quota.ExceededError)):
					t.Errorf("Reserve = %v, want nil or refused", err)
				}
			}
		})
	}
	wg.Wait()
	n := 0
	admitted.Range(func(any, any) bool { n++; return true })
	if n != limit {
		t.Errorf("admitted = %d, want %d", n, limit)
	}
}

// In TestManyOpenANewFileAtOnce, several limiters open a new file. One of them makes the tables, and the others wait for that. The last one
// to close the file finds everything.
func TestManyOpenANewFileAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "x.db")
	var wg sync.WaitGroup
	for range 12 {
		wg.Go(func() {
			l, err := quota.NewWithSQLite(t.Context(), path)
			if err != nil {
				t.Errorf("NewWithSQLite = %v, want nil", err)
				return
			}
			check.Error(t, "RecordUsage, Close", errors.Join(l.RecordUsage(t.Context(), "m", 1, 1), l.Close()))
		})
	}
	wg.Wait()
	l := open(t, path, quota.Config{})
	if st, err := l.Stats(t.Context(), "m"); err != nil || st.RPM != 12 || l.Load(t.Context()) != nil {
		t.Errorf("Stats = %+v, %v, want the 12 requests of a whole file", st, err)
	}
}

// An endingContext ends when it is asked for the n-th time whether it has. That call and the next one take time, in which a driver notices the
// end that watches for it beside a statement.
type endingContext struct {
	context.Context //nolint:containedctx // that it is made of
	asked           atomic.Int64
	ends            context.CancelFunc
	first, next     time.Duration
}

func (c *endingContext) Done() <-chan struct{} {
	switch c.asked.Add(-1) {
	case 0:
		c.ends()
		time.Sleep(c.first)
	case -1:
		time.Sleep(c.next)
	}
	return c.Context.Done()
}

// In TestCallersThatGiveUpLeaveTheFileUsable, contexts end in each step of a call. A transaction that stays open would fail all later calls.
func TestCallersThatGiveUpLeaveTheFileUsable(t *testing.T) {
	l := open(t, filepath.Join(t.TempDir(), "quota.db"), quota.Config{Quotas: map[string]quota.ModelQuota{"m": {MaxRPM: 1}}})
	for try := range int64(60) {
		ctx, cancel := context.WithCancel(t.Context())
		ending := &endingContext{Context: ctx, ends: cancel, first: 4 * time.Millisecond}
		if try >= 30 {
			ending.first, ending.next = time.Millisecond, 4*time.Millisecond
		}
		ending.asked.Store(try%10 + 1)
		_, _ = l.TimeUntil(ending, quota.Request{Model: "m"})
		cancel()
		if _, err := l.Stats(t.Context(), "m"); err != nil {
			t.Fatalf("after a call that was given up in step %d, Stats = %v, want nil", try%10, err)
		}
	}
}

func TestAClosedFileSaysSo(t *testing.T) {
	l := check.Call(quota.NewWithSQLite(t.Context(), filepath.Join(t.TempDir(), "x.db"))).Must(t, "quota.NewWithSQLite()")
	check.Error(t, "Close twice", errors.Join(l.Close(), l.Close()))
	if err := l.RecordUsage(t.Context(), "m", 1, 1); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("RecordUsage after Close = %v, want an error that says so", err)
	}
}

func TestMigrationIsIdempotent(t *testing.T) {
	dir := t.TempDir()
	yamlPath, dbPath := filepath.Join(dir, "ratelimits.yaml"), filepath.Join(dir, "ratelimits.db")
	clk := &clock{time.Now()} // what was migrated first is still in its minute
	from := check.Call(quota.NewWithConfig(t.Context(), quota.Config{
		FilePath: yamlPath, Clock: clk.Now, Quotas: map[string]quota.ModelQuota{"m": {MaxRPM: 9, MaxTPD: 7000}},
		KeyQuotas: map[string]quota.ModelQuota{"k": {MaxRPD: 3}},
	})).Must(t, "quota.NewWithConfig()")
	for range 4 {
		clk.now = clk.now.Add(time.Second)
		check.Fatal(t, "Record()", from.Record(t.Context(), quota.Request{Model: "m", Key: "k", Input: 100, Output: 11}))
	}
	check.Fatal(t, "Persist()", from.Persist(t.Context()))
	before := check.Call(os.ReadFile(yamlPath)).Must(t, "os.ReadFile()")
	var states []quota.State
	for range 2 {
		check.Fatal(t, "MigrateYAMLToSQLite", quota.MigrateYAMLToSQLite(t.Context(), yamlPath, dbPath))
		s := check.Call(quotasqlite.Open(t.Context(), dbPath, clk.Now)).Must(t, "quotasqlite.Open()")
		// Opening drops what has aged out by this clock: nothing yet.
		st, err := s.State(t.Context())
		check.Fatal(t, "State(), Verify() and Close()", errors.Join(err, s.Verify(t.Context()), s.Close()))
		states = append(states, st)
	}
	if diff := cmp.Diff(states[0], states[1], cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("state after a second migration differs:\n%s", diff)
	}
	to := open(t, dbPath, quota.Config{Clock: clk.Now})
	for _, f := range []func(*quota.Limiter) (quota.Stats, error){
		func(l *quota.Limiter) (quota.Stats, error) { return l.Stats(t.Context(), "m") },
		func(l *quota.Limiter) (quota.Stats, error) { return l.KeyStats(t.Context(), "k") },
	} {
		want, errWant := f(from)
		got, errGot := f(to)
		if diff := cmp.Diff(want, got); diff != "" || errWant != nil || errGot != nil || want.RPM != 4 {
			t.Errorf("Stats after the migration: %v, %v, differs (-want +got):\n%s", errWant, errGot, diff)
		}
	}
	if after, err := os.ReadFile(yamlPath); err != nil || string(after) != string(before) {
		t.Errorf("the migration changed the YAML file: %v", err)
	}
}

func TestMigrationOfABadFileTouchesNothing(t *testing.T) {
	dir := t.TempDir()
	yamlPath, dbPath := filepath.Join(dir, "bad.yaml"), filepath.Join(dir, "x.db")
	if err := quota.MigrateYAMLToSQLite(t.Context(), yamlPath, dbPath); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("migration of a missing file = %v, want not exist", err)
	}
	check.Fatal(t, "os.WriteFile()", os.WriteFile(yamlPath, []byte("quotas:\n  m: 5\n"), 0o600))
	var at *quota.FileError
	if err := quota.MigrateYAMLToSQLite(t.Context(), yamlPath, dbPath); !errors.As(err, &at) || at.Line != 2 {
		t.Errorf("migration of a corrupt file = %v, want an error at line 2", err)
	}
	if _, err := os.Stat(dbPath); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after failed migrations the database is there: %v", err)
	}
}

func TestCorruptFilesAreErrors(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, path string){
		"not a database": func(t *testing.T, path string) {
			t.Helper()
			check.Fatal(t, "os.WriteFile()", os.WriteFile(path, []byte(strings.Repeat("not a database. ", 300)), 0o600))
		},
		"other tables of the same names": func(t *testing.T, path string) {
			t.Helper()
			run(t, raw(t, path), `CREATE TABLE requests (id INTEGER, at TEXT)`)
		},
		"a negative limit": func(t *testing.T, path string) {
			t.Helper()
			run(t, raw(t, path), commonSchema+`INSERT INTO quotas VALUES ('m', -5, 0, 0)`)
		},
		"a limit that is text": func(t *testing.T, path string) {
			t.Helper()
			run(t, raw(t, path), commonSchema+`INSERT INTO quotas VALUES ('m', 'many', 0, 0)`)
		},
		"a negative count": func(t *testing.T, path string) {
			t.Helper()
			run(t, raw(t, path), commonSchema+`INSERT INTO tokens VALUES ('m', 4000000000000000000, -500)`)
		},
		"a day that is text": func(t *testing.T, path string) {
			t.Helper()
			run(t, raw(t, path), commonSchema+`INSERT INTO daily VALUES ('m', 'monday', 5)`)
		},
		"wrong totals": func(t *testing.T, path string) {
			t.Helper()
			l := check.Call(quota.NewWithSQLite(t.Context(), path)).Must(t, "quota.NewWithSQLite()")
			check.Fatal(t, "RecordUsage() and Close()", errors.Join(l.RecordUsage(t.Context(), "m", 1, 1), l.Close()))
			run(t, raw(t, path), `UPDATE totals SET requests = requests - 2`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "x.db")
			spoil(t, path)
			l, err := quota.NewWithSQLite(t.Context(), path)
			if err == nil {
				err = l.Load(t.Context())
				if _, errReserve := l.Reserve(t.Context(), quota.Request{Model: "m"}); errReserve == nil {
					t.Error("Reserve on the file = nil, want an error")
				}
				check.Error(t, "Close", l.Close())
			}
			if err == nil || !strings.Contains(err.Error(), path) {
				t.Errorf("opening and loading = %v, want an error that names the file", err)
			}
		})
	}
}
