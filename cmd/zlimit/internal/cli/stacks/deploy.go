// Package stacks has the commands that deploy zlimit and look after deployments.
package stacks

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/stack"
)

// Command returns the command stack.
func Command(sh *shell.Shell) *cobra.Command {
	return shell.Group("a command such as deploy or status", &cobra.Command{
		Use:   "stack",
		Short: "Deploy zlimit on AWS, and manage deployments",
		Long: `A stack of CloudFormation has all that zlimit needs in an AWS account: the
table, the aggregator of usage, alarms, policies and a bucket.

  deploy   make a stack, or change it
  status   how it does: table, aggregator, dead letters, alarms, drift
  check    whether this version of zlimit fits it
  upgrade  bring it to this version
  list     the stacks of a region
  delete   delete it; its table and archive stay

  dead-letters   changes that Lambda gave up, and a way to apply them after all
  cfn-template   the template, for pipelines of your own
  lambda-export  the code of the functions, for pipelines of your own`,
		Example: `  zlimit stack deploy --name limits --region eu-central-1
  zlimit stack status --name limits`,
	}, deployCommand(sh), statusCommand(sh), checkCommand(sh), upgradeCommand(sh), lettersCommand(sh), listCommand(sh), deleteCommand(sh),
		templateCommand(sh), exportCommand(sh))
}

// stackFlags say which stack a command is about.
type stackFlags struct{ name, region, profile, endpoint string }

// where adds the flags that say where stacks are.
func (f *stackFlags) where(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.region, "region", "", "AWS `region`")
	flags.StringVar(&f.profile, "profile", "", "`profile` of the AWS configuration")
	flags.StringVar(&f.endpoint, "endpoint", "", "`URL` that serves all of AWS")
}

// named adds the flags for the name and place of a stack.
func (f *stackFlags) named(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.name, "name", "", "`name` of the stack")
	f.where(cmd)
}

// existing adds the same flags to a command on an existing stack, which must name it.
func (f *stackFlags) existing(cmd *cobra.Command) {
	f.named(cmd)
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if f.name == "" {
			return shell.Usagef("%s: --name is missing; see %s --help", cmd.Name(), cmd.CommandPath())
		}
		return nil
	}
}

// stacks returns what deploys.
func stacks(ctx context.Context, sh *shell.Shell, f *stackFlags) (*stack.Manager, error) {
	if sh.Manage != nil {
		return sh.Manage(), nil
	}
	return stackManager(ctx, f)
}

func deployCommand(sh *shell.Shell) *cobra.Command {
	var f stackFlags
	var run execution
	var reset, tags []string
	var o stack.Options
	var code, apply string
	cmd := &cobra.Command{
		Use:   "deploy --name NAME",
		Short: "Deploy table, aggregator, alarms and policies",
		Long: `Deploy brings a CloudFormation stack to this version of zlimit, with the
settings that the flags give. Settings without a flag keep the value of the
stack; --reset brings a default back. It shows what would change, asks, and
then shows the progress of CloudFormation.

With --plan it shows what would change, and stops: with exit code 0 where that
is nothing, and with 4 otherwise.

It can be repeated: where nothing changes nothing is done, and where another run
ended too early it goes on. An interrupt ends the waiting, not the work.

With --out the plan goes to a file. --apply does what such a file says, without
asking, and refuses when anything is not as the plan has seen it.

The way back: --version brings the stack back to a version that it had before,
with all settings as they are. The bucket of the stack keeps the template and
the code of the last five. --allow-downgrade lets an earlier zlimit deploy to a
stack of a later one. Both are refused where the table is for later versions.

The table and the bucket are never replaced or removed by deploy, and stay when
the stack is deleted.`,
		Example: `  zlimit stack deploy --name limits --region eu-central-1
  zlimit stack deploy --name limits --memory 1024 --no-archive
  zlimit stack deploy --name limits --reset memory --yes
  zlimit stack deploy --name limits --plan --out limits.plan
  zlimit stack deploy --apply limits.plan
  zlimit stack deploy --name limits --version 0.17.1`,
		Args: shell.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if apply != "" {
				return applyPlan(cmd, sh, &f, apply, code)
			}
			if run.out != "" && !run.plan {
				return shell.Usagef("deploy: --out goes with --plan")
			}
			if o.Settings, err = settingsOf(cmd); err != nil {
				return err
			}
			o.Name, o.Reset = f.name, reset
			if o.Tags, err = tagsOf(tags); err != nil {
				return err
			}
			if err := errors.Join(o.Validate()...); err != nil {
				return err
			}
			if o.Version != "" && code != "" {
				return shell.Usagef("deploy: --version excludes --code: the bucket has the code")
			}
			if o.Version == "" && runsCode(&o) {
				if o.Code, err = codeOf(cmd.Context(), sh, code); err != nil {
					return err
				}
			}
			return deploy(cmd.Context(), sh, &f, o, run)
		},
	}
	f.named(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&run.yes, "yes", false, "do not ask")
	flags.BoolVar(&run.plan, "plan", false, "show what would change, and stop")
	flags.StringVar(&run.out, "out", "", "write the plan to a `file`, for --apply")
	flags.StringVar(&apply, "apply", "", "execute the plan in a `file`, as it is")
	flags.StringVar(&o.Version, "version", "", "a `version` that the stack had, to go back to")
	flags.BoolVar(&o.AllowDowngrade, "allow-downgrade", false, "take the place of a later version")
	flags.StringSliceVar(&reset, "reset", nil, "`settings` that get their defaults, or tags")
	flags.StringArrayVar(&tags, "tag", nil, "`KEY=VALUE` on all resources; may be repeated")
	flags.StringVar(&code, "code", "", "zip `file` of the function")
	for _, s := range stack.Settings() {
		settingFlag(cmd, s)
	}
	return cmd
}

// settingFlag adds the flag of a setting; a switch also has a counterpart that begins with no-.
func settingFlag(cmd *cobra.Command, s stack.Setting) {
	flags := cmd.Flags()
	if s.Kind != stack.KindSwitch {
		unit := "text"
		switch {
		case s.Kind == stack.KindNumber:
			unit = "n"
		case strings.Contains(s.Doc, "ARN"):
			unit = "arn"
		}
		flags.Var(&unitValue{unit: unit}, s.Name, s.Flag)
		return
	}
	flags.Bool(s.Name, false, s.Flag)
	flags.Bool("no-"+s.Name, false, s.Flag)
	hidden := s.Name
	if s.Default == "false" {
		hidden = "no-" + s.Name
	}
	_ = flags.MarkHidden(hidden) // it was added above
}

// A unitValue is the value of a flag, whose help names a unit.
type unitValue struct{ text, unit string }

// String returns the value.
func (v *unitValue) String() string { return v.text }

// Set takes a value, which package stack checks.
func (v *unitValue) Set(text string) error {
	v.text = text
	return nil
}

// Type returns the unit.
func (v *unitValue) Type() string { return v.unit }

// settingsOf returns the settings that flags give. A switch and its counterpart exclude one another.
func settingsOf(cmd *cobra.Command) (map[string]string, error) {
	flags := cmd.Flags()
	given := map[string]string{}
	for _, s := range stack.Settings() {
		if flags.Changed(s.Name) {
			given[s.Name] = flags.Lookup(s.Name).Value.String()
		}
		no := "no-" + s.Name
		switch {
		case s.Kind != stack.KindSwitch || !flags.Changed(no):
		case flags.Changed(s.Name):
			return nil, shell.Usagef("--%s excludes --%s", no, s.Name)
		default:
			given[s.Name] = map[string]string{"true": "false", "false": "true"}[flags.Lookup(no).Value.String()]
		}
	}
	return given, nil
}

func tagsOf(texts []string) (map[string]string, error) {
	tags := map[string]string{}
	for _, text := range texts {
		key, value, ok := strings.Cut(text, "=")
		if !ok {
			return nil, shell.Usagef("--tag %s: must be KEY=VALUE", text)
		}
		tags[key] = value
	}
	return tags, nil
}

// codeOf returns the code of the function: that of a zip, or this program.
func codeOf(ctx context.Context, sh *shell.Shell, path string) (*stack.Code, error) {
	switch {
	case path == "" && sh.Code != nil:
		return sh.Code()
	case path == "":
		return stack.Self(ctx)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, shell.Usagef("--code: %v", err)
	}
	code, err := stack.Unpack(content)
	if err != nil {
		return nil, shell.Usagef("--code %s: %v", path, strings.TrimPrefix(err.Error(), "stack: "))
	}
	return code, nil
}

// runsCode reports whether a new stack with options has a function.
func runsCode(o *stack.Options) bool {
	return o.Settings["aggregator"] != "false" || o.Settings["provisioner"] == "true"
}

// An execution is how far a deployment goes.
type execution struct {
	yes   bool        // the command does not ask
	plan  bool        // the plan is shown, and no more
	out   string      // a file for the plan, "" for none
	saved *stack.Plan // that must be the plan of now; nil for any
}

func deploy(ctx context.Context, sh *shell.Shell, f *stackFlags, o stack.Options, run execution) error {
	m, err := stacks(ctx, sh, f)
	if err != nil {
		return err
	}
	printPlan := func(p *stack.Plan) error { return sh.Print(p, func(page *show.Page) { planPage(sh, page, p) }) }
	h := stack.Hooks{
		Confirm: func(p *stack.Plan) (bool, error) {
			if !sh.Output.JSON {
				if err := printPlan(p); err != nil {
					return false, err
				}
			}
			if run.saved != nil {
				return true, run.saved.Check(p)
			}
			return shell.Agreed(sh.Confirm("Execute this plan?", run.yes))
		},
		Join: func(status string) { sh.Note("note: " + o.Name + " is " + status + "; waiting for that first") },
	}
	if run.plan {
		p, err := m.Plan(ctx, o, h)
		if err != nil {
			return err
		}
		if run.out != "" {
			if err := savePlan(run.out, &o, p); err != nil {
				return err
			}
		}
		if err := printPlan(p); err != nil || p.UpToDate {
			return err
		}
		return shell.ErrDiffers
	}
	if !sh.Output.JSON {
		h.Watch = func(e stack.Event) { _ = sh.Write(eventPage(e)) } // what cannot be shown is done all the same
	}
	d, err := m.Deploy(ctx, o, h)
	switch {
	case errors.Is(err, stack.ErrDeclined):
		return shell.ErrDeclined
	case err != nil:
		return err
	}
	return sh.Print(d, func(p *show.Page) {
		if !d.Changed {
			p.Linef("%s is up to date", d.Stack)
			return
		}
		p.Linef("%s is deployed: table %s", d.Stack, d.Outputs["TableName"])
	})
}

// marks stand before changes, as diffs have them.
var marks = map[stack.Action]string{stack.ActionAdd: "+", stack.ActionModify: "~", stack.ActionRemove: "-", stack.ActionReplace: "±", stack.ActionImport: "←"}

func planPage(sh *shell.Shell, page *show.Page, p *stack.Plan) {
	if p.UpToDate {
		page.Linef("%s is up to date", p.Stack)
		return
	}
	verb := "change"
	if p.New {
		verb = "create"
	}
	page.Linef("Plan: %s stack %s", verb, p.Stack)
	if len(p.Changes) == 0 {
		page.Linef("  tags or parameters alone, and no resource")
	}
	counts := map[stack.Action]int{}
	for _, later := range []bool{false, true} {
		if later && slices.ContainsFunc(p.Changes, func(c stack.Change) bool { return c.Later }) {
			page.Linef("then, in further steps:")
		}
		for _, c := range p.Changes {
			if c.Later == later {
				counts[c.Action]++
				page.Linef("%s", show.Raw(changeLine(sh, c)))
			}
		}
	}
	page.Linef("%d to add, %d to change, %d to replace, %d to remove, %d to import", counts[stack.ActionAdd], counts[stack.ActionModify], counts[stack.ActionReplace], counts[stack.ActionRemove], counts[stack.ActionImport])
	page.Linef("Fixed cost: %d.%02d USD a month in us-east-1; the rest depends on use", p.Cost/100, p.Cost%100)
}

// changeLine is a line about one change; replacements are red.
func changeLine(sh *shell.Shell, c stack.Change) string {
	line := fmt.Sprintf("  %s %-24s %s", marks[c.Action], show.Printable(c.Resource), show.Printable(c.Type))
	if c.ID != "" {
		line += "  " + show.Printable(c.ID)
	}
	if len(c.Properties) > 0 {
		line += "  (" + show.Printable(strings.Join(c.Properties, ", ")) + ")"
	}
	if c.Action == stack.ActionReplace {
		line += "  replaced"
		if sh.Live && sh.Env("NO_COLOR") == "" {
			line = "\x1b[31m" + line + "\x1b[0m"
		}
	}
	return line
}

// eventPage is a line about what CloudFormation does.
func eventPage(e stack.Event) *show.Page {
	p := &show.Page{}
	line := fmt.Sprintf("%s  %-19s  %s", e.Time.Format("15:04:05"), e.Status, e.Resource)
	if e.Reason != "" {
		line += ": " + e.Reason
	}
	p.Linef("%s", line)
	return p
}
