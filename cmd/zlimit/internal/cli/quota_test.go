package cli

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/internal/tool/wait"
)

// quotaNow is where the clock of the quota scripts stands.
var quotaNow = time.Date(2026, time.February, 20, 14, 32, 30, 0, time.UTC)

// TestQuotaScripts runs commands that TestScripts cannot. Their clock stands still, at $NOW if that is set, they read the file $STDIN, and
// $PROVIDER counts tokens for them. `written FILE TIME` sets when a file was written.
func TestQuotaScripts(t *testing.T) {
	provider := httptest.NewServer(http.HandlerFunc(countBytes))
	t.Cleanup(provider.Close)
	p := scripts("testdata/quota", "")
	setup := p.Setup
	p.Setup = func(env *testscript.Env) error {
		env.Setenv("PROVIDER", provider.URL)
		return setup(env)
	}
	p.Cmds["zlimit"] = func(ts *testscript.TestScript, neg bool, args []string) {
		stdin := ""
		if file := ts.Getenv("STDIN"); file != "" {
			stdin = ts.ReadFile(file)
		}
		now := quotaNow
		if at := ts.Getenv("NOW"); at != "" {
			var err error
			now, err = time.Parse(time.RFC3339, at)
			ts.Check(err)
		}
		sh := &shell.Shell{
			Stdin: strings.NewReader(stdin), Stdout: ts.Stdout(), Stderr: ts.Stderr(), Env: ts.Getenv,
			Now: func() time.Time { return now }, Sleep: wait.For,
		}
		code := Run(context.Background(), sh, args)
		*ts.Value(lastCode{}).(*int) = code
		if neg == (code == shell.ExitOK) {
			ts.Fatalf("zlimit %s: exit code %d", strings.Join(args, " "), code)
		}
	}
	p.Cmds["written"] = func(ts *testscript.TestScript, _ bool, args []string) {
		at, err := time.Parse(time.RFC3339, args[1])
		ts.Check(err)
		ts.Check(os.Chtimes(ts.MkAbs(args[0]), at, at))
	}
	p.Cmds["latin1"] = func(ts *testscript.TestScript, _ bool, args []string) {
		ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte("caf\xe9"), 0o600))
	}
	testscript.Run(t, p)
}

// countBytes counts bytes for tokens, in the protocols of all providers.
func countBytes(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Contents []struct{ Parts []struct{ Text string } }
		Input    string
		Messages []struct{ Content string }
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var key, text, field string
	switch path := r.URL.Path; {
	case strings.HasPrefix(path, "/v1beta/models/") && strings.HasSuffix(path, ":countTokens"):
		key, text, field = r.Header.Get("X-Goog-Api-Key"), body.Contents[0].Parts[0].Text, "totalTokens"
	case path == "/v1/responses/input_tokens":
		key, text, field = strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), body.Input, "input_tokens"
	case path == "/v1/messages/count_tokens":
		key, text, field = r.Header.Get("X-Api-Key"), body.Messages[0].Content, "input_tokens"
	default:
		http.NotFound(w, r)
		return
	}
	if key != "the-secret-key" {
		w.WriteHeader(http.StatusUnauthorized)
		_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]string{"message": "no such key: " + key}})
		return
	}
	_ = json.NewEncoder(w).Encode(map[string]int{field: len(text)})
}

// TestQuotaBadInput shows that bad input of the quota commands is one line, exits with 2, and creates nothing.
func TestQuotaBadInput(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state.yaml")
	for _, test := range []struct{ args, want string }{
		{"quota", "quota: status, reset, set, migrate or count is missing"},
		{"quota stat", `no command "stat"; did you mean status?`},
		{"quota status --store memory:", "quota status: --store is for limits in a store"},
		{"quota status --namespace n", "quota status: --namespace is for limits in a store"},
		{"quota status a b", `quota status: one argument too many, "b"`},
		{"quota status a --key b", "quota status: --key excludes MODEL"},
		{"quota status --key=", `quota: key "" must not be empty`},
		{"quota status", "no state file: give --state PATH, since $"},
		{"quota reset", "quota reset: MODEL, --key or --all is missing"},
		{"quota reset a --all", "quota reset: --all excludes MODEL and --key"},
		{"quota reset --key a --all", "quota reset: --all excludes MODEL and --key"},
		{"quota set --rpm 1", "quota set: MODEL or --key is missing"},
		{"quota set a", "quota set: a limit such as --rpm is missing"},
		{"quota set a --rpm -1", "quota set: --rpm -1: must be 0, which is unlimited, or more"},
		{"quota set a --output-tpm -1", "quota set: --output-tpm -1: must be"},
		{"quota set a --rpm x", `invalid argument "x" for "--rpm" flag`},
		{"quota set a\x01 --rpm 1", `quota: model "a\x01" must not contain`},
		{"quota migrate", "migrate: YAML is missing"},
		{"quota migrate a", "migrate: SQLITE is missing"},
		{"quota migrate a b c", `migrate: one argument too many, "c"`},
		{"quota count", "count: MODEL is missing"},
		{"quota count gpt-4o x", "quota count: no API key of openai: set OPENAI_API_KEY"},
	} {
		args := strings.Fields(test.args)
		if test.args != "quota status" && len(args) > 1 && slices.Contains([]string{"status", "reset", "set"}, args[1]) {
			args = append(args, "--state", state)
		}
		got := command(t, "", args...)
		if got.code != shell.ExitUsage || got.stdout != "" || strings.Count(got.stderr, "\n") != 1 ||
			!strings.HasPrefix(got.stderr, "zlimit: "+test.want) {
			t.Errorf("zlimit %s: code %d, stdout %q, stderr %q; want code 2 and one line on stderr, %q",
				test.args, got.code, got.stdout, got.stderr, test.want)
		}
		if _, err := os.Stat(state); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("zlimit %s has created %s", test.args, state)
		}
	}
}
