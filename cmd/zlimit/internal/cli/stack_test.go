package cli

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/internal/proof/cfn"
	"github.com/zlimit/zlimit-go/internal/tool/wait"
	"github.com/zlimit/zlimit-go/stack"
)

// TestScriptsOnStacks runs scripts on a CloudFormation in memory. `answer TEXT` gives the next command a terminal with
// that input; without it there is no input. `fail RESOURCE REASON` makes a resource fail from then on, and `fail RESOURCE`
// makes it succeed again. `deployed STACK VERSION` sets the version of a stack.
func TestScriptsOnStacks(t *testing.T) {
	p := scripts("testdata/stack", "")
	setup := p.Setup
	type service struct{}
	type input struct{}
	p.Setup = func(env *testscript.Env) error {
		if err := setup(env); err != nil {
			return err
		}
		env.Values[service{}] = cfn.NewService()
		env.Values[input{}] = new(string)
		code, err := stack.Pack(cfn.Executable())
		if err != nil {
			return err
		}
		return os.WriteFile(env.WorkDir+"/function.zip", code.Zip, 0o600)
	}
	p.Cmds["zlimit"] = func(ts *testscript.TestScript, neg bool, args []string) {
		s, stdin := ts.Value(service{}).(*cfn.Service), ts.Value(input{}).(*string)
		now := func() time.Time { return historyNow }
		sh := &shell.Shell{
			Stdin: strings.NewReader(*stdin), Stdout: ts.Stdout(), Stderr: ts.Stderr(), Env: ts.Getenv, Now: now, Sleep: wait.For,
			Live: ts.Getenv("TERM") == "color",
			Manage: func() *stack.Manager {
				return stack.New(s.Clients(), stack.WithPoll(0), stack.WithClock(now))
			},
		}
		sh.Asks, *stdin = *stdin != "", ""
		code := Run(context.Background(), sh, args)
		*ts.Value(lastCode{}).(*int) = code
		if neg == (code == shell.ExitOK) {
			ts.Fatalf("zlimit %s: exit code %d", strings.Join(args, " "), code)
		}
	}
	p.Cmds["answer"] = func(ts *testscript.TestScript, _ bool, args []string) {
		*ts.Value(input{}).(*string) = strings.Join(args, " ") + "\n"
	}
	p.Cmds["fail"] = func(ts *testscript.TestScript, _ bool, args []string) {
		ts.Value(service{}).(*cfn.Service).Fail[args[0]] = strings.Join(args[1:], " ")
	}
	p.Cmds["deployed"] = func(ts *testscript.TestScript, _ bool, args []string) {
		ts.Value(service{}).(*cfn.Service).SetTag(args[0], "zlimit:version", args[1])
	}
	p.UpdateScripts = os.Getenv("ZLIMIT_UPDATE") != ""
	testscript.Run(t, p)
}
