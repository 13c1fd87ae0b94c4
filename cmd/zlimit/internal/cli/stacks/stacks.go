package stacks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/stack"
	"github.com/zlimit/zlimit-go/zlimit"
)

// find adds to the error of a stack that there is none of, what to do about it.
func find(err error, name string) error {
	if errors.Is(err, stack.ErrNotFound) {
		return fmt.Errorf("there is no stack %s; zlimit stack list shows those that there are", name)
	}
	return err
}

func statusCommand(sh *shell.Shell) *cobra.Command {
	var f stackFlags
	var drift bool
	var watch time.Duration
	cmd := &cobra.Command{
		Use:   "status --name NAME",
		Short: "Show the state of a deployment",
		Long: `Status shows a stack, its table, how far the aggregator is behind, dead letters,
alarms and versions. With --drift CloudFormation looks for what was changed past
it, which may take minutes. A look-up that fails is said, and the others go on;
then the exit code is 1. It is 4 where there is something to look at: a stack
that is not complete, a mapping that is not enabled, dead letters, alarms or
drift. With --watch it shows all that again and again until an interrupt, which
ends it with exit code 0. A look that fails then ends nothing: status shows the
error, and how old the last page is.`,
		Example: `  zlimit stack status --name limits
  zlimit stack status --name limits --drift -o json
  zlimit stack status --name limits --watch 30s`,
		Args: shell.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("watch") && (watch < time.Second || watch > time.Hour) {
				return shell.Usagef("status: --watch %v must be from 1s to 1h", watch)
			}
			m, err := stacks(cmd.Context(), sh, &f)
			if err != nil {
				return err
			}
			if watch == 0 {
				return find(status(cmd.Context(), sh, m, f.name, drift), f.name)
			}
			return watchStatus(cmd.Context(), sh, m, f.name, drift, watch)
		},
	}
	f.existing(cmd)
	cmd.Flags().DurationVar(&watch, "watch", 0, "show it again after this `time`, until an interrupt")
	cmd.Flags().BoolVar(&drift, "drift", false, "look for changes past CloudFormation")
	return cmd
}

// watchStatus shows a stack again and again. It returns an error where the first look finds no stack.
func watchStatus(ctx context.Context, sh *shell.Shell, m *stack.Manager, name string, drift bool, pause time.Duration) error {
	var shown time.Time
	for {
		failed := &shownError{}
		err := status(ctx, sh, m, name, drift)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // an interrupt is how it ends
		case err == nil, errors.Is(err, shell.ErrDiffers):
			shown = sh.Now()
		case errors.As(err, &failed):
			shown = sh.Now()
			sh.Note("zlimit: " + err.Error())
		case shown.IsZero() && errors.Is(err, stack.ErrNotFound):
			return find(err, name)
		case shown.IsZero():
			sh.Note(fmt.Sprintf("zlimit: %s  this look failed, and none has succeeded yet: %s", sh.Now().UTC().Format(time.DateTime), shell.Explain(err)))
		default:
			sh.Note(fmt.Sprintf("zlimit: %s  this look failed, and the last page is %v old: %s",
				sh.Now().UTC().Format(time.DateTime), sh.Now().Sub(shown).Round(time.Second), shell.Explain(err)))
		}
		if sh.Sleep(ctx, pause) != nil {
			return nil //nolint:nilerr // as above
		}
	}
}

// A shownError is that of look-ups that failed, on a page that is shown.
type shownError struct{ failed []string }

// Error names the look-ups.
func (e *shownError) Error() string { return "look-ups failed: " + strings.Join(e.failed, "; ") }

// status shows a stack, and returns what its exit code is about.
func status(ctx context.Context, sh *shell.Shell, m *stack.Manager, name string, drift bool) error {
	st, err := m.Status(ctx, name, drift)
	if err != nil {
		return err
	}
	told := struct {
		*stack.Status
		Findings []string `json:"findings"`
	}{st, append([]string{}, st.Findings()...)}
	if err := sh.Print(told, func(p *show.Page) { statusPage(p, st, drift) }); err != nil {
		return err
	}
	switch {
	case len(st.Failed) > 0:
		return &shownError{st.Failed}
	case len(told.Findings) > 0:
		return shell.ErrDiffers
	default:
		return nil
	}
}

func statusPage(p *show.Page, st *stack.Status, drift bool) {
	line := func(what, text string) { p.Linef("%-13s %s", what, text) }
	line("Stack", st.Stack+"  "+st.Status)
	line("Version", cmp.Or(st.Deployed, "nothing")+" is deployed, this is "+st.Version)
	if t := st.Table; t != nil {
		protected := "not protected"
		if t.Protected {
			protected = "protected"
		}
		line("Table", fmt.Sprintf("%s  %s, %s, about %s items, %s bytes", t.Name, t.Status, protected, show.Grouped(t.Items), show.Grouped(t.Bytes)))
	}
	if s := st.Stream; s != nil {
		lag := "no recent changes"
		if s.Known {
			lag = "behind by " + s.Lag.Round(100*time.Millisecond).String() + " at most"
		}
		line("Aggregator", strings.TrimSpace(s.State+"  "+lag))
	}
	if st.Dead != nil {
		line("Dead letters", show.Grouped(*st.Dead))
	}
	for _, a := range st.Alarms {
		line("Alarm", a.Name+"  "+a.State)
	}
	for _, d := range st.Drift {
		line("Drift", strings.TrimSpace(d.Resource+"  "+d.Status+"  "+strings.Join(d.Properties, ", ")))
	}
	if drift && len(st.Drift) == 0 && len(st.Failed) == 0 {
		line("Drift", "none")
	}
	for _, finding := range st.Findings() {
		line("Look at", finding)
	}
}

func listCommand(sh *shell.Shell) *cobra.Command {
	var f stackFlags
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the deployments of a region",
		Long: `List shows the stacks of zlimit in an account and region, by their tag. It also
shows stacks of early releases of zae-limiter, by the prefix of their names.`,
		Example: `  zlimit stack list --region eu-central-1`,
		Args:    shell.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			m, err := stacks(cmd.Context(), sh, &f)
			if err != nil {
				return err
			}
			stacks, err := m.List(cmd.Context())
			if err != nil {
				return err
			}
			l := shell.Listing[stack.Listed]{Value: stacks, Rows: stacks, None: "there are no stacks", Columns: []show.Column[stack.Listed]{
				show.Text("name", func(s stack.Listed) string { return s.Name }),
				show.Text("status", func(s stack.Listed) string { return s.Status }),
				show.Text("version", func(s stack.Listed) string { return s.Version }),
				show.Text("table", func(s stack.Listed) string { return s.Table }),
				show.Instant("created", func(t time.Time) string { return t.UTC().Format(time.DateTime) }, func(s stack.Listed) time.Time { return s.Created }),
			}}
			return l.Print(sh)
		},
	}
	f.where(cmd)
	sh.ListFlag(cmd)
	return cmd
}

func deleteCommand(sh *shell.Shell) *cobra.Command {
	var f stackFlags
	var yes, data bool
	var confirmed string
	cmd := &cobra.Command{
		Use:   "delete --name NAME",
		Short: "Delete a deployment; its table and archive stay",
		Long: `Delete deletes a stack. The table and the bucket stay, and a later deploy of the
same name takes the table over. With --delete-data they go too, with all limits,
balances, usage and archived events: then the name must be typed, or given by
--confirm. It can be repeated after an interrupt.`,
		Example: `  zlimit stack delete --name limits
  zlimit stack delete --name limits --delete-data --confirm limits`,
		Args: shell.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if confirmed != "" && (!data || confirmed != f.name) {
				return shell.Usagef("--confirm %s: goes with --delete-data, and repeats --name", confirmed)
			}
			m, err := stacks(cmd.Context(), sh, &f)
			if err != nil {
				return err
			}
			confirm := func(d *stack.Deletion) (bool, error) { return shell.Agreed(confirmDeletion(sh, d, yes, confirmed)) }
			d, err := m.Delete(cmd.Context(), f.name, data, confirm, func(e stack.Event) {
				if !sh.Output.JSON {
					_ = sh.Write(eventPage(e)) // what cannot be shown is done all the same
				}
			})
			switch {
			case errors.Is(err, stack.ErrDeclined):
				return shell.ErrDeclined
			case err != nil:
				return find(err, f.name)
			}
			return sh.Print(d, func(p *show.Page) {
				p.Linef("%s is deleted", d.Stack)
				if !data && d.Table != "" {
					p.Linef("its table %s stays; zlimit stack deploy takes it over", d.Table)
				}
				if !data && d.Bucket != "" {
					p.Linef("its bucket %s stays", d.Bucket)
				}
			})
		},
	}
	f.existing(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&yes, "yes", false, "do not ask, except --delete-data")
	flags.BoolVar(&data, "delete-data", false, "delete table and bucket too")
	flags.StringVar(&confirmed, "confirm", "", "`name` of the stack, in place of typing it")
	return cmd
}

// confirmDeletion asks whether something may be deleted; for data the name of the stack is to be typed.
func confirmDeletion(sh *shell.Shell, d *stack.Deletion, yes bool, confirmed string) error {
	if !d.Data {
		return sh.Confirm(fmt.Sprintf("Delete stack %s, and keep its table with about %s items?", d.Stack, show.Grouped(d.Items)), yes)
	}
	return sh.ConfirmName(fmt.Sprintf("Delete stack %s, table %s with about %s items, and bucket %s with all that is in it.\nType the name of the stack:",
		d.Stack, d.Table, show.Grouped(d.Items), d.Bucket), d.Stack, confirmed)
}

func checkCommand(sh *shell.Shell) *cobra.Command {
	var f stackFlags
	cmd := &cobra.Command{
		Use:   "check --name NAME",
		Short: "Check whether this version fits a deployment",
		Long: `Check compares this version with the one that deployed a stack. Exit codes: 0
they are the same, 4 this one is later and zlimit stack upgrade brings it there,
1 this one is too old, or there is no such stack. It also lists the versions
that the stack's bucket keeps, to which zlimit stack deploy --version goes back.`,
		Example: `  zlimit stack check --name limits`,
		Args:    shell.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			m, err := stacks(cmd.Context(), sh, &f)
			if err != nil {
				return err
			}
			c, err := m.Check(cmd.Context(), f.name)
			if err != nil {
				return find(err, f.name)
			}
			versions, err := m.Versions(cmd.Context(), f.name)
			if err != nil {
				sh.Note("note: the versions to go back to are not known: " + err.Error())
			}
			told := struct {
				*stack.Check
				Back []string `json:"versions,omitempty"` // that deploy --version takes, the latest deployment first
			}{c, versions}
			if err := sh.Print(told, func(p *show.Page) {
				p.Linef("%s has version %s, this is %s: %s", c.Stack, c.Deployed, c.Version, c.Verdict)
				if len(versions) > 0 {
					p.Linef("its bucket keeps %s; zlimit stack deploy --version goes back to one", strings.Join(versions, ", "))
				}
				if c.Oldest != "" {
					p.Linef("its table is for programs from version %s on", c.Oldest)
				}
			}); err != nil {
				return err
			}
			switch c.Verdict {
			case stack.VerdictCompatible:
				return nil
			case stack.VerdictUpgradable:
				return shell.ErrUpgrade
			default:
				return fmt.Errorf("version %s is too old for %s", zlimit.Version, f.name)
			}
		},
	}
	f.existing(cmd)
	return cmd
}

func upgradeCommand(sh *shell.Shell) *cobra.Command {
	var f stackFlags
	var yes bool
	var code string
	cmd := &cobra.Command{
		Use:   "upgrade --name NAME",
		Short: "Upgrade a deployment to this version, with its settings",
		Long: `Upgrade brings the template and the function's code of a stack to this version,
and changes no setting. It never goes
back: a stack of a later version is refused.
Upgrade the stack before the programs that use it.`,
		Example: `  zlimit stack upgrade --name limits --yes`,
		Args:    shell.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			m, err := stacks(ctx, sh, &f)
			if err != nil {
				return err
			}
			c, err := m.Check(ctx, f.name)
			if err != nil {
				return find(err, f.name)
			}
			o := stack.Options{Name: f.name}
			if c.Functions {
				if o.Code, err = codeOf(ctx, sh, code); err != nil {
					return err
				}
			}
			return deploy(ctx, sh, &f, o, execution{yes: yes})
		},
	}
	f.existing(cmd)
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.Flags().StringVar(&code, "code", "", "zip `file` of the function")
	return cmd
}
