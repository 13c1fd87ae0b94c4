// Command rehearse is the command zlimit for tests of the documentation, with AWS in its memory. Deployments are made in
// a CloudFormation of package cfn, which is empty at first and works at once. Everything else is as in zlimit.
//
// Each line of the standard input is a [request] as JSON; its [reply] is a line of the standard output. With -commands it
// prints all commands with their flags. With other arguments it is zlimit itself, as which `zlimit local up` starts it.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/internal/cfn"
	"github.com/zlimit/zlimit-go/internal/wait"
	"github.com/zlimit/zlimit-go/stack"
)

// A request is a command to run.
type request struct {
	Args   []string          `json:"args"`
	Env    map[string]string `json:"env"`
	Answer string            `json:"answer"` // what is typed when the command asks; without, the input is no terminal
}

// A reply is what came of a command.
type reply struct {
	Code   int    `json:"code"`
	Stdout string `json:"stdout"`
	Stderr string `json:"stderr"`
}

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	switch {
	case len(args) == 0:
		err = rehearse(ctx, os.Stdin, os.Stdout)
	case args[0] == "-commands":
		root := cli.Root(&shell.Shell{Stdout: os.Stdout, Stderr: os.Stderr, Env: os.Getenv})
		err = json.NewEncoder(os.Stdout).Encode(commands(root))
	default:
		return cli.Main(ctx, args, os.Stdin, os.Stdout, os.Stderr, os.Getenv)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "rehearse:", err)
		return 1
	}
	return 0
}

// rehearse runs the commands of a stream, one after another.
func rehearse(ctx context.Context, in io.Reader, out io.Writer) error {
	service := cfn.NewService()
	requests, replies := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var r request
		if err := requests.Decode(&r); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := replies.Encode(answer(ctx, service, &r)); err != nil {
			return err
		}
	}
}

// answer runs one command, in an environment of its own.
func answer(ctx context.Context, service *cfn.Service, r *request) reply {
	os.Clearenv()
	for name, value := range r.Env {
		if err := os.Setenv(name, value); err != nil { // AWS clients read theirs from the process
			return reply{Code: shell.ExitUsage, Stderr: err.Error()}
		}
	}
	var stdout, stderr bytes.Buffer
	sh := &shell.Shell{
		Stdin: strings.NewReader(r.Answer), Stdout: &stdout, Stderr: &stderr, Asks: r.Answer != "",
		Env: os.Getenv, Now: time.Now, Sleep: wait.For,
		Manage: func() *stack.Manager { return stack.New(service.Clients(), stack.WithPoll(0)) },
		Code:   func() (*stack.Code, error) { return stack.Pack(cfn.Executable()) },
	}
	code := cli.Run(ctx, sh, r.Args)
	return reply{code, stdout.String(), stderr.String()}
}

// A command is one that people can run, or a group of them.
type command struct {
	Path  string   `json:"path"` // such as zlimit limits set
	Use   string   `json:"use"`  // its line of use
	Short string   `json:"short"`
	Long  string   `json:"long"`
	Group bool     `json:"group"` // whether it has commands below it
	Flags []string `json:"flags"` // long names; those of all commands are among the flags of the first
	Usage string   `json:"usage"` // its own flags with what they do, a line each
}

// commands returns a command and those below it, in the order of their paths.
func commands(cmd *cobra.Command) []command {
	cmd.InitDefaultHelpFlag()
	c := command{Path: cmd.CommandPath(), Use: cmd.UseLine(), Short: cmd.Short, Long: cmd.Long, Usage: cmd.NonInheritedFlags().FlagUsages()}
	cmd.NonInheritedFlags().VisitAll(func(f *pflag.Flag) { c.Flags = append(c.Flags, f.Name) })
	all := []command{c}
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			all[0].Group = true
			all = append(all, commands(sub)...)
		}
	}
	return all
}
