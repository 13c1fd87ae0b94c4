package stacks

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/internal/tool/atomicfile"
	"github.com/zlimit/zlimit-go/stack"
)

// planFormat is the first number in a file with a plan of a stack.
const planFormat = 1

// A savedPlan is the plan of a deployment in a file, with its settings and their result. The code is not in it, but its
// hash is part of the plan's mark.
type savedPlan struct {
	Format  int           `json:"zlimit_stack_plan"`
	Options stack.Options `json:"options"`
	Plan    *stack.Plan   `json:"plan"`
	Mark    string        `json:"mark"`
}

// savePlan writes a plan to a file, in the place of nothing or of another plan.
func savePlan(path string, o *stack.Options, p *stack.Plan) error {
	had, err := os.ReadFile(path)
	switch {
	case err == nil:
		if _, wrong := decodePlan(path, had); len(had) > 0 && wrong != nil {
			return shell.Usagef("%s: is there already, and is not a plan: it is not replaced", path)
		}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	options := *o
	options.Code = nil
	text, err := json.MarshalIndent(savedPlan{planFormat, options, p, p.Mark}, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(path, append(text, '\n'))
}

func decodePlan(path string, text []byte) (*savedPlan, error) {
	var saved savedPlan
	if err := json.Unmarshal(text, &saved); err != nil || saved.Format != planFormat || saved.Plan == nil {
		return nil, shell.Usagef("%s: is not a plan that zlimit stack deploy --plan --out has written", path)
	}
	saved.Plan.Mark = saved.Mark
	return &saved, nil
}

// applyPlan deploys the settings in a file, provided that they still make its plan.
func applyPlan(cmd *cobra.Command, sh *shell.Shell, f *stackFlags, path, code string) error {
	var other string
	cmd.Flags().Visit(func(flag *pflag.Flag) {
		switch flag.Name {
		case "apply", "code", "region", "profile", "endpoint", "output":
		default:
			other = flag.Name
		}
	})
	if other != "" {
		return shell.Usagef("deploy: --apply excludes --%s: the plan has all settings", other)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return shell.Usagef("--apply: %v", err)
	}
	saved, err := decodePlan(path, text)
	if err != nil {
		return err
	}
	o := saved.Options
	if err := errors.Join(o.Validate()...); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if o.Version == "" && runsCode(&o) {
		if o.Code, err = codeOf(cmd.Context(), sh, code); err != nil {
			return err
		}
	}
	return deploy(cmd.Context(), sh, f, o, execution{saved: saved.Plan})
}
