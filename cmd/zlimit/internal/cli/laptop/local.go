// Package laptop has the command local, which runs all of zlimit on one machine.
package laptop

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/local"
	"github.com/zlimit/zlimit-go/internal/tool/engine"
)

// Command returns the command local.
func Command(sh *shell.Shell) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "local",
		Short: "Run a deployment on this machine, for development",
		Long: `Local runs what a deployment in AWS has on this machine, in the background: a
DynamoDB engine, the table, the aggregator behind its stream, and sweeps of
expired items. It needs Linux; elsewhere a store in a file, sqlite:PATH, needs
nothing at all.

The engine is a pinned release of dynoxide for Linux on x86-64. npm downloads it
at first, and its hash is checked. --engine names another program. Data stays in
the directory until it is deleted.`,
		Example: `  zlimit local up
  zlimit local down`,
		Args: shell.NoSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	var dir string
	cmd.PersistentFlags().StringVar(&dir, "dir", "", "`directory` of data and log (default one of this user)")
	where := func() (string, error) {
		if local.Supported != nil {
			return "", local.Supported
		}
		if dir != "" {
			return filepath.Abs(dir)
		}
		base := sh.Env("XDG_STATE_HOME")
		if home := sh.Env("HOME"); base == "" && home != "" {
			base = filepath.Join(home, ".local", "state")
		}
		if base == "" {
			return "", shell.Usagef("there is no home directory: --dir says where data and log are to be")
		}
		return filepath.Join(base, "zlimit", "local"), nil
	}
	cmd.AddCommand(upCommand(sh, where), serveCommand(sh, where), downCommand(sh, where), statusCommand(sh, where), logsCommand(sh, where), envCommand(sh, where))
	return cmd
}

// errNotUp ends a command about a deployment that does not run.
var errNotUp = errors.New("nothing runs here; zlimit local up starts it")

// standing returns the reason why an existing deployment serves nothing, nil for one that serves.
func standing(ctx context.Context, s *local.State) error {
	if why := s.Stands(ctx); why != "" {
		return errors.New(why)
	}
	return nil
}

type whereFunc = func() (string, error)

// found returns the directory and the deployment that runs there.
func found(where whereFunc) (dir string, s *local.State, err error) {
	if dir, err = where(); err != nil {
		return "", nil, err
	}
	if s, err = local.Find(dir); err == nil && s == nil {
		err = errNotUp
	}
	return dir, s, err
}

func upCommand(sh *shell.Shell, where whereFunc) *cobra.Command {
	var path, table string
	var port uint16
	var every time.Duration
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start engine, table and aggregator in the background",
		Long: `Up starts a deployment on this machine, and returns once it can be used. One
that runs already stays as it is.`,
		Example: `  zlimit local up
  eval "$(zlimit local env)"
  zlimit local up --engine ./dynoxide --port 8000`,
		Args: shell.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkTable(table); err != nil {
				return err
			}
			if every < time.Second {
				return shell.Usagef("--sweep %v: must be a second or more", every)
			}
			dir, err := where()
			if err != nil {
				return err
			}
			if path, err = enginePath(sh, path); err != nil {
				return err
			}
			command, err := program(sh)
			if err != nil {
				return err
			}
			command = append(command, "local", "serve", "--dir", dir, "--engine", path, "--table", table, "--port", strconv.Itoa(int(port)), "--sweep", every.String())
			s, started, err := local.Up(cmd.Context(), dir, command)
			if err != nil {
				return fmt.Errorf("start a deployment in %s: %w", dir, err)
			}
			if !started {
				if err := standing(cmd.Context(), s); err != nil {
					return err
				}
			}
			return sh.Print(s, func(p *show.Page) {
				if !started {
					p.Linef("runs already, as process %d", s.PID)
				}
				p.Linef("table %s at %s", s.Table, s.Endpoint)
				env := "zlimit local env"
				if cmd.Flags().Changed("dir") {
					env += " --dir '" + dir + "'"
				}
				p.Linef("for a shell: eval \"$(%s)\"", env)
			})
		},
	}
	serveFlags(cmd, &path, &table, &port, &every)
	return cmd
}

func serveFlags(cmd *cobra.Command, path, table *string, port *uint16, every *time.Duration) {
	flags := cmd.Flags()
	flags.StringVar(path, "engine", "", "`path` of a dynoxide (default the pinned release)")
	flags.StringVar(table, "table", "limits", "`name` of the table")
	flags.Uint16Var(port, "port", 0, "`port` of the engine (default the last one)")
	flags.DurationVar(every, "sweep", 10*time.Second, "`time` between sweeps of expired items")
}

// tableName is what DynamoDB takes for the name of a table.
var tableName = regexp.MustCompile(`^[a-zA-Z0-9_.-]{3,255}$`)

func checkTable(name string) error {
	if !tableName.MatchString(name) {
		return shell.Usagef("--table %s: must have 3 to 255 letters, digits, _, - and .", name)
	}
	return nil
}

// enginePath returns the path of the engine's program: the one that was named, or the pinned one.
func enginePath(sh *shell.Shell, path string) (string, error) {
	if path != "" {
		info, err := os.Stat(path)
		switch {
		case err != nil:
			return "", shell.Usagef("--engine: %v", err)
		case !info.Mode().IsRegular() || info.Mode()&0o111 == 0:
			return "", shell.Usagef("--engine %s: is no program", path)
		}
		return filepath.Abs(path)
	}
	cache := sh.Env("XDG_CACHE_HOME")
	if home := sh.Env("HOME"); cache == "" && home != "" {
		cache = filepath.Join(home, ".cache")
	}
	if cache == "" {
		return "", shell.Usagef("there is no home directory for the engine: --engine names a dynoxide")
	}
	path, err := engine.Install(filepath.Join(cache, "zlimit", "engine"))
	if errors.Is(err, engine.ErrNone) {
		return "", shell.Usagef("%v: --engine names a dynoxide %s; a store in a file needs none: --store sqlite:limits.db", err, engine.Version)
	}
	return path, err
}

// program returns how this program is run.
func program(sh *shell.Shell) ([]string, error) {
	if sh.Self != nil {
		return sh.Self, nil
	}
	path, err := os.Executable()
	return []string{path}, err
}

// serveCommand is what up starts. A person may start it too, such as a container.
func serveCommand(sh *shell.Shell, where whereFunc) *cobra.Command {
	c := local.Config{Log: sh.Stderr}
	var port uint16
	cmd := &cobra.Command{
		Use:     "serve",
		Short:   "Run engine, table and aggregator until interrupted",
		Long:    `Serve runs in the foreground what up starts in the background.`,
		Example: `  zlimit local serve`,
		Args:    shell.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if err = checkTable(c.Table); err == nil {
				c.Dir, err = where()
			}
			if err == nil {
				c.Engine, err = enginePath(sh, c.Engine)
			}
			if err == nil {
				c.Port = int(port)
				err = local.Serve(cmd.Context(), c)
			}
			return err
		},
	}
	serveFlags(cmd, &c.Engine, &c.Table, &port, &c.Sweep)
	return cmd
}

func downCommand(sh *shell.Shell, where whereFunc) *cobra.Command {
	var data bool
	cmd := &cobra.Command{
		Use:   "down",
		Short: "End what up has started",
		Long: `Down ends the process that up has started, and waits until it has ended. Before
it makes sure that the process is the engine, and not another with its number.`,
		Example: `  zlimit local down
  zlimit local down --delete-data`,
		Args: shell.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := where()
			if err != nil {
				return err
			}
			s, err := local.Down(cmd.Context(), dir)
			if err == nil && data {
				err = local.DeleteData(dir)
			}
			if err != nil {
				return err
			}
			type result struct {
				Ended       bool `json:"ended"`
				DataDeleted bool `json:"data_deleted"`
			}
			return sh.Print(result{s != nil, data}, func(p *show.Page) {
				if s == nil {
					p.Linef("nothing ran")
				} else {
					p.Linef("process %d has ended", s.PID)
				}
				if data {
					p.Linef("the data is deleted")
				}
			})
		},
	}
	cmd.Flags().BoolVar(&data, "delete-data", false, "delete the data too")
	return cmd
}

func statusCommand(sh *shell.Shell, where whereFunc) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show what runs",
		Long: `Status shows what up has started. When nothing runs the exit code is 1, and also
when its process is stopped by a signal, or its engine does not answer.`,
		Example: `  zlimit local status`,
		Args:    shell.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, s, err := found(where)
			if err != nil {
				return err
			}
			err = sh.Print(s, func(p *show.Page) {
				p.Linef("%-10s %d, since %s", "Process", s.PID, s.Since.Format(time.DateTime))
				p.Linef("%-10s %s", "Store", s.Store())
				p.Linef("%-10s %s", "Engine", s.Engine)
				p.Linef("%-10s %s", "Log", local.LogPath(dir))
			})
			return errors.Join(err, standing(cmd.Context(), s))
		},
	}
}

func logsCommand(sh *shell.Shell, where whereFunc) *cobra.Command {
	var follow bool
	cmd := &cobra.Command{
		Use:   "logs",
		Short: "Print the log of engine and aggregator",
		Long: `Logs prints the log since the last up; with --follow also what comes, until
it is interrupted.`,
		Example: `  zlimit local logs --follow`,
		Args:    shell.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			dir, err := where()
			if err != nil {
				return err
			}
			f, err := os.Open(local.LogPath(dir))
			if errors.Is(err, os.ErrNotExist) {
				return errNotUp
			} else if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, f.Close()) }()
			for {
				if _, err := io.Copy(sh.Stdout, f); err != nil {
					return fmt.Errorf("print the log: %w", err)
				}
				if !follow || sh.Sleep(cmd.Context(), 200*time.Millisecond) != nil {
					return nil
				}
			}
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "wait for more")
	return cmd
}

func envCommand(sh *shell.Shell, where whereFunc) *cobra.Command {
	return &cobra.Command{
		Use:   "env",
		Short: "Print the environment for programs, as a shell reads it",
		Long:  `Env prints the variables by which the command and other programs find the table.`,
		Example: `  zlimit local env
  eval "$(zlimit local env)"`,
		Args: shell.Takes(),
		RunE: func(*cobra.Command, []string) error {
			_, s, err := found(where)
			if err != nil {
				return err
			}
			return sh.Print(s.Environment(), func(p *show.Page) {
				for _, v := range s.Environment() {
					p.Linef("export '%s'", v)
				}
			})
		},
	}
}
