package stacks

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/internal/tool/atomicfile"
	"github.com/zlimit/zlimit-go/stack"
)

func templateCommand(sh *shell.Shell) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "cfn-template",
		Short: "Print the CloudFormation template of a deployment",
		Long: `Cfn-template prints the template that deploy uses, for a pipeline of your own.
It is the same for every deployment: the parameters say what differs.

  cfn        the template itself
  cdk        a construct in TypeScript that includes it
  terraform  a module around it

The latter two read the template from zlimit.yaml beside them.`,
		Example: `  zlimit stack cfn-template > zlimit.yaml
  zlimit stack cfn-template --format terraform > main.tf`,
		Args: shell.Takes(),
		RunE: func(*cobra.Command, []string) error {
			p := &show.Page{}
			switch format {
			case "cfn":
				p.WriteString(stack.Template)
			case "cdk":
				p.WriteString(stack.CDK())
			case "terraform":
				p.WriteString(stack.Terraform())
			default:
				return shell.Usagef("--format %s: must be cfn, cdk or terraform", format)
			}
			return sh.Write(p)
		},
	}
	cmd.Flags().StringVar(&format, "format", "cfn", "`form`: cfn, cdk, terraform")
	return cmd
}

func exportCommand(sh *shell.Shell) *cobra.Command {
	var code string
	cmd := &cobra.Command{
		Use:   "lambda-export FILE",
		Short: "Write the zip of the aggregator's function",
		Long: `Lambda-export writes the zip that deploy uploads, for pipelines with a
deployment of their own. A release has the program of the function inside, for
arm64; another build takes this program, or builds one where it is not for
Linux. The same zlimit gives the same bytes.`,
		Example: `  zlimit stack lambda-export function.zip`,
		Args:    shell.Takes("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := codeOf(cmd.Context(), sh, code)
			if err != nil {
				return err
			}
			if err := atomicfile.Write(args[0], c.Zip); err != nil {
				return fmt.Errorf("write the zip: %w", err)
			}
			type result struct {
				File         string `json:"file"`
				Key          string `json:"key"`
				Architecture string `json:"architecture"`
				Bytes        int    `json:"bytes"`
			}
			r := result{args[0], c.Key(), c.Architecture, len(c.Zip)}
			return sh.Print(r, func(p *show.Page) {
				p.Linef("%s: %d bytes for %s; its place in the bucket is %s", r.File, r.Bytes, r.Architecture, r.Key)
			})
		},
	}
	cmd.Flags().StringVar(&code, "code", "", "zip `file` to check and copy (default that of deploy)")
	return cmd
}
