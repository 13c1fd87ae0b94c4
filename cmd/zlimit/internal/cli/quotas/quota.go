// Package quotas has the command quota, for the limits of one machine's model calls.
package quotas

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/quota"
	_ "github.com/zlimit/zlimit-go/quota/quotasqlite"
)

// Command returns the command quota.
func Command(sh *shell.Shell) *cobra.Command {
	return shell.Group("status, reset, set, migrate or count", &cobra.Command{
		Use:   "quota",
		Short: "Quotas of one machine: status, reset, set, migrate, count",
		Long: `Quota works on the state files of package quota, which limits calls to models
from one machine: requests and tokens per minute, requests and tokens per day.

--state names the file, YAML or SQLite as its content says, and as its name says
where it is new. Without it the file is ratelimits.yaml in the directory .core
of the home directory, or ratelimits.db where only that is there.

A process that keeps a YAML file works in memory and writes the file when it
persists: until then the file does not know its counts, and afterwards nothing
is left of changes made in the file meanwhile. An SQLite file is shared, and
always up to date.`,
		Example: `  zlimit quota status
  zlimit quota set gpt-4o --rpm 500 --tpm 30000`,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			for _, name := range []string{"store", "namespace"} {
				if cmd.Flags().Changed(name) {
					return shell.Usagef("quota %s: --%s is for limits in a store; a quota is in a file, --state PATH", cmd.Name(), name)
				}
			}
			return nil
		},
	}, statusCommand(sh), resetCommand(sh), setCommand(sh), migrateCommand(sh), countCommand(sh))
}

func stateFlag(cmd *cobra.Command, path *string) {
	cmd.Flags().StringVar(path, "state", "", "`PATH` of the state file (default ~/.core/ratelimits.yaml)")
}

// A subject is the owner of a quota: a model or a key.
type subject struct {
	scope quota.Scope
	name  string
}

func (s subject) String() string { return s.scope.String() + " " + s.name }

// named returns the subject that arguments and the flag --key name, nil where they name none.
func named(cmd *cobra.Command, args []string, key string) (*subject, error) {
	withKey := cmd.Flags().Changed("key")
	switch {
	case len(args) > 1:
		return nil, shell.Usagef("quota %s: one argument too many, %q; see %s --help", cmd.Name(), args[1], cmd.CommandPath())
	case len(args) > 0 && withKey:
		return nil, shell.Usagef("quota %s: --key excludes MODEL", cmd.Name())
	case len(args) == 0 && !withKey:
		return nil, nil
	}
	s := &subject{scope: quota.ScopeKey, name: key}
	if !withKey {
		*s = subject{scope: quota.ScopeModel, name: args[0]}
	}
	return s, badInput(quota.ValidateName(s.scope.String(), s.name))
}

// badInput marks what package quota finds wrong with arguments. A mistake in a file is no bad input.
func badInput(err error) error {
	if invalid, ok := errors.AsType[*quota.ValidationError](err); ok {
		return shell.Usagef("%v", invalid)
	}
	return err
}

// A stateFile is a file that holds quotas and usage.
type stateFile struct {
	path    string
	format  string    // quota.BackendYAML or quota.BackendSQLite
	written time.Time // zero: the file is not there
}

// stateFileAt finds the state file, at a path or, if that is empty, at the default place.
func stateFileAt(sh *shell.Shell, path string) (stateFile, error) {
	if path != "" {
		return inspect(path)
	}
	variable := "HOME"
	if runtime.GOOS == "windows" {
		variable = "USERPROFILE"
	}
	home := sh.Env(variable)
	if home == "" {
		return stateFile{}, shell.Usagef("no state file: give --state PATH, since $%s is not set", variable)
	}
	f, err := inspect(filepath.Join(home, ".core", "ratelimits.yaml"))
	if err != nil {
		return f, err
	}
	other, err := inspect(filepath.Join(home, ".core", "ratelimits.db"))
	switch {
	case err != nil || other.written.IsZero():
		return f, err
	case f.written.IsZero():
		return other, nil
	}
	sh.Note(fmt.Sprintf("note: this is %s; --state '%s' is the other file there", f.path, other.path))
	return f, nil
}

// inspect finds out about a file: SQLite by its first bytes, otherwise by its name, otherwise YAML.
func inspect(path string) (stateFile, error) {
	f := stateFile{path: path}
	extension := strings.ToLower(filepath.Ext(path))
	if slices.Contains([]string{".yaml", ".yml"}, extension) {
		f.format = quota.BackendYAML
	} else if slices.Contains([]string{".db", ".sqlite", ".sqlite3"}, extension) {
		f.format = quota.BackendSQLite
	}
	head, err := f.stat()
	switch {
	case err != nil:
		return f, fmt.Errorf("read state: %w", err)
	case string(head) == sqliteMagic:
		f.format = quota.BackendSQLite
	case f.format == "" && len(head) > 0:
		f.format = quota.BackendYAML
	case f.format == "":
		return f, shell.Usagef("state %q: the name of a new file must end in .yaml or .db, to say what it is to be", path)
	}
	return f, nil
}

const sqliteMagic = "SQLite format 3\x00"

// stat returns the first bytes of the file, and sets the time at which the file or SQLite's log was written. A file
// that does not exist is no error.
func (f *stateFile) stat() ([]byte, error) {
	file, err := os.Open(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	head := make([]byte, len(sqliteMagic))
	n, err := io.ReadFull(file, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, err
	}
	f.written = info.ModTime()
	if target, err := filepath.EvalSymlinks(f.path); err == nil && bytes.HasPrefix(head, []byte(sqliteMagic)) {
		if log, err := os.Stat(target + "-wal"); err == nil && log.Size() > 0 && log.ModTime().After(f.written) {
			f.written = log.ModTime()
		}
	}
	return head[:n], nil
}

func (f *stateFile) exists() error {
	if f.written.IsZero() {
		return fmt.Errorf("there is no state file %s; --state names another one", f.path)
	}
	return nil
}

// notStored stands for the quota of names that have none in the file. No file holds it.
var notStored = quota.ModelQuota{
	MaxRPM: math.MaxInt64, MaxTPM: math.MaxInt64, MaxRPD: math.MaxInt64,
	MaxInputTPM: math.MaxInt64, MaxOutputTPM: math.MaxInt64, MaxTPD: math.MaxInt64,
}

// config makes a limiter with the quotas of the file and no others, and with a clock that stands
// still.
func (f *stateFile) config(now time.Time) quota.Config {
	return quota.Config{
		FilePath: f.path, Backend: f.format, Providers: []quota.Provider{quota.ProviderLocal},
		DefaultQuota: notStored, DefaultKeyQuota: notStored,
		Clock: func() time.Time { return now },
	}
}

// open opens the file, for changes. An SQLite file is created if it is missing; a YAML file is written by save.
func (f *stateFile) open(ctx context.Context, now time.Time) (*quota.Limiter, error) {
	if err := f.refuseStranger(ctx); err != nil {
		return nil, err
	}
	l, err := quota.NewWithConfig(ctx, f.config(now))
	if err != nil || f.format == quota.BackendSQLite {
		return l, err
	}
	return l, l.Load(ctx)
}

// save ends changes to the file. An SQLite file has them already.
func (f *stateFile) save(ctx context.Context, l *quota.Limiter) error {
	if f.format == quota.BackendSQLite {
		return nil
	}
	return l.Persist(ctx)
}

// refuseStranger returns an error where the file is SQLite's and of another program. Opening it as a state file would
// put tables into it.
func (f *stateFile) refuseStranger(ctx context.Context) (err error) {
	if f.format != quota.BackendSQLite || f.written.IsZero() {
		return nil
	}
	path, err := filepath.Abs(f.path)
	if err != nil {
		return err
	}
	dsn := url.URL{Scheme: "file", Path: filepath.ToSlash(path), RawQuery: "mode=ro&_pragma=busy_timeout(5000)"}
	db, err := sql.Open("sqlite", dsn.String())
	if err != nil {
		return fmt.Errorf("open %s: %w", f.path, err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var tables, ours int
	err = db.QueryRowContext(ctx, `SELECT COUNT(*), COUNT(*) FILTER (WHERE name IN ('quotas', 'requests', 'tokens', 'daily'))
		FROM sqlite_schema WHERE type = 'table'`).Scan(&tables, &ours)
	if err != nil {
		return fmt.Errorf("open %s: %w", f.path, err)
	}
	if tables > 0 && ours < 4 {
		return fmt.Errorf("%s is an SQLite file, but not one of quotas", f.path)
	}
	return nil
}

// quotaLimits are the limits of a quota in the order in which they are shown.
var quotaLimits = []quota.Limit{
	quota.LimitRPM, quota.LimitTPM, quota.LimitRPD, quota.LimitInputTPM, quota.LimitOutputTPM, quota.LimitTPD,
}

func limitIn(q *quota.ModelQuota, l quota.Limit) *int64 {
	return map[quota.Limit]*int64{
		quota.LimitRPM: &q.MaxRPM, quota.LimitTPM: &q.MaxTPM, quota.LimitRPD: &q.MaxRPD,
		quota.LimitInputTPM: &q.MaxInputTPM, quota.LimitOutputTPM: &q.MaxOutputTPM, quota.LimitTPD: &q.MaxTPD,
	}[l]
}

// split parts statistics into used and allowed amounts.
func split(s quota.Stats) (used, allowed quota.ModelQuota) {
	used = quota.ModelQuota{
		MaxRPM: s.RPM, MaxTPM: s.TPM, MaxRPD: s.RPD, MaxInputTPM: s.InputTPM, MaxOutputTPM: s.OutputTPM, MaxTPD: s.TPD,
	}
	allowed = quota.ModelQuota{
		MaxRPM: s.MaxRPM, MaxTPM: s.MaxTPM, MaxRPD: s.MaxRPD,
		MaxInputTPM: s.MaxInputTPM, MaxOutputTPM: s.MaxOutputTPM, MaxTPD: s.MaxTPD,
	}
	return used, allowed
}

func (s subject) stats(ctx context.Context, l *quota.Limiter) (quota.Stats, error) {
	if s.scope == quota.ScopeKey {
		return l.KeyStats(ctx, s.name)
	}
	return l.Stats(ctx, s.name)
}

func (s subject) setQuota(ctx context.Context, l *quota.Limiter, q quota.ModelQuota) error {
	if s.scope == quota.ScopeKey {
		return l.SetKeyQuota(ctx, s.name, q)
	}
	return l.SetQuota(ctx, s.name, q)
}

func (s subject) reset(ctx context.Context, l *quota.Limiter) error {
	if s.scope == quota.ScopeKey {
		return l.ResetKey(ctx, s.name)
	}
	return l.Reset(ctx, s.name)
}

func footnotes(p *show.Page, notes []string) {
	for _, note := range notes {
		p.Linef("note: %s", note)
	}
}
