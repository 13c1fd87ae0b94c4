package entities

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
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/rotate"
	"github.com/zlimit/zlimit-go/internal/grammar"
	"github.com/zlimit/zlimit-go/zlimit"
)

func rotateCommand(sh *shell.Shell) *cobra.Command {
	var dry bool
	cmd := &cobra.Command{
		Use:   "rotate OLD NEW [--dry-run]",
		Short: "Give an entity a new ID: limits, budgets, parent, children",
		Long: `Rotate makes NEW the successor of OLD, such as a tenant whose ID has leaked:

  1. It suspends NEW, which must not exist, and creates it with the name and the
     metadata of OLD. Buckets of both for each resource that has limits or was
     used refuse requests from then on, in every process.
  2. It suspends OLD. Leases that are open are settled with OLD. If OLD has
     limits for any resource, by default or of the system, it waits 65 seconds:
     until then, a process may have it in memory that OLD is served. A run after
     an interrupted one waits for the rest of that time.
  3. It moves NEW and the children of OLD to their places. Parents are not
     charged again.
  4. It makes each bucket of NEW have what that of OLD has: balances, top-ups,
     open sessions, limits that requests brought. It copies the limits, and
     suspends, enables and bypasses what was so for OLD. NEW serves requests.
     Processes that refuse NEW or a child check once a second, and serve them
     within seconds.

An interrupted run is finished by the same command, with what OLD has by then:
limits, top-ups and resets of OLD meanwhile hold for NEW. What was changed of
NEW before is replaced, and printed. Once it is done, the command checks that
OLD is still suspended, and suspends it again. Metadata names OLD as
rotated_from of NEW, and NEW as rotated_to of OLD: an entity has one rotation.

Usage of the past stays with OLD, which keeps its record and its parent. What
NEW has less from the beginning is no usage: a bill of both has each request
once. The command prints it as used, and prints it again when it is repeated.
What was topped up and is used again is neither used nor granted: used is net of
top-ups. Limits are those that hold now: where one was raised, used has what the
raise does not add to the running period. A limit that is not stored any more is
left out. Slots stay with the leases that hold them.

It costs some 75 write units and 65 read units; 21 and 78 for each level, 15 and
78 for each resource that was used, and 18 and 5 for each child.`,
		Example: `  zlimit entity rotate acme acme-2 --dry-run
  zlimit entity rotate acme acme-2`,
		Args: shell.Takes("OLD", "NEW"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if dry {
				plan, err := shell.Look(cmd.Context(), sh, func(ctx context.Context, l *zlimit.RateLimiter) (*rotate.Rotation, error) {
					return rotate.Plan(ctx, l, args[0], args[1], sh.Now)
				})
				if err != nil {
					return err
				}
				return sh.Print(plan, func(p *show.Page) { writeRotation(p, plan, true, sh.Now()) })
			}
			progress := sh.ProgressLine()
			step := ""
			done, err := shell.Do(cmd.Context(), sh, func(ctx context.Context, l *zlimit.RateLimiter) (*rotate.Rotation, error) {
				done, err := rotate.Run(ctx, l, args[0], args[1], func(now string) {
					step = now
					progress.Show(stepText(now, args[0], args[1]))
				}, sh.Now, func(ctx context.Context, rest time.Duration) error {
					rest = (rest + time.Second - 1).Truncate(time.Second)
					sh.Note(fmt.Sprintf("waiting %v, since limits of %s hold for any resource: until then, a process may have it in memory that %[2]s is served", rest, args[0]))
					for ; rest > 0; rest -= time.Second {
						progress.Show(fmt.Sprintf("waiting, %v left", rest))
						if err := sh.Sleep(ctx, time.Second); err != nil {
							return err
						}
					}
					return nil
				})
				if err == nil {
					err = done.Look(ctx, l)
				}
				return done, err
			})
			progress.End()
			if errors.Is(err, zlimit.ErrEntityChanged) {
				return shell.Unfinished(err, "another run of the rotation seems to be at work; the same command goes on")
			}
			if err != nil && step != "" {
				return shell.Unfinished(err, "stopped at "+step+"; the same command goes on")
			}
			if err != nil {
				return err
			}
			return sh.Print(done, func(p *show.Page) { writeRotation(p, done, false, sh.Now()) })
		},
	}
	cmd.Flags().BoolVar(&dry, "dry-run", false, "show what it would do, and do nothing")
	return cmd
}

// stepText says what a run is doing.
func stepText(step, from, to string) string {
	switch step {
	case "copying":
		return "creating " + to
	case "closing":
		return "suspending " + from
	case "joining":
		return "moving " + to + " and the children of " + from + " to their places"
	case "opening":
		return "carrying over what " + from + " has"
	default:
		return step
	}
}

// writeRotation writes what a rotation has done, or what it would do.
func writeRotation(p *show.Page, r *rotate.Rotation, dry bool, now time.Time) {
	switch {
	case r.Repeated && r.Suspended && dry:
		p.Linef("entity %s is the new ID of %s, which is served: nothing is done yet", r.To, r.From)
	case r.Repeated && r.Suspended:
		p.Linef("entity %s is the new ID of %s, which was served, and is suspended again", r.To, r.From)
	case r.Repeated:
		p.Linef("entity %s is the new ID of %s: an earlier run has done all of it", r.To, r.From)
	case dry:
		p.Linef("entity %s becomes the new ID of %s; nothing is done yet", r.To, r.From)
	default:
		p.Linef("entity %s is the new ID of %s, which is suspended", r.To, r.From)
	}
	if r.Resumed != "" {
		p.Linef("  goes on from an interrupted run, which was %s", r.Resumed)
	}
	for _, at := range r.Levels {
		p.Linef("  limits   %v", at)
	}
	for _, c := range r.Charges {
		if len(c.Used) > 0 {
			p.Linef("  used     %s: %s", c.Resource, amountsOf(c.Used))
		}
		if len(c.Granted) > 0 {
			p.Linef("  granted  %s: %s", c.Resource, amountsOf(c.Granted))
		}
	}
	for _, c := range r.Settled {
		p.Linef("  changed  %s: %s had %s meanwhile, and has %s as %s", c.Resource, r.To, quantityOf(c.Limit, c.Before), quantityOf(c.Limit, c.After), r.From)
	}
	for _, l := range r.Left {
		p.Linef("%s has %s left for %s", r.To, leftOf(l.Statuses), l.Resource)
	}
	if r.Wait > 0 {
		p.Linef("  wait     %d seconds, since limits of %s hold for any resource", r.Wait, r.From)
	}
	if r.Parent != "" && !r.Repeated {
		p.Linef("  parent   %s", r.Parent)
	}
	for _, child := range r.Children {
		p.Linef("  child    %s", child)
	}
	p.Linef("usage of the past stays with %s; what %s has less from the beginning is no usage of it", r.From, r.To)
	writeRotationTimes(p, r, now)
	for _, note := range r.Notes {
		p.Linef("note: %s", note)
	}
}

// writeRotationTimes writes until when running processes may decide by what they had in memory before the rotation.
func writeRotationTimes(p *show.Page, r *rotate.Rotation, now time.Time) {
	if r.Everywhere.After(now) {
		p.Linef("a request of %s that brings its own limits, for a resource that was not used before, is refused from %s on", r.From, r.Everywhere.UTC().Format(time.DateTime))
	}
	at := r.Served.UTC().Format(time.DateTime)
	switch {
	case r.Served.IsZero():
	case r.Served.After(now):
		p.Linef("running processes serve %s and its children within seconds; one that was asked for %s before the rotation, and earlier versions, refuse them until %s",
			r.To, r.To, at)
	default:
		p.Linef("running processes serve %s and its children, all of them since %s", r.To, at)
	}
}

// leftOf writes what is left of limits, such as $97.5 of $100, or 5 of 10 tpd.
func leftOf(statuses zlimit.Statuses) string {
	var parts []string
	for i := range statuses {
		s := &statuses[i]
		text := show.Amount(s.Limit.Name, s.Available) + " of " + show.Amount(s.Limit.Name, s.Now().Capacity)
		if s.Limit.Name != grammar.Money {
			text += " " + s.Limit.Name
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}

func quantityOf(limit string, q zlimit.Quantity) string {
	return limit + "=" + show.Quantified(limit, q)
}

func amountsOf(amounts zlimit.Amounts) string {
	var parts []string
	for _, limit := range slices.Sorted(maps.Keys(amounts)) {
		parts = append(parts, limit+"="+show.Amount(limit, amounts[limit]))
	}
	return strings.Join(parts, ", ")
}
