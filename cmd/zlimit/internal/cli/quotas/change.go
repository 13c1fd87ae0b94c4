package quotas

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/quota"
)

func resetCommand(sh *shell.Shell) *cobra.Command {
	var path, key string
	var all bool
	cmd := &cobra.Command{
		Use:   "reset MODEL | --key KEY | --all",
		Short: "Reset the usage of a quota",
		Long: `Reset forgets the usage of a model or of a key, or with --all of all models and
keys. Quotas stay. A process that keeps a YAML file does not notice: it puts its
own numbers back when it writes the file.`,
		Example: `  zlimit quota reset gpt-4o
  zlimit quota reset --all --state limits.db`,
		RunE: func(cmd *cobra.Command, args []string) error {
			at, err := named(cmd, args, key)
			switch {
			case err != nil:
				return err
			case at != nil && all:
				return shell.Usagef("quota reset: --all excludes MODEL and --key")
			case at == nil && !all:
				return shell.Usagef("quota reset: MODEL, --key or --all is missing; see %s --help", cmd.CommandPath())
			}
			f, err := stateFileAt(sh, path)
			if err != nil {
				return err
			}
			return quotaReset(cmd.Context(), sh, f, at)
		},
	}
	stateFlag(cmd, &path)
	cmd.Flags().StringVar(&key, "key", "", "`KEY` to reset in place of a model")
	cmd.Flags().BoolVar(&all, "all", false, "reset all models and keys")
	return cmd
}

// quotaReset forgets the usage of a subject, or of all subjects when it is nil.
func quotaReset(ctx context.Context, sh *shell.Shell, f stateFile, at *subject) error {
	type result struct {
		quotaChange
		All       bool   `json:"all,omitempty"`
		Forgotten *int64 `json:"forgotten_requests,omitempty"` // of a model or key
	}
	r := result{quotaChange: f.change(at), All: at == nil}
	if err := f.exists(); err != nil {
		return err
	}
	err := f.edit(ctx, sh, func(l *quota.Limiter) error {
		if at == nil {
			return l.ResetAll(ctx)
		}
		stats, err := at.stats(ctx, l)
		if err != nil {
			return err
		}
		requests := max(stats.RPM, stats.RPD) // the minute may have begun before the day
		r.Forgotten = &requests
		return at.reset(ctx, l)
	})
	if err != nil {
		return err
	}
	return sh.Print(r, func(p *show.Page) {
		switch {
		case at == nil:
			p.Linef("%s: all usage is forgotten", f.path)
		case *r.Forgotten == 0:
			p.Linef("%s: there was no usage of %v", f.path, at)
		default:
			p.Linef("%s: the usage of %v is forgotten, %s requests", f.path, at, show.Grouped(*r.Forgotten))
		}
		footnotes(p, r.Notes)
	})
}

func setCommand(sh *shell.Shell) *cobra.Command {
	var path, key string
	var want quota.ModelQuota
	cmd := &cobra.Command{
		Use:   "set MODEL | --key KEY, --rpm N --tpm N --rpd N ...",
		Short: "Store a quota",
		Long: `Set stores limits of a model, or of a key over all models, in the state file,
which is created where it is missing. 0 is no limit. Limits that are not given
stay as in the file. They are unlimited where the file has no quota of the
name, also where processes have a default: a stored quota replaces it.

Processes that share a SQLite file obey immediately. A process that keeps a YAML
file obeys when it loads the file, and puts its own quotas back if it writes the
file before.`,
		Example: `  zlimit quota set gpt-4o --rpm 500 --tpm 30000
  zlimit quota set --key acme --tpd 1000000 --state limits.db`,
		RunE: func(cmd *cobra.Command, args []string) error {
			at, err := named(cmd, args, key)
			if err != nil {
				return err
			}
			if at == nil {
				return shell.Usagef("quota set: MODEL or --key is missing; see %s --help", cmd.CommandPath())
			}
			var given []quota.Limit
			for _, l := range quotaLimits {
				if !cmd.Flags().Changed(flagOf(l)) {
					continue
				}
				if n := *limitIn(&want, l); n < 0 {
					return shell.Usagef("quota set: --%s %d: must be 0, which is unlimited, or more", flagOf(l), n)
				}
				given = append(given, l)
			}
			if len(given) == 0 {
				return shell.Usagef("quota set: a limit such as --rpm is missing; see %s --help", cmd.CommandPath())
			}
			f, err := stateFileAt(sh, path)
			if err != nil {
				return err
			}
			return quotaSet(cmd.Context(), sh, f, *at, want, given)
		},
	}
	stateFlag(cmd, &path)
	cmd.Flags().StringVar(&key, "key", "", "`KEY` to limit in place of a model")
	for _, l := range quotaLimits {
		cmd.Flags().Int64Var(limitIn(&want, l), flagOf(l), 0, "`N` "+limitMeans[l])
	}
	return cmd
}

var limitMeans = map[quota.Limit]string{
	quota.LimitRPM:       "requests per minute",
	quota.LimitTPM:       "tokens per minute",
	quota.LimitRPD:       "requests per day",
	quota.LimitInputTPM:  "input tokens per minute",
	quota.LimitOutputTPM: "output tokens per minute",
	quota.LimitTPD:       "tokens per day",
}

func flagOf(l quota.Limit) string { return strings.ReplaceAll(l.String(), "_", "-") }

// quotaSet stores those limits of a quota that were given.
func quotaSet(ctx context.Context, sh *shell.Shell, f stateFile, at subject, want quota.ModelQuota, given []quota.Limit) error {
	var q quota.ModelQuota
	err := f.edit(ctx, sh, func(l *quota.Limiter) error {
		stats, err := at.stats(ctx, l)
		if err != nil {
			return err
		}
		if _, stored := split(stats); stored != notStored {
			q = stored
		}
		for _, limit := range given {
			*limitIn(&q, limit) = *limitIn(&want, limit)
		}
		return at.setQuota(ctx, l, q)
	})
	if err != nil {
		return err
	}
	type result struct {
		quotaChange
		Limits map[string]int64 `json:"limits"` // 0: unlimited
	}
	r := result{quotaChange: f.change(&at), Limits: map[string]int64{}}
	var rows [][]string
	for _, l := range quotaLimits {
		n := *limitIn(&q, l)
		r.Limits[l.String()] = n
		text := show.Grouped(n)
		if n == 0 {
			text = "unlimited"
		}
		rows = append(rows, []string{l.String(), text})
	}
	return sh.Print(r, func(p *show.Page) {
		p.Linef("%s: quota of %v", f.path, at)
		p.Table([]string{"limit", "max>"}, rows)
		footnotes(p, r.Notes)
	})
}

// A quotaChange is the part of a result that all changes have.
type quotaChange struct {
	State  string   `json:"state"`
	Format string   `json:"format"`
	Model  string   `json:"model,omitempty"`
	Key    string   `json:"key,omitempty"`
	Notes  []string `json:"notes"`
}

func (f *stateFile) change(at *subject) quotaChange {
	c := quotaChange{State: f.path, Format: f.format, Notes: []string{}}
	if f.format == quota.BackendYAML {
		c.Notes = append(c.Notes, "a running process that keeps this file puts its own numbers back when it writes it")
	}
	switch {
	case at == nil:
	case at.scope == quota.ScopeKey:
		c.Key = at.name
	default:
		c.Model = at.name
	}
	return c
}

func (f *stateFile) edit(ctx context.Context, sh *shell.Shell, change func(*quota.Limiter) error) (err error) {
	l, err := f.open(ctx, sh.Now())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	if err := change(l); err != nil {
		return err
	}
	return f.save(ctx, l)
}

func migrateCommand(sh *shell.Shell) *cobra.Command {
	return &cobra.Command{
		Use:   "migrate YAML SQLITE",
		Short: "Copy a YAML state file to an SQLite file",
		Long: `Migrate copies quotas and usage of a YAML file to an SQLite file, which is
created if it is missing. The usage replaces all usage of the SQLite file, and
quotas replace quotas of the same names, so a second run gives the same result.
Do not run it again once processes have counted in the SQLite file. The YAML
file stays as it is.`,
		Example: `  zlimit quota migrate ~/.core/ratelimits.yaml ~/.core/ratelimits.db`,
		Args:    shell.Takes("YAML", "SQLITE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			for i, name := range []string{"YAML", "SQLITE"} {
				if args[i] == "" {
					return shell.Usagef("quota migrate: %s must not be empty", name)
				}
			}
			return quotaMigrate(cmd.Context(), sh, args[0], args[1])
		},
	}
}

func quotaMigrate(ctx context.Context, sh *shell.Shell, from, to string) error {
	target := stateFile{path: to, format: quota.BackendSQLite}
	head, err := target.stat()
	if err != nil {
		return fmt.Errorf("read state: %w", err)
	}
	if len(head) > 0 && string(head) != sqliteMagic {
		return fmt.Errorf("%s is there, and is not an SQLite file", to)
	}
	if err := target.refuseStranger(ctx); err != nil {
		return err
	}
	if err := quota.MigrateYAMLToSQLite(ctx, from, to); err != nil {
		return err
	}
	st, err := target.read(ctx, sh.Now())
	if err != nil {
		return err
	}
	type result struct {
		YAML   string `json:"yaml"`
		SQLite string `json:"sqlite"`
		Quotas int    `json:"quotas"` // models and keys that have one
		Usage  int    `json:"usage"`  // models and keys that have some
	}
	r := result{from, to, len(st.Quotas) + len(st.KeyQuotas), len(st.State) + len(st.KeyState)}
	return sh.Print(r, func(p *show.Page) {
		p.Linef("%s is copied to %s, which has quotas of %d models and keys, and usage of %d",
			from, to, r.Quotas, r.Usage)
	})
}
