package limits

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/budgets"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/internal/declaration"
	"github.com/zlimit/zlimit-go/internal/deploy/provision"
	"github.com/zlimit/zlimit-go/internal/document"
	"github.com/zlimit/zlimit-go/internal/tool/atomicfile"
	"github.com/zlimit/zlimit-go/zlimit"
)

// maxManager is the most bytes of the name of a manager.
const maxManager = 256

// A limitsFile is the file of a command, and its declarations.
type limitsFile struct {
	path      string
	manager   string // the path says which, if it is empty
	take      bool   // the levels of another manager
	firstLine string
	text      []byte // all of it
	declared  *declaration.Declaration
	levels    []zlimit.Stored
}

func (f *limitsFile) flag(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&f.path, "file", "f", "", "`FILE` of limits; - for the standard input")
}

// managerFlags adds the flags of a file that is to be applied.
func (f *limitsFile) managerFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.manager, "manager", "", "`name` of the manager (default the file's)")
	cmd.Flags().BoolVar(&f.take, "take-over", false, "take over the levels of another manager")
}

func (f *limitsFile) managed(p *provision.Provisioner) *provision.Provisioner {
	p.ManagedBy(f.managedBy(), f.take)
	return p
}

// managedBy returns who manages the levels. A file is known by its name alone: its directory differs from machine to machine.
func (f *limitsFile) managedBy() string {
	if f.manager != "" {
		return f.manager
	}
	return "file:" + filepath.Base(f.path)
}

// load reads the file. The namespace that it names is the one to work in.
func (f *limitsFile) load(sh *shell.Shell, cmd *cobra.Command) error {
	if len(f.manager) > maxManager || strings.ContainsFunc(f.manager, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return shell.Usagef("--manager %q: must have at most %d printable characters", f.manager, maxManager)
	}
	if f.path == "" {
		return shell.Usagef("limits %s: --file is missing; see %s --help", cmd.Name(), cmd.CommandPath())
	}
	text, err := readFile(sh, f.path)
	if err != nil {
		return err
	}
	if f.declared, err = declaration.Load(f.path, text); err != nil {
		return err
	}
	f.levels, f.text = provision.Declared(f.declared), text
	f.firstLine, _, _ = strings.Cut(strings.ReplaceAll(string(text), "\r\n", "\n"), "\n")
	if name := f.declared.Namespace; name != "" {
		if cmd.Flags().Changed("namespace") && name != sh.Namespace {
			return f.errorf("namespace is %q, but --namespace says %q", name, sh.Namespace)
		}
		sh.Namespace = name
	}
	return nil
}

// errorf returns an error at the place of the namespace in the file.
func (f *limitsFile) errorf(format string, args ...any) error {
	return document.Errors{{File: f.path, Pos: f.declared.NamespacePos, Text: fmt.Sprintf(format, args...)}}
}

// explain says where the file names a namespace that is not registered, and how to take levels over.
func (f *limitsFile) explain(err error) error {
	if scaled, ok := errors.AsType[*provision.ScaledError](err); ok {
		return fmt.Errorf("limits apply: %w; zlimit limits scale 1 -f %s restores those first, with --rebuild if that file is lost, "+
			"and --undo-scaling applies the file all the same", err, scaled.Scalings[0].File)
	}
	if errors.As(err, new(*provision.ManagedError)) {
		return fmt.Errorf("%w; --take-over takes them over", err)
	}
	if !errors.Is(err, zlimit.ErrNamespaceNotFound) || f.declared == nil || f.declared.Namespace == "" {
		return err
	}
	return f.errorf("namespace %q is not registered; zlimit limits apply --create-namespace registers it", f.declared.Namespace)
}

func readFile(sh *shell.Shell, path string) ([]byte, error) {
	if path == "-" {
		return io.ReadAll(sh.Stdin)
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return nil, shell.Usagef("%s: a directory, not a file of limits", path)
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, shell.Usagef("%v", err)
	}
	return text, err
}

// provisioning is the work of a command on the limits of a namespace.
func provisioning[T any](sh *shell.Shell, do func(context.Context, *provision.Provisioner) (T, error)) shell.Operation[T] {
	return func(ctx context.Context, l *zlimit.RateLimiter) (T, error) {
		return do(ctx, provision.New(l, sh.Namespace, sh.Now))
	}
}

func planCommand(sh *shell.Shell) *cobra.Command {
	var file limitsFile
	var out string
	var create bool
	cmd := &cobra.Command{
		Use:   "plan -f FILE [--out PLAN]",
		Short: "Show what applying a file would change",
		Long: `Plan compares a file with the stored limits, and shows what zlimit limits apply
would change: each limit as it is and as it will be, and who has changed what
the file manages by other means. Levels that the file never had are listed, and
stay as they are. It writes nothing but PLAN, which apply takes.

Exit codes: 0 no stored level is to change, 4 one is, 2 bad input, 1 failure. A
plan that only takes levels over, as they are, exits with 0.`,
		Example: `  zlimit limits plan -f limits.yaml
  zlimit limits plan -f limits.yaml --out limits.plan
  zlimit limits plan -f limits.yaml -o json`,
		Args: shell.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			plan, err := planFile(sh, cmd, &file, create)
			if err != nil {
				return err
			}
			if out != "" {
				if err := writePlan(out, plan); err != nil {
					return err
				}
			}
			if err := sh.Print(plan, func(p *show.Page) { printPlan(p, plan) }); err != nil {
				return err
			}
			if err := noteRotated(cmd.Context(), sh, plan); err != nil {
				return err
			}
			if plan.Changing() {
				return shell.ErrDiffers
			}
			return nil
		},
	}
	file.flag(cmd)
	file.managerFlags(cmd)
	cmd.Flags().StringVar(&out, "out", "", "write the plan to a `file`, for apply --plan")
	cmd.Flags().BoolVar(&create, "create-namespace", false, "plan for a namespace that is not registered yet, too")
	return cmd
}

// planFile returns the plan of a file. A namespace that is to be created has nothing in it.
func planFile(sh *shell.Shell, cmd *cobra.Command, file *limitsFile, create bool) (*provision.Plan, error) {
	if err := file.load(sh, cmd); err != nil {
		return nil, err
	}
	plan, err := planOf(cmd.Context(), sh, file)
	if create && errors.Is(err, zlimit.ErrNamespaceNotFound) {
		return provision.Fresh(sh.Namespace, file.managedBy(), file.levels)
	}
	return plan, file.explain(err)
}

func planOf(ctx context.Context, sh *shell.Shell, file *limitsFile) (*provision.Plan, error) {
	dsn, err := sh.Lasting()
	if err != nil {
		return nil, err
	}
	if err := sh.CheckFile(dsn); err != nil {
		if !errors.Is(err, zlimit.ErrTableNotFound) || sh.Namespace != zlimit.DefaultNamespace {
			return nil, err
		}
		sh.Note("note: " + dsn + " is not there yet; apply makes it, as every command that sets limits does")
		return provision.Fresh(sh.Namespace, file.managedBy(), file.levels)
	}
	return shell.Perform(ctx, sh, dsn, provisioning(sh, func(ctx context.Context, p *provision.Provisioner) (*provision.Plan, error) {
		return file.managed(p).Plan(ctx, file.levels)
	}))
}

// planFormat is the first number in a file with a plan.
const planFormat = 1

type savedPlan struct {
	Format int             `json:"zlimit_plan"`
	Plan   *provision.Plan `json:"plan"`
}

func writePlan(path string, plan *provision.Plan) error {
	err := mayReplace(path, "a plan", func(text []byte) bool {
		var saved savedPlan
		return json.Unmarshal(text, &saved) == nil && saved.Format != 0
	})
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(savedPlan{planFormat, plan}, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(path, append(text, '\n'))
}

// mayReplace returns an error unless a new file may take its place at a path. It may replace nothing, an empty file,
// or one of its own kind. The limits themselves are easily named by mistake.
func mayReplace(path, kind string, is func([]byte) bool) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
		return nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if len(text) > 0 && !is(text) {
		return shell.Usagef("%s: is there already, and is not %s: it is not replaced", path, kind)
	}
	return nil
}

func readPlan(sh *shell.Shell, path string) (*provision.Plan, error) {
	text, err := readFile(sh, path)
	if err != nil {
		return nil, err
	}
	var saved savedPlan
	if err := json.Unmarshal(text, &saved); err != nil || saved.Format != planFormat || saved.Plan == nil {
		return nil, shell.Usagef("%s: is not a plan that zlimit limits plan --out has written", path)
	}
	if err := saved.Plan.Validate(); err != nil {
		return nil, shell.Usagef("%s: %v", path, err)
	}
	return saved.Plan, nil
}

func applyCommand(sh *shell.Shell) *cobra.Command {
	var file limitsFile
	var planned string
	var yes, create, all, undo bool
	var lockTimeout time.Duration
	cmd := &cobra.Command{
		Use:   "apply {-f FILE | --plan PLAN} [--yes]",
		Short: "Apply a file of limits",
		Long: `Apply shows the plan, asks, and changes the stored limits so that they are those
of a file. Former levels of the file are deleted; levels that it never had stay.
One apply at a time works on a namespace: another one fails, or waits with
--lock-timeout. With --yes it plans again where the other one changed what it
planned.

With --plan it applies a plan written by zlimit limits plan --out, without
asking. It refuses when anything that the plan is about has changed since.
Where all is as the plan wants it already, it does nothing.

A raised budget holds from its next period on. The output says what is left
until then, and names the top-up that adds the difference. On a terminal it has
the first 20 levels; --all shows all of them, as a pipe and -o json do. For each
level it reads the bucket, the levels above it, and audit events of the period.

It refuses to undo zlimit limits scale, unless --undo-scaling is given: a factor
of 1 restores the limits first.

An apply that was interrupted is finished by running it again. What it had done
is recorded; where it was killed, its lock expires after a minute.`,
		Example: `  zlimit limits apply -f limits.yaml
  zlimit limits apply -f limits.yaml --yes
  zlimit limits apply --plan limits.plan`,
		Args: shell.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case file.path != "" && planned != "":
				return shell.Usagef("limits apply: --plan excludes --file: the plan has what the file declared")
			case file.path == "" && planned == "":
				return shell.Usagef("limits apply: --file or --plan is missing; see %s --help", cmd.CommandPath())
			case planned != "" && (file.manager != "" || file.take):
				return shell.Usagef("limits apply: --plan excludes --manager and --take-over: the plan has what they said")
			case lockTimeout < 0:
				return shell.Usagef("--lock-timeout %v: must not be negative", lockTimeout)
			}
			var plan *provision.Plan
			var err error
			if planned != "" {
				if plan, err = readPlan(sh, planned); err == nil {
					err = adoptNamespace(sh, cmd, plan, planned)
				}
			} else {
				plan, err = planFile(sh, cmd, &file, create)
			}
			if err != nil {
				return err
			}
			if !undo {
				if err := plan.Undoes(); err != nil {
					return file.explain(err)
				}
			}
			if planned == "" && !plan.Empty() {
				if err := showPlan(sh, plan); err != nil {
					return err
				}
				if err := sh.Confirm("Apply?", yes); err != nil {
					return err
				}
			}
			how := applying{create: create, undo: undo, all: all || !sh.Live || sh.Output.JSON, lockTimeout: lockTimeout}
			waited, err := apply(cmd.Context(), sh, plan, &how)
			for waited && yes && planned == "" && errors.Is(err, provision.ErrStale) {
				// The other apply has changed the levels of the plan, and no one has agreed to a plan of the new ones.
				if plan, err = planAgain(cmd.Context(), sh, &file); err != nil {
					return err
				}
				waited, err = apply(cmd.Context(), sh, plan, &how)
			}
			return file.explain(err)
		},
	}
	file.flag(cmd)
	file.managerFlags(cmd)
	cmd.Flags().StringVar(&planned, "plan", "", "apply the plan in a `file`")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.Flags().BoolVar(&create, "create-namespace", false, "register the namespace if it is not")
	cmd.Flags().BoolVar(&undo, "undo-scaling", false, "undo zlimit limits scale")
	cmd.Flags().BoolVar(&all, "all", false, "show the budgets of all levels, on a terminal too")
	cmd.Flags().DurationVar(&lockTimeout, "lock-timeout", 0, "`time` to wait while another apply runs")
	return cmd
}

func showPlan(sh *shell.Shell, plan *provision.Plan) error {
	p := &show.Page{}
	printPlan(p, plan)
	return sh.ToPeople(p)
}

// planAgain plans a file that is read already, and shows the plan.
func planAgain(ctx context.Context, sh *shell.Shell, file *limitsFile) (*provision.Plan, error) {
	plan, err := planOf(ctx, sh, file)
	if err != nil {
		return nil, file.explain(err)
	}
	return plan, showPlan(sh, plan)
}

// adoptNamespace sets the namespace of the command to that of a plan.
func adoptNamespace(sh *shell.Shell, cmd *cobra.Command, plan *provision.Plan, path string) error {
	if cmd.Flags().Changed("namespace") && plan.Namespace != sh.Namespace {
		return shell.Usagef("%s: is for namespace %q, but --namespace says %q", path, plan.Namespace, sh.Namespace)
	}
	sh.Namespace = plan.Namespace
	return nil
}

// An applying is how a plan is applied.
type applying struct {
	create      bool // the namespace
	undo        bool // a scaling
	all         bool // budgets of all levels are shown
	lockTimeout time.Duration
}

// apply applies a plan, and prints the changes. It also returns whether it has waited for another apply.
func apply(ctx context.Context, sh *shell.Shell, plan *provision.Plan, how *applying) (waited bool, err error) {
	dsn, err := sh.Lasting()
	if err != nil {
		return false, err
	}
	var options []zlimit.Option
	if how.create {
		options = append(options, zlimit.WithSetup())
	} else if err := sh.CheckFile(dsn); err != nil && sh.Namespace != zlimit.DefaultNamespace {
		return false, err
	}
	type result struct {
		Applied []provision.Change `json:"applied"`
		Budgets []budgets.Change   `json:"budgets,omitempty"` // what the changes of budgets do to periods that have begun
		before  standings
	}
	progress := sh.ProgressLine()
	done, err := shell.Perform(ctx, sh, dsn, func(ctx context.Context, l *zlimit.RateLimiter) (done result, err error) {
		p := provision.New(l, sh.Namespace, sh.Now)
		if err := refuseRotated(ctx, l, plan); err != nil {
			return done, err
		}
		if done.before, err = standingsOf(ctx, sh, l, plan, how.all, progress.Show); err != nil {
			return done, err
		}
		var saved *provision.Plan
		if plan.ID != "" {
			saved = plan
		}
		p.ManagedBy(plan.Manager, plan.From != "")
		if !how.undo {
			p.KeepsScaled()
		}
		applied := 0
		p.OnProgress(nil, func(provision.Change) {
			applied++
			progress.Show(fmt.Sprintf("%s of %s changes", show.Grouped(int64(applied)), show.Grouped(int64(len(plan.Changes)))))
		})
		for start := sh.Now(); ; {
			_, applied, err := p.Apply(ctx, plan.Declared, saved)
			if !errors.Is(err, zlimit.ErrLocked) || sh.Now().Sub(start) >= how.lockTimeout {
				done.Applied = append([]provision.Change{}, applied...)
				if err == nil {
					done.Budgets, err = done.before.changes(ctx, l, progress.Show)
				}
				return done, err
			}
			waited = true
			progress.Show(fmt.Sprintf("waiting for another apply, until %s at the latest: %v", start.Add(how.lockTimeout).UTC().Format(time.DateTime), err))
			if err := sh.Sleep(ctx, time.Second); err != nil {
				return result{}, err
			}
		}
	}, options...)
	progress.End()
	if err != nil {
		if len(done.Applied) > 0 {
			err = shell.Unfinished(err, fmt.Sprintf("%d of %d changes are done; run the command again to finish", len(done.Applied), len(plan.Changes)))
		}
		return waited, err
	}
	return waited, sh.Print(done, func(p *show.Page) {
		if len(done.Applied) == 0 {
			p.Linef("nothing to change in namespace %s", plan.Namespace)
			return
		}
		p.Linef("applied to namespace %s: %s", plan.Namespace, summary(done.Applied))
		for i := range done.Budgets {
			ch := &done.Budgets[i]
			for _, line := range ch.Lines(zlimit.Level{Entity: ch.Entity, Resource: ch.Resource}.String()) {
				p.Linef("%s", line)
			}
		}
		if len(done.before.unread) > 0 {
			p.Linef("%s", done.before.unreadLine())
		}
	})
}

func diffCommand(sh *shell.Shell) *cobra.Command {
	var file limitsFile
	cmd := &cobra.Command{
		Use:   "diff -f FILE",
		Short: "Show how the stored limits differ from a file",
		Long: `Diff shows where what is stored differs from a file, and who has changed it
since the file was applied: "-" is what the file says, "+" what is stored.
Levels that the file never had are listed, and make no difference.

Exit codes: 0 the same, 4 different, 2 bad input, 1 failure.`,
		Example: `  zlimit limits diff -f limits.yaml`,
		Args:    shell.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			file.take = true // it takes nothing
			plan, err := planFile(sh, cmd, &file, false)
			if err != nil {
				return err
			}
			plan.From = ""
			plan.Changes = slices.DeleteFunc(plan.Changes, func(c provision.Change) bool {
				return c.Action == provision.Adopt || c.Action == provision.Forget
			})
			type result struct {
				Differences []provision.Change `json:"differences"`
				Unmanaged   []zlimit.Level     `json:"unmanaged"`
			}
			if err := sh.Print(result{plan.Changes, plan.Unmanaged}, func(p *show.Page) { printDiff(p, file.path, plan) }); err != nil {
				return err
			}
			if !plan.Empty() {
				return shell.ErrDiffers
			}
			return nil
		},
	}
	file.flag(cmd)
	return cmd
}

func importCommand(sh *shell.Shell) *cobra.Command {
	var path string
	var force bool
	cmd := &cobra.Command{
		Use:   "import [-f FILE]",
		Short: "Write the stored limits as a file",
		Long: `Import writes the limits stored in a namespace as a file for plan and apply, to
FILE or to the standard output. It changes nothing in the store; the first apply
of the file takes the levels over. Levels with a limit of zae-limiter that
zlimit does not know are left out, and named on the standard error.`,
		Example: `  zlimit limits import -f limits.yaml
  zlimit limits import --namespace staging`,
		Args: shell.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			toFile := path != "" && path != "-"
			if _, err := os.Lstat(path); toFile && err == nil && !force {
				return shell.Usagef("limits import: %s is there already; --force replaces it", path)
			}
			dsn, err := sh.Lasting()
			if err != nil {
				return err
			}
			if err := sh.CheckFile(dsn); err != nil {
				return err
			}
			var unsupported []zlimit.Stored
			d, err := shell.Perform(cmd.Context(), sh, dsn, provisioning(sh, func(ctx context.Context, p *provision.Provisioner) (d *declaration.Declaration, err error) {
				d, unsupported, err = p.Import(ctx)
				return d, err
			}))
			if err != nil {
				return err
			}
			for i := range unsupported {
				sh.Note("left out: " + unsupported[i].Level.String() + ": " + shell.Features(unsupported[i].Unsupported))
			}
			if d.System == nil && d.Resources == nil && d.Entities == nil {
				return fmt.Errorf("no limits are stored in namespace %s", sh.Namespace)
			}
			text, err := declaration.Format(d)
			if err != nil {
				return err
			}
			if !toFile {
				p := &show.Page{}
				p.Write(text)
				return sh.Write(p)
			}
			if err := atomicfile.Write(path, text); err != nil {
				return err
			}
			levels := len(provision.Declared(d))
			return sh.Print(map[string]any{"file": path, "levels": levels}, func(p *show.Page) { p.Linef("%s: %d levels", path, levels) })
		},
	}
	cmd.Flags().StringVarP(&path, "file", "f", "", "`FILE` to write; the standard output without it")
	cmd.Flags().BoolVar(&force, "force", false, "replace the file")
	return cmd
}

func schemaCommand(sh *shell.Shell) *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "schema [-f FILE]",
		Short: "Write the JSON Schema of limits files",
		Long: `Schema writes the JSON Schema of files of limits, by which editors check and
complete them. An editor with the YAML language server takes it by a comment at
the top of a file: # yaml-language-server: $schema=limits.schema.json`,
		Example: `  zlimit limits schema -f limits.schema.json`,
		Args:    shell.Takes(),
		RunE: func(*cobra.Command, []string) error {
			text, err := declaration.JSONSchema()
			if err != nil {
				return err
			}
			text = append(text, '\n')
			if path != "" && path != "-" {
				err := mayReplace(path, "a JSON Schema", func(text []byte) bool {
					var schema struct {
						Schema string `json:"$schema"`
					}
					return json.Unmarshal(text, &schema) == nil && schema.Schema != ""
				})
				if err != nil {
					return err
				}
				return atomicfile.Write(path, text)
			}
			p := &show.Page{}
			p.Write(text)
			return sh.Write(p)
		},
	}
	cmd.Flags().StringVarP(&path, "file", "f", "", "`FILE` to write; the standard output without it")
	return cmd
}
