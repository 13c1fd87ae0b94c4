package cli

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/internal/proof/check"
)

// TestBadInput: bad input of every kind is one line with the mistake, exits with 2, and leaves no trace.
func TestBadInput(t *testing.T) {
	dir := t.TempDir()
	db := filepath.Join(dir, "limits.db")
	store := "sqlite:" + db
	trace := filepath.Join(dir, "trace.csv")
	broken := filepath.Join(dir, "broken.csv")
	for name, text := range map[string]string{
		trace:  "TIMESTAMP,in\n2024-01-01 00:00:00,1\n",
		broken: "TIMESTAMP,in\n2024-01-01 00:00:00,1\nyesterday,1\n",
	} {
		check.Fatal(t, "os.WriteFile()", os.WriteFile(name, []byte(text), 0o600))
	}
	simulate := func(args ...string) []string {
		return append([]string{"simulate", "--store", store, "--trace", trace}, args...)
	}
	acquire := func(args ...string) []string { return append([]string{"acquire", "--store", store}, args...) }
	set := func(args ...string) []string { return append([]string{"limits", "set", "--store", store}, args...) }
	limit, cost := "--limit=a=1/s", "--cost=a=1"

	for _, test := range []struct {
		name string
		args []string
		want string // what the line says, behind "zlimit: "
	}{
		{"no such command", []string{"setups"}, `no command "setups"; did you mean setup?`},
		{"no such command at all", []string{"frobnicate"}, `no command "frobnicate"; see zlimit --help`},
		{"no such command of limits", []string{"limits", "sett"}, `no command "sett"; did you mean set?`},
		{"no command of limits", []string{"limits"}, "limits: a command such as set, get or plan is missing; see zlimit limits --help"},
		{"no such flag", []string{"version", "--verbose"}, "unknown flag: --verbose; see zlimit version --help"},
		{"an output form that is none", []string{"version", "-o", "yaml"}, `invalid argument "yaml" for "-o, --output" flag: must be table or json`},
		{"csv of what is no list", []string{"version", "-o", "csv"}, `invalid argument "csv" for "-o, --output" flag: must be table or json`},
		{"a form of a list that is none", []string{"limits", "list", "-o", "yaml"}, `invalid argument "yaml" for "-o, --output" flag: must be table, json or csv`},
		{"an argument too many", []string{"version", "now"}, `version: one argument too many, "now"`},

		{"an operation without a text", []string{"bucket", "top-up", "e", "r", "--add", "a=1", "--operation", ""}, "bucket top-up: --operation must not be empty"},
		{"an end without a text", []string{"bucket", "top-up", "e", "r", "--add", "a=1", "--until", ""}, "bucket top-up: --until must not be empty"},
		{"a reset without a text", []string{"bucket", "reset", "e", "r", "--operation", ""}, "bucket reset: --operation must not be empty"},
		{"a parent without a text", []string{"entity", "create", "e", "--parent", ""}, "entity create: --parent must not be empty"},
		{"usage of an entity without a text", []string{"usage", "summary", "--entity", "", "--resource", "r"}, "usage summary: --entity must not be empty"},

		{"a store that is none", []string{"setup", "--store", "redis:x"}, `invalid store "redis:x": must be memory:, sqlite:PATH or dynamodb:TABLE`},
		{"a store without a scheme", []string{"setup", "--store", "limits.db"}, `invalid store "limits.db"`},
		{"a store without a file", []string{"setup", "--store", "sqlite:"}, `invalid store "sqlite:": sqlite: must be followed by the path of a file`},
		{"a table name too short", []string{"setup", "--store", "dynamodb:t"}, `invalid store "dynamodb:t": a table name must have`},
		{"a timeout that is none", []string{"setup", "--store", "dynamodb:table?timeout=10"}, `invalid store "dynamodb:table?timeout=10": timeout must be a duration from 10ms to 5m, such as 10s`},
		{"a parameter that is none", []string{"setup", "--store", "dynamodb:table?zone=a"}, `invalid store "dynamodb:table?zone=a": dynamodb: takes region, endpoint, profile, idle and timeout, not "zone"`},
		{"a namespace that is none", []string{"setup", "--store", store, "--namespace", "a#b"}, `invalid namespace "a#b"`},

		{"no entity", acquire(), "acquire: ENTITY is missing; see zlimit acquire --help"},
		{"no resource", acquire("acme"), "acquire: RESOURCE is missing"},
		{"nothing to consume", acquire("acme", "gpt"), "acquire: --consume NAME=N is missing"},
		{"an amount that is none", acquire("acme", "gpt", "--consume", "rpm=x"), `consume "rpm=x": "x" must be a whole number from 0`},
		{"a negative amount", acquire("acme", "gpt", "--consume", "rpm=-1"), `consume "rpm=-1": "-1" must be a whole number from 0`},
		{"an entity that is none", acquire("a b", "gpt", "--consume", "rpm=1"), `invalid entity "a b": must hold only ASCII letters, digits and _.-:@/+|=~%`},
		{"a resource that is none", acquire("acme", "4 o", "--consume", "rpm=1"), `invalid resource "4 o": must hold only`},
		{"a limit of the request that is none", acquire("acme", "gpt", "--consume", "rpm=1", "--limit", "rpm=1"), `limit "rpm=1": must be NAME=CAPACITY`},
		{"a limit that the request does not have", acquire("acme", "gpt", "--consume", "rpm=1", limit), `invalid consume "rpm": no limit of that name`},
		{"a policy that is none", acquire("acme", "gpt", "--consume", "rpm=1", "--on-unavailable", "retry"), `invalid failure policy "retry": must be`},
		{"a negative wait", acquire("acme", "gpt", "--consume", "rpm=1", "--wait", "-1s", "--on-unavailable", "allow"), "acquire: --wait -1s: must not be negative"},
		{"a wait below a millisecond", acquire("acme", "gpt", "--consume", "rpm=1", "--wait", "1us"), "acquire: --wait 1µs: must be whole milliseconds"},
		{"a wait without a unit", acquire("acme", "gpt", "--consume", "rpm=1", "--wait", "30"), `invalid argument "30" for "--wait" flag: must be a duration, such as 500ms, 30s or 2h; see zlimit acquire --help`},
		{"an entity to look at that is none", []string{"available", "--store", store, "a b", "gpt"}, `invalid entity "a b"`},

		{"no level", set(limit), "limits set: --system, --resource or --entity is missing"},
		{"two levels", set("--system", "--resource", "gpt", limit), "limits set: --system excludes --entity and --resource"},
		{"no limit", set("--resource", "gpt"), "limits set: --limit is missing"},
		{"an empty resource", set("--resource", "", limit), "limits set: --resource must not be empty"},
		{"an empty entity", set("--entity", "", "--resource", "gpt", limit), "limits set: --entity must not be empty"},
		{"the default resource without an entity", set("--resource", "_default_", limit), `invalid resource "_default_": is reserved`},
		{"a policy of a resource that is none", set("--resource", "gpt", limit, "--on-unavailable", "maybe"), `invalid failure policy "maybe"`},
		{"a policy of the system that is none", set("--system", "--on-unavailable", "maybe"), `invalid failure policy "maybe"`},
		{"a limit name that is none", set("--resource", "gpt", "--limit", "a b=1/s"), `invalid limits name "a b"`},
		{"a reserved limit name", set("--resource", "gpt", "--limit", "wcu=1/s"), `invalid limits name "wcu": is reserved`},
		{"a limit twice", set("--system", limit, limit), `invalid limits "a": is given twice`},
		{"a period that cannot be stored", set("--system", "--limit", "a=1/100ms"), `invalid limits[a] refill period "100ms": must be a positive multiple of 1s`},
		{"a level to show that is none", []string{"limits", "get", "--store", store}, "limits get: --system, --resource or --entity is missing"},
		{"a level to suspend that is none", []string{"limits", "disable", "--store", store}, "limits disable: --resource or --entity is missing"},
		{"a level to delete that is none", []string{"limits", "delete", "--store", store, "--resource", "4 o"}, `invalid resource "4 o"`},
		{"a resource to list that is none", []string{"limits", "list", "--store", store, "--resource", "4 o"}, `invalid resource "4 o"`},

		{"no command of usage", []string{"usage"}, "usage: list, summary, plot, bill, month or forecast is missing; see zlimit usage --help"},
		{"a bill in no zone", []string{"usage", "bill", "--store", store, "--zone", "Berlin"}, "usage bill: --zone Berlin: is not known to this machine"},
		{"a bill of no month", []string{"usage", "bill", "--store", store, "--month", "10"}, `usage bill: --month "10": must be a month such as 2026-10`},
		{"a bill of a month and a range", []string{"usage", "bill", "--store", store, "--month", "2026-10", "--from", "2026-10", "--to", "2026-11"}, "usage bill: --month excludes --from and --to"},
		{"a bill without an end", []string{"usage", "bill", "--store", store, "--from", "2026-10"}, "usage bill: --from and --to belong together"},
		{"usage of nobody", []string{"usage", "list", "--store", store}, "usage list: --entity or --resource is missing; see zlimit usage list --help"},
		{"usage of an entity that is none", []string{"usage", "plot", "--store", store, "--entity", "a b"}, `invalid entity "a b": must hold only`},
		{"usage of an empty entity", []string{"usage", "summary", "--store", store, "--entity="}, "usage summary: --entity must not be empty"},
		{"a window that is none", []string{"usage", "summary", "--store", store, "--entity", "a", "--window", "weekly"}, `invalid window "weekly": must be hourly, daily or monthly`},
		{"no lines of usage", []string{"usage", "list", "--store", store, "--entity", "a", "--max", "0"}, "usage list: --max 0: must be positive"},
		{"two beginnings of a range", []string{"usage", "list", "--store", store, "--entity", "a", "--since", "1d", "--from", "today"}, "usage list: --since excludes --from"},
		{"a time that is none", []string{"audit", "list", "--store", store, "--system", "--to", "noon"}, `audit list: --to "noon": must be now, today,`},
		{"no command of audit", []string{"audit"}, "audit: list is missing; see zlimit audit --help"},
		{"changes of nothing", []string{"audit", "list", "--store", store}, "audit list: --system, --resource, --entity or --all is missing"},
		{"changes of two subjects", []string{"audit", "list", "--store", store, "--system", "--entity", "a"}, "audit list: --system excludes --entity and --resource"},
		{"no lines of changes", []string{"audit", "list", "--store", store, "--system", "--max", "-1"}, "audit list: --max -1: must be positive"},
		{"changes of a resource that is none", []string{"audit", "list", "--store", store, "--resource", "4 o"}, `invalid resource "4 o"`},
		{"capacity of nothing", []string{"capacity", "--store", store}, "capacity: RESOURCE is missing; see zlimit capacity --help"},
		{"capacity of a resource that is none", []string{"capacity", "--store", store, "4 o"}, `invalid resource "4 o"`},
		{"buckets of a resource that is none", []string{"capacity", "--store", store, "4 o", "--entities"}, `invalid resource "4 o"`},

		{"no trace", []string{"simulate", "--store", store, limit, cost}, "simulate: --trace FILE or --usage FILE is missing"},
		{"no limit to replay against", simulate(cost), "simulate: --limit NAME=CAPACITY[:REFILL]/PERIOD is missing"},
		{"a limit without a cost", simulate(limit), "simulate: limit a has no cost: give --cost a=EXPR"},
		{"a cost without a limit", simulate(limit, cost, "--cost", "b=1"), `cost "b=1": no --limit is named "b"`},
		{"two costs of a limit", simulate(limit, cost, "--cost", "a=in"), `cost "a=in": a has a cost already`},
		{"a cost that is none", simulate(limit, "--cost", "a=in+"), `cost "a=in+": a term is missing beside a plus sign`},
		{"a limit to replay against that is none", simulate("--limit", "a=1/fortnight", cost), `limit "a=1/fortnight": period "fortnight" must be`},
		{"a limit to replay against twice", simulate(limit, limit, cost), `invalid limits "a": is given twice`},
		{"a limit name to replay against that is none", simulate("--limit", "ä=1/s", "--cost", "ä=1"), `invalid limits name "ä"`},
		{"a column that is not there", simulate(limit, "--cost", "a=out"), trace + `:1: no column "out"; the columns are TIMESTAMP, in`},
		{"a line that cannot be read", []string{"simulate", "--store", store, "--trace", broken, limit, cost}, broken + `:3: TIMESTAMP "yesterday" must be a time such as`},
		{"a trace that is not there", []string{"simulate", "--store", store, "--trace", filepath.Join(dir, "no.csv"), limit, cost}, "simulate: --trace: open "},
		{"a trace that is a directory", []string{"simulate", "--store", store, "--trace", dir, limit, cost}, dir + ": cannot be read: "},
		{"a freshness that is none", simulate(limit, cost, "--freshness", "1"), `invalid argument "1" for "--freshness" flag`},
		{"a negative freshness", simulate(limit, cost, "--freshness", "-1ns"), "simulate: --freshness -1ns: must not be negative"},
		{"a freshness below a millisecond", simulate(limit, cost, "--freshness", "1us"), `invalid freshness "1µs": must be whole milliseconds`},
		{"an entity to replay on that is none", simulate(limit, cost, "--entity", "a b"), `invalid entity "a b"`},
		{"a resource to replay on that is none", simulate(limit, cost, "--resource", ""), `invalid resource ""`},
		{"a store to replay on that is none", []string{"simulate", "--trace", trace, limit, cost, "--store", "file"}, `invalid store "file"`},

		{"a demo on a store", []string{"demo", "--store", store}, "demo: --store sqlite:"},
		{"a demo of no length", []string{"demo", "--duration", "0s"}, "demo: --duration 0s: must be whole seconds, from 1s to 1h"},
		{"a demo of half a second", []string{"demo", "--duration", "1500ms"}, "demo: --duration 1.5s: must be whole seconds"},
		{"a seed that is none", []string{"demo", "--seed", "x"}, `invalid argument "x" for "--seed" flag: must be a whole number`},
		{"a port that is none", []string{"local", "up", "--port", "99999"}, `invalid argument "99999" for "--port" flag: must be a whole number from 0 to 65535; see zlimit local up --help`},
		{"a table that is none", []string{"local", "up", "--dir", dir, "--table", "x"}, "--table x: must have 3 to 255 letters, digits, _, - and ."},
		{"a table that is none, in the foreground", []string{"local", "serve", "--dir", dir, "--table", "a b"}, "--table a b: must have 3 to 255"},
		{"a rate beyond all", []string{"bench", "--rate", "9223372036854775808"}, `invalid argument "9223372036854775808" for "--rate" flag: must be a whole number from -9223372036854775808 to 9223372036854775807`},
		{"a switch that is none", []string{"setup", "--mixed-fleet=maybe"}, `invalid argument "maybe" for "--mixed-fleet" flag: must be true or false`},
		{"a pause without a unit", []string{"top", "--store", store, "--interval", "5"}, `invalid argument "5" for "--interval" flag: must be a duration, such as 500ms, 30s or 2h; see zlimit top --help`},
		{"a switch and its counterpart", []string{"stack", "deploy", "--name", "limits", "--alarms", "--no-alarms"}, "--no-alarms excludes --alarms"},
		{"an endpoint that is none", []string{"stack", "list", "--region", "eu-central-1", "--endpoint", "localhost"}, "--endpoint localhost: must be a URL such as http://127.0.0.1:4566"},
		{"an endpoint without a host", []string{"stack", "status", "--name", "limits", "--region", "eu-central-1", "--endpoint", "http:///x"}, "--endpoint http:///x: must be a URL"},
		{"manual pages in no directory", []string{"man", ""}, `man: DIR "": must name a directory`},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := command(t, "", test.args...)
			line, isLine := strings.CutSuffix(got.stderr, "\n")
			if got.code != shell.ExitUsage || got.stdout != "" || !isLine || strings.Contains(line, "\n") ||
				!strings.HasPrefix(line, "zlimit: "+test.want) {
				t.Errorf("zlimit %s: code %d, stdout %q, stderr %q; want code 2 and one line on stderr, %q",
					strings.Join(test.args, " "), got.code, got.stdout, got.stderr, test.want)
			}
			if _, err := os.Stat(db); !errors.Is(err, fs.ErrNotExist) {
				t.Fatalf("zlimit %s has created %s", strings.Join(test.args, " "), db)
			}
		})
	}
}

// TestHelp shows that every command explains itself within 80 columns.
func TestHelp(t *testing.T) { checkHelp(t) }

// checkHelp checks the help of every command: its width, and that it has an example.
func checkHelp(t *testing.T) {
	t.Helper()
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			if sub.Name() != "help" && sub.Name() != "completion" {
				walk(sub)
			}
		}
		args := strings.Fields(cmd.CommandPath() + " --help")[1:]
		got := command(t, "", args...)
		if got.code != shell.ExitOK || got.stderr != "" || !strings.Contains(got.stdout, "Usage:\n  "+cmd.CommandPath()) {
			t.Errorf("zlimit %s: code %d, stderr %q, stdout:\n%s", strings.Join(args, " "), got.code, got.stderr, got.stdout)
		}
		for line := range strings.Lines(got.stdout) {
			if width := len([]rune(strings.TrimSuffix(line, "\n"))); width > 80 {
				t.Errorf("zlimit %s: %d columns, at most 80: shorten the text of the flag, or of the command: %s", strings.Join(args, " "), width, line)
			}
		}
		if cmd.Runnable() && cmd.Name() != "version" && cmd.Name() != "limits" && cmd.Name() != "usage" && cmd.Name() != "audit" && !strings.Contains(got.stdout, "Examples:\n  zlimit ") {
			t.Errorf("zlimit %s has no example", strings.Join(args, " "))
		}
	}
	walk(Root((&shell.Shell{Stdout: &bytes.Buffer{}, Stderr: &bytes.Buffer{}})))
}

// brokenPipe is a writer without a reader.
type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestResultThatCannotBeWritten(t *testing.T) {
	for _, args := range [][]string{
		{"version"},
		{"version", "-o", "json"},
		{"acquire", "--store", "memory:", "acme", "gpt", "--consume", "a=1", "--limit", "a=1/s"},
		{"demo", "--duration", "1s"},
	} {
		var stderr bytes.Buffer
		code := Main(t.Context(), args, strings.NewReader(""), brokenPipe{}, &stderr, func(string) string { return "" })
		if code != shell.ExitFailure || !strings.Contains(stderr.String(), "zlimit: write the result: broken pipe\n") {
			t.Errorf("zlimit %s: code %d, stderr %q; want code 1 and the reason", strings.Join(args, " "), code, stderr.String())
		}
	}
}

// TestSetSaysWhatAppliesNoLonger sets a limit for a key, whose other limits come from a wider level. The level wins as a whole, so they
// apply no longer, and the command says so. Patch keeps them.
func TestSetSaysWhatAppliesNoLonger(t *testing.T) {
	store := "--store=sqlite:" + filepath.Join(t.TempDir(), "limits.db")
	for _, step := range []struct {
		args []string
		note string
	}{
		{[]string{"set", "--resource", "gpt", "--limit", "rpm=10/min", "--limit", "tpd=100/day"}, ""},
		{[]string{"patch", "--entity", "other", "--resource", "gpt", "--limit", "rpm=1/min"}, ""},
		{[]string{"set", "--entity", "key", "--resource", "gpt", "--on-unavailable", "allow"}, ""},
		{[]string{"set", "--entity", "key", "--resource", "gpt", "--limit", "rpm=1/min"}, "note: tpd, of the wider level, applied here before and no longer does"},
		{[]string{"set", "--entity", "key", "--resource", "gpt", "--limit", "rpm=2/min"}, ""},
		{[]string{"set", "--entity", "new", "--resource", "alone", "--limit", "rpm=2/min"}, ""},
	} {
		got := command(t, "", append(append([]string{"limits"}, step.args...), store)...)
		if got.code != shell.ExitOK || !strings.HasPrefix(got.stderr, step.note) || step.note == "" && got.stderr != "" {
			t.Errorf("limits %v: code %d, notes %q, want %q", step.args, got.code, got.stderr, step.note)
		}
	}
}
