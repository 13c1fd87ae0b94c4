package limits

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/internal/calendar"
	"github.com/zlimit/zlimit-go/internal/declaration"
	"github.com/zlimit/zlimit-go/internal/deploy/provision"
	"github.com/zlimit/zlimit-go/internal/hooks"
	"github.com/zlimit/zlimit-go/internal/tool/atomicfile"
	"github.com/zlimit/zlimit-go/zlimit"
)

// maxFactor bounds by what limits are scaled.
const maxFactor = 1000

// A scaling is the change of one limit.
type scaling struct {
	Level    zlimit.Source `json:"level"`
	Resource string        `json:"resource,omitempty"`
	Entity   string        `json:"entity,omitempty"`
	Before   zlimit.Limit  `json:"before"`
	After    zlimit.Limit  `json:"after"`

	at zlimit.Level
}

// A scalePlan is what scaling changes, and what it leaves as it is.
type scalePlan struct {
	changes []scaling
	missing []string // levels and limits that are stored, and not in the file

	foreign  []foreign
	followed []string // levels of entities that took the place of one of the file
	kept     int      // quotas that keep the amount of the file
	managed  int      // levels that a file of limits manages, and that are other than that file has them
	manager  string   // who manages them
}

func scaleCommand(sh *shell.Shell) *cobra.Command {
	var file limitsFile
	var yes, budgets, rebuild bool
	cmd := &cobra.Command{
		Use:   "scale FACTOR -f FILE [--yes]",
		Short: "Multiply all limits by a factor, and restore them",
		Long: `Scale multiplies the stored limits of a namespace: their capacity, refill and
slots, and what they are in windows. It is for a region that is down: of three
regions with a third of each limit, the other two take 3/2.

FILE has the limits of factor 1. If it does not exist, scale writes it first,
with the store and the namespace. It takes it for no other store: a table is
known by its name, region and endpoint, a database by its path. The factor is
always that of FILE: running the command again completes it, and changes nothing
else. A factor of 1 restores the limits of FILE.

It refuses levels that another file has scaled and not restored yet: two files
would multiply them twice. It reads the audit events of each level for that. If
FILE is lost, --rebuild writes it from these events: the limits as they were
before they were multiplied.

Amounts are rounded down, to at least 1. Quotas, session quotas and prepaid
limits keep their amounts without --budgets, since the region that is down has
used a part of them. With --budgets, a raised amount holds from the next period
on: it adds nothing to what a bucket has left now, and nothing at all to a
prepaid one. zlimit bucket top-up adds to a bucket now. A lowered amount cuts
what is left with the next request.

Levels and limits that FILE lacks stay as they are, and so do limits that others
have changed since, as audit events say. The command notes both. A file of
limits that declares the levels would undo the scaling: zlimit limits apply
refuses that, names the author and the time of the scaling, and takes
--undo-scaling. A deployment by CloudFormation does not refuse: scale again
afterwards.`,
		Example: `  zlimit limits scale 3/2 -f limits-before.yaml
  zlimit limits scale 1 -f limits-before.yaml --yes
  zlimit limits scale 1 -f lost.yaml --rebuild --yes`,
		Args: shell.Takes("FACTOR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			factor, err := parseFactor(args[0])
			if err != nil {
				return err
			}
			if file.path == "" || file.path == "-" {
				return shell.Usagef("limits scale: --file is missing: it keeps the limits of factor 1")
			}
			dsn, err := sh.Lasting()
			if err != nil {
				return err
			}
			if err := sh.CheckFile(dsn); err != nil {
				return err
			}
			save, err := file.loadOrImport(sh, cmd, dsn, factor, rebuild)
			if err != nil {
				return err
			}
			made := scaledBy(file.text)
			plan, err := shell.Look(cmd.Context(), sh, func(ctx context.Context, l *zlimit.RateLimiter) (scalePlan, error) {
				return planScale(ctx, l, provision.New(l, sh.Namespace, sh.Now), &file, factor, made, budgets)
			})
			if err != nil {
				return err
			}
			plan.note(sh, file.path, factor)
			changes := plan.changes
			if len(changes) > 0 {
				if !yes || !sh.Output.JSON { // which has them
					if err := plan.show(sh); err != nil {
						return err
					}
				}
				if err := sh.Confirm("Change "+show.Counted(len(changes), "limit")+" of namespace "+sh.Namespace+"?", yes); err != nil {
					return err
				}
			}
			if text := withFactor(cmp.Or(string(save), string(file.text)), made, factor); save != nil || text != string(file.text) {
				if err := atomicfile.Write(file.path, []byte(text)); err != nil {
					return err
				}
			}
			progress := sh.ProgressLine()
			done := 0
			by := hooks.Scaling{Factor: factor.RatString(), File: filepath.Base(file.path)}
			_, err = shell.Do(hooks.Scale(cmd.Context(), by), sh, func(ctx context.Context, l *zlimit.RateLimiter) (struct{}, error) {
				for done < len(changes) {
					n := 1
					for done+n < len(changes) && changes[done+n].at == changes[done].at {
						n++
					}
					if err := scaleLevel(ctx, l, changes[done:done+n]); err != nil {
						return struct{}{}, err
					}
					done += n
					progress.Show(fmt.Sprintf("%s of %s limits", show.Grouped(int64(done)), show.Grouped(int64(len(changes)))))
				}
				return struct{}{}, nil
			})
			progress.End()
			if err != nil {
				if done > 0 {
					err = shell.Unfinished(err, fmt.Sprintf("%d of %d limits are changed; run the command again to finish", done, len(changes)))
				}
				return err
			}
			body := struct {
				Namespace string    `json:"namespace"`
				Factor    string    `json:"factor"`
				File      string    `json:"file"`
				Changes   []scaling `json:"changes"`
			}{sh.Namespace, factor.RatString(), file.path, append([]scaling{}, changes...)}
			return sh.Print(body, func(p *show.Page) {
				p.Linef("%s of namespace %s changed; %s has the limits of factor 1", show.Counted(done, "limit"), sh.Namespace, file.path)
			})
		},
	}
	file.flag(cmd)
	cmd.Flags().BoolVar(&budgets, "budgets", false, "scale quotas and prepaid limits too")
	cmd.Flags().BoolVar(&rebuild, "rebuild", false, "write a lost FILE again, from audit events")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

// parseFactor parses a factor such as 3/2 or 1.5.
func parseFactor(text string) (*big.Rat, error) {
	if len(text) <= 20 && !strings.ContainsAny(text, "eEpPxXbBoO_") {
		if f, ok := new(big.Rat).SetString(text); ok && f.Sign() > 0 && f.Cmp(big.NewRat(maxFactor, 1)) <= 0 && f.Cmp(big.NewRat(1, maxFactor)) >= 0 {
			return f, nil
		}
	}
	return nil, shell.Usagef("limits scale: factor %q must be from 1/%d to %d, such as 3/2 or 1.5", text, maxFactor, maxFactor)
}

// loadOrImport reads the file. If it does not exist, it takes the stored limits, or rebuilds the lost ones, and returns the text to save.
func (f *limitsFile) loadOrImport(sh *shell.Shell, cmd *cobra.Command, dsn string, factor *big.Rat, rebuild bool) (save []byte, err error) {
	if _, err := os.Stat(f.path); !errors.Is(err, fs.ErrNotExist) {
		if rebuild {
			return nil, shell.Usagef("limits scale: %s exists; --rebuild writes a file that is lost", f.path)
		}
		if err := f.load(sh, cmd); err != nil {
			return nil, err
		}
		return nil, f.checkStore(sh, dsn)
	}
	var unsupported []zlimit.Stored
	var scaled []provision.History
	d, err := shell.Perform(cmd.Context(), sh, dsn, provisioning(sh, func(ctx context.Context, p *provision.Provisioner) (d *declaration.Declaration, err error) {
		if d, unsupported, err = p.Import(ctx); err == nil {
			scaled, err = p.Histories(ctx, levelsOf(provision.Declared(d)))
		}
		scaled = provision.Scaled(scaled)
		return d, err
	}))
	if err != nil {
		return nil, err
	}
	f.levels = provision.Declared(d)
	var made []*big.Rat
	switch {
	case rebuild:
		if f.levels, made, err = f.rebuilt(scaled); err != nil {
			return nil, err
		}
		d = provision.Declare(sh.Namespace, f.levels)
	case len(scaled) > 0:
		return nil, f.scaledAlready(scaled)
	case factor.Cmp(big.NewRat(1, 1)) == 0:
		return nil, shell.Usagef("limits scale: %s does not exist, so there is nothing to restore", f.path)
	}
	for i := range unsupported {
		sh.Note("left as it is: " + unsupported[i].Level.String() + ": " + shell.Features(unsupported[i].Unsupported))
	}
	if len(f.levels) == 0 {
		return nil, fmt.Errorf("no limits are stored in namespace %s", sh.Namespace)
	}
	text, err := declaration.Format(d)
	header := scaledHeader(sh, dsn) + "\n"
	for i := range made {
		header = withFactor(header, made[:i], made[i])
	}
	f.text = append([]byte(header), text...)
	return f.text, err
}

// planScale compares the stored limits with the multiplied limits of the file. It knows by which factors scale has multiplied them before.
func planScale(
	ctx context.Context, l *zlimit.RateLimiter, p *provision.Provisioner, file *limitsFile, factor *big.Rat, made []*big.Rat, budgets bool,
) (plan scalePlan, err error) {
	files, err := l.Managed.Set(ctx)
	if err != nil {
		return plan, err
	}
	plan.manager = files.Manager
	of, err := scaledLevels(ctx, l, p, file.levels)
	if err != nil {
		return plan, err
	}
	if err := file.checkScaled(ctx, p, of, made); err != nil {
		return plan, err
	}
	for i := range of {
		if err := plan.add(&of[i], &files, factor, made, budgets); err != nil {
			return plan, err
		}
	}
	return plan, nil
}

// add adds the changes of a level.
func (p *scalePlan) add(of *scaledFrom, files *zlimit.ManagedSet, factor *big.Rat, made []*big.Rat, budgets bool) (err error) {
	stored, limits, scaled := &of.stored, of.first, false
	if !of.known {
		p.missing = append(p.missing, stored.Level.String())
		return nil
	}
	if of.former != "" {
		p.followed = append(p.followed, stored.Level.String()+" from "+of.former)
	}
	for _, before := range stored.Config.Limits {
		i := slices.IndexFunc(limits, func(l zlimit.Limit) bool { return l.Name == before.Name })
		if i < 0 {
			p.missing = append(p.missing, stored.Level.String()+" "+before.Name)
			continue
		}
		if by, is := of.changed(&before, &limits[i], made); is {
			p.foreign = append(p.foreign, foreign{stored.Level, before, limits[i], by})
			continue
		}
		after := limits[i]
		if budgets || after.Resets == "" && after.Session == 0 {
			if after, err = scaledLimit(after, factor); err != nil {
				return fmt.Errorf("%v: %w", stored.Level, err)
			}
		} else {
			p.kept++
		}
		scaled = scaled || after.String() != limits[i].String()
		if after.String() != before.String() {
			p.changes = append(p.changes, scaling{stored.Level.Source(), stored.Level.Resource, stored.Level.Entity, before, after, stored.Level})
		}
	}
	if scaled && files.Has(stored) {
		p.managed++
	}
	return nil
}

// scaleLevel changes limits of one level, unless someone else has changed them since they were read.
func scaleLevel(ctx context.Context, l *zlimit.RateLimiter, changes []scaling) error {
	return l.Limits.Update(ctx, changes[0].at, func(config *zlimit.Config) error {
		for i := range changes {
			c := &changes[i]
			at := slices.IndexFunc(config.Limits, func(l zlimit.Limit) bool { return l.Name == c.Before.Name })
			if at < 0 || config.Limits[at].String() != c.Before.String() {
				return fmt.Errorf("%v: limit %s has changed since it was shown; run the command again", c.at, c.Before.Name)
			}
			config.Limits[at] = c.After
		}
		return nil
	})
}

// scaledLimit returns a limit with all amounts multiplied. Floors and shares are parts of them.
func scaledLimit(l zlimit.Limit, factor *big.Rat) (zlimit.Limit, error) {
	var err error
	of := func(n int64) int64 {
		if n == 0 {
			return 0
		}
		product := new(big.Rat).Mul(new(big.Rat).SetInt64(n), factor)
		whole := new(big.Int).Quo(product.Num(), product.Denom())
		if !whole.IsInt64() {
			err = fmt.Errorf("limit %s: %d times %s is too large", l.Name, n, factor.RatString())
			return n
		}
		return max(1, whole.Int64())
	}
	l.Capacity, l.RefillAmount, l.Carry = of(l.Capacity), of(l.RefillAmount), of(l.Carry)
	if l.Windows == "" || err != nil {
		return l, err
	}
	windows := strings.Split(l.Windows, ";")
	for i, w := range windows {
		pattern, change, ok := strings.Cut(w, "to ")
		if !ok {
			continue // a multiple of the limit
		}
		c, err := calendar.ParseChange("to " + strings.TrimSpace(change))
		if err != nil {
			return l, err
		}
		c.Capacity, c.Refill = of(c.Capacity), of(c.Refill)
		windows[i] = pattern + c.String()
	}
	l.Windows = strings.Join(windows, ";")
	return l, err
}
