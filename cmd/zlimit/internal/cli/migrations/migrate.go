// Package migrations has the command migrate.
package migrations

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/migrate"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// Command returns the command migrate.
func Command(sh *shell.Shell) *cobra.Command {
	return shell.Group("a command such as plan, run or finish", &cobra.Command{
		Use:   "migrate",
		Short: "Migrate a table of zae-limiter to this layout",
		Long: `Migrate copies a table of zae-limiter, of any release from 0.1 on, to a new
DynamoDB table with the layout of zlimit. It reads the layout from the keys of
the items. The old table is never written; with --in-place the new items come
into it, beside the old ones, which finish deletes.

  plan     what would be copied, what not, and what it costs
  run      copies, and applies what programs change meanwhile
  verify   compares the two tables, attribute by attribute
  finish   opens the new table, once it is exactly as the old one; in place it
           then deletes the old items
  abort    deletes what was copied

The new table is the one of --store. Limiters cannot open it before finish.
Each command may be interrupted and run again, and goes on where it was.`,
		Example: `  zlimit migrate plan --from 'dynamodb:old?region=eu-central-1'
  zlimit migrate run --from dynamodb:old --store dynamodb:limits`,
	},
		planCommand(sh), runCommand(sh), statusCommand(sh),
		verifyCommand(sh), finishCommand(sh), abortCommand(sh),
	)
}

// defaultSample is the number of items that a plan reads.
const defaultSample = 2000

// A migration holds the flags of the migrate commands.
type migration struct {
	from    string
	windows []string
	cascade bool
	offline bool
	inPlace bool
	rate    float64
	sample  int64
	yes     bool
	follow  bool
	quiet   time.Duration

	copies bool     // a table of zlimit, or a store in a file or in memory
	stores []string // that the command has opened
}

// name returns how the command is called.
func (o *migration) name() string {
	if o.copies {
		return "copy"
	}
	return "migrate"
}

// next returns a command that goes on with the work.
func (o *migration) next(command, dsn string) string {
	if o.copies {
		return fmt.Sprintf("zlimit copy %s '%s'", command, dsn)
	}
	return fmt.Sprintf("zlimit migrate %s --store '%s'", command, dsn)
}

func (o *migration) sourceFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&o.from, "from", "", "`DSN` of the old table")
	flags.StringSliceVar(&o.windows, "windows", migrate.Windows, "usage windows it has, a `list`")
	flags.BoolVar(&o.cascade, "cascade", false, "charge parents, for releases without such a flag")
	flags.BoolVar(&o.inPlace, "in-place", false, "add the new items to the old table, that of --store")
	flags.Int64Var(&o.sample, "sample", defaultSample, "`number` of items that the plan reads")
}

func (o *migration) rateFlag(cmd *cobra.Command) {
	cmd.Flags().Float64Var(&o.rate, "rate", 0, "capacity `units` a second at most; 0 for no bound")
}

func (o *migration) check() error {
	for i, w := range o.windows {
		if !slices.Contains([]string{"hourly", "daily", "monthly"}, w) || slices.Contains(o.windows[:i], w) {
			return shell.Usagef("--windows: %q: must be hourly, daily or monthly, each once", w)
		}
	}
	switch {
	case o.rate < 0:
		return shell.Usagef("--rate: must not be negative")
	case o.quiet < 0:
		return shell.Usagef("--quiet: must not be negative")
	case o.sample < 0:
		return shell.Usagef("--sample: must not be negative")
	default:
		return nil
	}
}

// source returns the DSN of the old table.
func migrationSource(sh *shell.Shell, o *migration) (string, error) {
	if o.inPlace {
		if o.from != "" {
			return "", shell.Usagef("--from: must not be given with --in-place, where the old table is that of --store")
		}
		dsn, err := o.target(sh)
		if err != nil {
			return "", err
		}
		return dsn, o.check()
	}
	if o.from == "" {
		return "", shell.Usagef("--from is missing: the DSN of the old table, such as dynamodb:old")
	}
	return o.from, o.check()
}

// openExisting opens a store as openTable does, unless it is a file that does not exist.
func (o *migration) openExisting(ctx context.Context, flag, dsn string) (zlimit.Store, error) {
	if err := checkFile(dsn); o.copies && err != nil {
		return zlimit.Store{}, err
	}
	return o.openTable(ctx, flag, dsn)
}

// openTable opens a DynamoDB table below the API, or any store to copy.
func (o *migration) openTable(ctx context.Context, flag, dsn string) (zlimit.Store, error) {
	if !o.copies && !strings.HasPrefix(dsn, "dynamodb:") {
		return zlimit.Store{}, shell.Usagef("%s: %q: must be a DynamoDB table, dynamodb:TABLE", flag, dsn)
	}
	if !slices.Contains(o.stores, dsn) {
		o.stores = append(o.stores, dsn)
	}
	s, err := zlimit.OpenStore(ctx, dsn)
	return s, o.advise(err)
}

func (o *migration) target(sh *shell.Shell) (string, error) {
	dsn, err := sh.DSN()
	if err == nil && !o.copies && !strings.HasPrefix(dsn, "dynamodb:") {
		err = shell.Usagef("--store: %q: must be a DynamoDB table, dynamodb:TABLE", dsn)
	}
	return dsn, err
}

func migrationConfig(sh *shell.Shell, o *migration, source, target store.Store) migrate.Config {
	return migrate.Config{
		Source: source, Target: target, SourceName: o.from, Offline: o.offline, Rate: o.rate, Quiet: o.quiet,
		InPlace: o.inPlace, Namespace: sh.Namespace,
		Rules:         migrate.Rules{Cascade: o.cascade, Windows: o.windows},
		SchemaVersion: zlimit.SchemaVersion, ClientMinVersion: zlimit.ClientMinVersion, ClientVersion: zlimit.Version,
		Now: sh.Now, Sleep: sh.Sleep,
	}
}

// advise adds to the error of a migration what to do about it.
func (o *migration) advise(err error) error {
	switch {
	case errors.Is(err, store.ErrTableNotFound):
		return fmt.Errorf("the table does not exist: check both names; zlimit %s run creates the new one", o.name())
	case errors.Is(err, migrate.ErrNone):
		return fmt.Errorf("%w; zlimit %s run starts one", err, o.name())
	case errors.Is(err, migrate.ErrStream):
		return fmt.Errorf("%w; turn it on, or stop all programs that write the table and give --offline", err)
	case errors.Is(err, migrate.ErrDeleting):
		return fmt.Errorf("%w; zlimit %s finish goes on with it", err, o.name())
	case errors.Is(err, migrate.ErrAborting):
		return fmt.Errorf("%w; zlimit %s abort goes on with it", err, o.name())
	case errors.Is(err, store.ErrNoScan):
		return shell.Usagef("%v", err)
	}
	switch store.OutcomeOf(err) {
	case store.Unavailable, store.Unknown, store.Throttled:
		return fmt.Errorf("%w; the command used %s: check regions, endpoints and the network, and run it again: it goes on where it was", err, strings.Join(o.stores, " and "))
	default:
		return err
	}
}

func planCommand(sh *shell.Shell) *cobra.Command {
	o := migration{}
	cmd := &cobra.Command{
		Use:   "plan {--from DSN | --in-place}",
		Short: "Show what a migration would copy, and its cost",
		Long: `Plan reads a sample of the old table. It shows the layout, the items of each
form, the items without a place in the new table, and the capacity units of a
migration. It writes nothing. DynamoDB counts the items of a table every few
hours; a plan of more items than --sample is as old as that.

--windows names the windows of the old aggregator, in its order. --cascade is
for releases up to 0.5, where each call said whether a parent is charged.

--in-place plans to add the new items to the table itself. It shows
what cannot be changed there.`,
		Example: `  zlimit migrate plan --from dynamodb:old
  zlimit migrate plan --in-place --store dynamodb:old
  zlimit migrate plan --from dynamodb:old --sample 1000000 -o json`,
		Args: shell.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			from, p, err := migrationPlan(cmd.Context(), sh, &o)
			if err != nil {
				return err
			}
			return sh.Print(planResult{from, p.Current(), p}, func(page *show.Page) { o.showPlan(page, from, p) })
		},
	}
	o.sourceFlags(cmd)
	return cmd
}

func migrationPlan(ctx context.Context, sh *shell.Shell, o *migration) (from string, plan *migrate.Plan, err error) {
	if from, err = migrationSource(sh, o); err != nil {
		return "", nil, err
	}
	source, err := o.openExisting(ctx, "--from", from)
	if err != nil {
		return "", nil, err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	plan, err = migrate.MakePlan(ctx, migrationConfig(sh, o, store.Of(source), nil), o.sample)
	return from, plan, o.advise(err)
}

// A planResult is a plan, as JSON.
type planResult struct {
	From    string `json:"from"`
	Current bool   `json:"current"`
	*migrate.Plan
}

func (o *migration) showPlan(page *show.Page, from string, p *migrate.Plan) {
	about := ""
	if !p.Exact {
		about = fmt.Sprintf(", estimated from %s of them", show.Grouped(p.Sampled))
	}
	switch {
	case o.copies && p.Current():
		page.Linef("%s: %s items%s", from, show.Grouped(p.Items), about)
	case p.Current():
		page.Linef("%s has the layout of zlimit already: programs may open it as it is, and a new table gets other indexes alone", from)
	case o.copies && p.Foreign():
		page.Linef("%s holds nothing that zlimit wrote, in %s items%s", from, show.Grouped(p.Items), about)
	case p.Foreign():
		page.Linef("%s holds nothing that zae-limiter wrote, in %s items%s", from, show.Grouped(p.Items), about)
	default:
		page.Linef("%s is of zae-limiter %s: %s items%s", from, p.Releases, show.Grouped(p.Items), about)
	}
	var rows [][]string
	for _, s := range p.Shapes {
		rows = append(rows, []string{s.Shape.String(), show.Grouped(s.Items)})
	}
	page.Table([]string{"form", "items>"}, rows)
	if p.Current() && p.InPlace != nil {
		page.Linef("nothing is to migrate")
		return
	}
	if len(p.Losses) > 0 {
		page.Linef("")
		page.Linef("not carried over, or not as it was:")
		for _, l := range p.Losses {
			page.Linef("  %s %s, such as PK %q, SK %q", show.Grouped(l.Items), l.Reason, l.PK, l.SK)
		}
	}
	page.Linef("")
	steps := [][]string{
		{"copy", show.Grouped(p.Targets), units(p.Copy.Read), units(p.Copy.Write)},
		{"compare", show.Grouped(p.Targets), units(p.Verify.Read), "0"},
	}
	if x := p.InPlace; x != nil {
		steps = append(steps, []string{"delete", show.Grouped(p.Items), units(x.Delete.Read), units(x.Delete.Write)})
	}
	page.Table([]string{"step", "items>", "read units>", "write units>"}, steps)
	if p.InPlace != nil {
		showInPlace(page, p)
	}
	if x := p.Refused; x != nil {
		page.Linef("not possible: %v", x)
	}
	if x := p.Mix; x != nil {
		page.Linef("not possible: %v", x.Err())
	}
	if !p.Stream {
		page.Linef("the table has no change stream of old and new images: turn it on, or give --offline")
	}
}

// showInPlace shows the other steps of a migration in place, besides copying, and its limits.
func showInPlace(page *show.Page, p *migrate.Plan) {
	page.Linef("")
	page.Linef("in place: the new items come beside the old ones, which finish deletes permanently")
	if x := p.InPlace.Missing; len(x) > 0 {
		page.Linef("  the run adds the global indexes %s first, one at a time, which reads the whole table for each", strings.Join(x, ", "))
	}
	if x := p.InPlace.Local; len(x) > 0 {
		page.Linef("  not in place: the reserved local indexes %s cannot be added to a table", strings.Join(x, ", "))
	}
	if x := p.InPlace.Projecting; len(x) > 0 {
		page.Linef("  not in place: %s keeps its projection, so that each acquire may write whole items into it again", strings.Join(x, ", "))
	}
	if strings.HasPrefix(p.Releases, "0.10.0") {
		page.Linef("  programs of 0.10.0 go on, and cannot be started again before the end: the version record is theirs too")
	}
}

func units(u float64) string { return show.Grouped(int64(u + 0.999)) }

func runCommand(sh *shell.Shell) *cobra.Command {
	o := migration{}
	cmd := &cobra.Command{
		Use:   "run {--from DSN | --in-place} [--yes]",
		Short: "Copy a table, and apply changes made meanwhile",
		Long: `Run shows the plan, asks, and copies the old table to the one of --store,
which it creates unless it exists without items. Then it applies what programs
have changed in the old table, up to the end of the copy, and ends, also while
they go on; --follow goes on until it is interrupted. Run it again within a day,
since the change stream of the old table forgets after that: the copy then
starts over.

--in-place adds the new items to the table of --store itself, with the missing
indexes. It leaves the old items as they are until finish.

An interrupted run goes on where it was. Only one run works at a time; another
one takes over when it was silent for two minutes.`,
		Example: `  zlimit migrate run --from dynamodb:old --store dynamodb:limits --rate 500
  zlimit migrate run --from dynamodb:old --store dynamodb:limits --follow --yes`,
		Args: shell.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error { return migrateRun(cmd.Context(), sh, &o) },
	}
	o.sourceFlags(cmd)
	o.rateFlag(cmd)
	cmd.Flags().BoolVar(&o.offline, "offline", false, "the old table is not written meanwhile")
	cmd.Flags().BoolVar(&o.follow, "follow", false, "keep applying changes until interrupted")
	cmd.Flags().BoolVar(&o.yes, "yes", false, "do not ask")
	return cmd
}

// checkPair returns an error where the source is the target.
func (o *migration) checkPair(from, dsn string) error {
	switch {
	case dsn != from || o.inPlace:
		return nil
	case o.copies:
		return shell.Usagef("FROM and TO are both %s: a copy is to another store", dsn)
	default:
		return shell.Usagef("--from is the table of --store: a migration is to a new table; --in-place is for one in the same table")
	}
}

func migrateRun(ctx context.Context, sh *shell.Shell, o *migration) (err error) {
	dsn, err := o.target(sh)
	if err != nil {
		return err
	}
	from, err := migrationSource(sh, o)
	if err == nil {
		err = o.checkPair(from, dsn)
	}
	if err != nil {
		return err
	}
	confirmed := o.copies && checkFile(dsn) != nil // opening it would create it
	if confirmed {
		if err := confirmPlan(ctx, sh, o, from, dsn); err != nil {
			return err
		}
	}
	target, err := o.openTable(ctx, "--store", dsn)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, target.Close()) }()
	found, _, err := migrate.Find(ctx, migrate.Config{Target: store.Of(target)})
	begins := errors.Is(err, migrate.ErrNone) || errors.Is(err, store.ErrTableNotFound)
	switch {
	case err != nil && !begins:
		return o.advise(err)
	case begins && !confirmed:
		if err := confirmPlan(ctx, sh, o, from, dsn); err != nil {
			return err
		}
	case begins:
	case found.Phase == migrate.Finished:
		return fmt.Errorf("%w: programs use %s", migrate.ErrFinished, dsn)
	}
	o.from = from
	source, err := o.openExisting(ctx, "--from", from)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	c := migrationConfig(sh, o, store.Of(source), store.Of(target))
	switch {
	case o.inPlace:
		if err := prepareInPlace(ctx, c.Source); err != nil {
			return err
		}
	case begins:
		if c.Rules.NS, err = prepareTarget(ctx, sh, c); err != nil {
			return err
		}
	}
	return working(ctx, sh, o, c, migrate.Start, func(m *migrate.Migration) error {
		err := m.Copy(ctx)
		if err == nil {
			err = m.CatchUp(ctx)
		}
		if err == nil && o.follow {
			err = m.Follow(ctx)
		}
		if err != nil {
			return err
		}
		return sh.Print(m.Counts(), func(p *show.Page) { o.showRun(p, m, dsn) })
	})
}

// showRun shows what a run has done, and what comes next.
func (o *migration) showRun(p *show.Page, m *migrate.Migration, dsn string) {
	if o.inPlace {
		p.Linef("%s has the new items beside the old ones, in step with them", dsn)
	} else {
		p.Linef("%s is copied, and in step with %s", dsn, o.from)
	}
	showCounts(p, m.Counts())
	p.Linef("stop what writes %s, then: %s", o.from, o.next("finish", dsn))
}

// confirmPlan shows the plan of a migration that begins, and asks. It returns an error where the plan cannot be carried out.
func confirmPlan(ctx context.Context, sh *shell.Shell, o *migration, from, dsn string) error {
	_, p, err := migrationPlan(ctx, sh, o)
	if err != nil {
		return err
	}
	shown := &show.Page{}
	o.showPlan(shown, from, p)
	if err := sh.ToPeople(shown); err != nil {
		return err
	}
	switch {
	case o.copies && p.Empty():
		return fmt.Errorf("%s holds no items: there is nothing to copy", from)
	case o.copies && p.Foreign() && !p.Current():
		return fmt.Errorf("%s holds nothing that zlimit wrote: there is nothing to copy", from)
	case o.copies && !p.Current():
		return fmt.Errorf("%s is of zae-limiter %s: zlimit migrate brings it to this layout", from, p.Releases)
	case o.copies:
	case p.Current() && o.inPlace || p.Foreign():
		return errors.New("there is nothing to migrate")
	case p.Refused != nil:
		return p.Refused
	case p.Mix != nil:
		return p.Mix.Err()
	}
	if err := checkMixed(ctx, sh, o, from); err != nil {
		return err
	}
	question := "Migrate to " + dsn + "?"
	if o.copies {
		question = "Copy to " + dsn + "?"
	}
	if o.inPlace {
		question = "Migrate " + dsn + " in place?"
	}
	return sh.Confirm(question, o.yes)
}

// checkMixed returns an error where the old table has items without a namespace, and others of the one that they would go to.
func checkMixed(ctx context.Context, sh *shell.Shell, o *migration, from string) (err error) {
	source, err := o.openExisting(ctx, "--from", from)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	c := migrationConfig(sh, o, store.Of(source), nil)
	id, ok, err := migrate.NamespaceIn(ctx, c, sh.Namespace)
	if err == nil && ok { // one that the new table registers is of no other item
		c.Rules.NS = id
		err = migrate.CheckMixed(ctx, c)
	}
	return o.advise(err)
}

// prepareInPlace adds the indexes that a table lacks, and sets up the rest.
func prepareInPlace(ctx context.Context, table store.Store) error {
	if x, ok := table.(store.Indexer); ok {
		if err := x.AddIndexes(ctx); err != nil {
			return err
		}
	}
	return table.Setup(ctx) // the expiry of items
}

// prepareTarget creates the table, and returns the id of the namespace for items without one. A source with namespaces
// brings its own along.
func prepareTarget(ctx context.Context, sh *shell.Shell, c migrate.Config) (string, error) {
	id, ok, err := migrate.NamespaceIn(ctx, c, sh.Namespace)
	if err != nil {
		return "", err
	}
	if ok {
		return id, c.Target.Setup(ctx)
	}
	ns, err := shell.Do(ctx, sh, func(ctx context.Context, l *zlimit.RateLimiter) (zlimit.Namespace, error) {
		return l.Namespaces.Get(ctx, sh.Namespace)
	}, zlimit.WithSetup())
	return ns.ID, err
}

// working does the work of a run, shows how far it comes, and lets the next run begin immediately.
func working(
	ctx context.Context, sh *shell.Shell, o *migration, c migrate.Config, start func(context.Context, migrate.Config) (*migrate.Migration, error), do func(*migrate.Migration) error,
) error {
	progress := sh.ProgressLine()
	defer progress.End()
	c.Report = func(p migrate.Progress) {
		text := fmt.Sprintf("%s: %s items read, %s written, %s changes applied", p.Phase, show.Grouped(p.Counts[migrate.CountRead]),
			show.Grouped(p.Counts[migrate.CountWritten]+p.Counts[migrate.CountReplaced]+p.Counts[migrate.CountDeleted]), show.Grouped(p.Counts[migrate.CountChanges]))
		if p.Phase == migrate.Following {
			text += fmt.Sprintf(", %v behind", p.Behind.Truncate(time.Second))
		}
		progress.Show(text)
	}
	told := false
	c.Waiting = func(other migrate.Rival) {
		if !told {
			sh.Note(fmt.Sprintf("note: a run (%s) works on this migration of %s and has not ended; it is taken for dead after %v without a sign of it",
				other.Owner, other.Started.Format(time.RFC3339), other.Left))
		}
		told = true
		progress.Show("waiting for a sign of " + other.Owner + ": " + other.Left.Round(time.Second).String() + " left")
	}
	m, err := start(ctx, c)
	if err != nil {
		return o.advise(err)
	}
	err = do(m)
	for errors.Is(err, migrate.ErrGap) {
		sh.Note("note: " + migrate.ErrGap.Error())
		err = do(m)
	}
	if m.Phase() != migrate.Finished {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		if released := m.Release(last); released != nil && err == nil && !errors.Is(released, migrate.ErrNone) {
			err = released
		}
	}
	return o.advise(err)
}

func showCounts(p *show.Page, c migrate.Counts) {
	p.Linef("%s items read, %s written, %s replaced and %s deleted after %s changes", show.Grouped(c[migrate.CountRead]),
		show.Grouped(c[migrate.CountWritten]), show.Grouped(c[migrate.CountReplaced]), show.Grouped(c[migrate.CountDeleted]), show.Grouped(c[migrate.CountChanges]))
	p.Linef("%s read units, %s write units", units(float64(c[migrate.CountReadUnits])/1000), units(float64(c[migrate.CountWriteUnits])/1000))
	showLosses(p, c.Losses())
}

func showLosses(p *show.Page, losses map[string]int64) {
	for _, reason := range slices.Sorted(maps.Keys(losses)) {
		p.Linef("not carried over, or not as it was: %s %s", show.Grouped(losses[reason]), reason)
	}
}
