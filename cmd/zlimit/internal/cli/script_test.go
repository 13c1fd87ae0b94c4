package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
	"github.com/zlimit/zlimit-go/internal/proof/soak"
	"github.com/zlimit/zlimit-go/internal/tool/wait"
)

// TestScripts runs every command in this process, as a shell would. `zlimit` must succeed, and `! zlimit` must fail.
// `exits N` asks for the code of the last command, and `idof NAME` sets $ID to the ID of a deleted namespace.
func TestScripts(t *testing.T) { testscript.Run(t, scripts("testdata/script", "")) }

// TestScriptsOnEveryStore runs the same scripts on a table, and in its long form on a file as well.
func TestScriptsOnEveryStore(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) {
		if !soak.Runs() {
			t.Skip("in the long form; package sqlite tests the store in every run")
		}
		testscript.Run(t, scripts("testdata/stores", "sqlite:$WORK/limits.db"))
	})
	t.Run("dynamodb", func(t *testing.T) {
		engine := enginetest.Start(t)
		p := scripts("testdata/stores", "")
		setup := p.Setup
		p.Setup = func(env *testscript.Env) error {
			dsn, _ := engineDSN(t, engine)
			env.Setenv("ZLIMIT_STORE", dsn)
			return setup(env)
		}
		testscript.Run(t, p)
	})
}

// engineDSN names a table on an engine that no other test uses.
func engineDSN(t *testing.T, engine *enginetest.Engine) (dsn, table string) {
	table = engine.Table(t)
	return "dynamodb:" + table + "?region=" + enginetest.Region + "&endpoint=" + engine.Endpoint(), table
}

type lastCode struct{}

func scripts(dir, store string) testscript.Params {
	return testscript.Params{
		Dir:                 dir,
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			env.Values[lastCode{}] = new(int)
			if store != "" {
				env.Setenv("ZLIMIT_STORE", strings.ReplaceAll(store, "$WORK", env.WorkDir))
			}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"zlimit": func(ts *testscript.TestScript, neg bool, args []string) {
				patience := time.Second // of all sleeps of a command
				sh := &shell.Shell{
					Stdin: strings.NewReader(""), Stdout: ts.Stdout(), Stderr: ts.Stderr(), Env: ts.Getenv, Now: time.Now,
					Sleep: func(ctx context.Context, d time.Duration) error { // no other process has anything in memory
						d = min(d, patience)
						patience -= d
						return wait.For(ctx, d)
					},
				}
				code := Run(context.Background(), sh, args)
				*ts.Value(lastCode{}).(*int) = code
				if neg == (code == shell.ExitOK) {
					ts.Fatalf("zlimit %s: exit code %d", strings.Join(args, " "), code)
				}
			},
			"idof": func(ts *testscript.TestScript, _ bool, args []string) {
				var list struct{ Namespaces []struct{ ID, Name string } }
				var stdout bytes.Buffer
				Main(context.Background(), []string{"namespace", "orphans", "-o", "json"}, strings.NewReader(""), &stdout, ts.Stderr(), ts.Getenv)
				ts.Check(json.Unmarshal(stdout.Bytes(), &list))
				for _, ns := range list.Namespaces {
					if ns.Name == args[0] {
						ts.Setenv("ID", ns.ID)
					}
				}
			},
			"exits": func(ts *testscript.TestScript, neg bool, args []string) {
				if neg || len(args) != 1 {
					ts.Fatalf("usage: exits CODE")
				}
				if got := strconv.Itoa(*ts.Value(lastCode{}).(*int)); got != args[0] {
					ts.Fatalf("exit code = %s, want %s", got, args[0])
				}
			},
		},
	}
}
