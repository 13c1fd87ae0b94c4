package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
)

// TestScale multiplies limits for a region that is down, again after an interruption, and restores them exactly.
func TestScale(t *testing.T) {
	dsn, file := "sqlite:"+filepath.Join(t.TempDir(), "limits.db"), filepath.Join(t.TempDir(), "before.yaml")
	l := check.Call(zlimit.Open(t.Context(), dsn, zlimit.WithSetup())).Must(t, "zlimit.Open()")
	defer l.Close()
	set := func(at zlimit.Level, limits ...zlimit.Limit) {
		t.Helper()
		check.Fatal(t, "Limits.Set()", l.Limits.Set(t.Context(), at, zlimit.Config{Limits: limits, OnUnavailable: zlimit.PolicyAllow}))
	}
	stored := func() string {
		t.Helper()
		var lines []string
		for _, s := range check.All(t, "Limits.List()", l.Limits.List(t.Context(), zlimit.LevelQuery{})) {
			for _, limit := range s.Config.Limits {
				lines = append(lines, s.Level.String()+" "+limit.String()+" "+s.Config.OnUnavailable.String())
			}
		}
		return strings.Join(lines, "\n")
	}
	set(zlimit.Level{}, zlimit.PerMinute("rpm", 7).When("* 9-17 * * 1-5", "to 21:15/30s").When("* 0-5 * * *", "x0.5"), zlimit.Slots("jobs", 1, zlimit.Term(time.Minute)))
	set(zlimit.Level{Resource: "gpt"}, zlimit.PerMinute("rpm", 100).Floor("batch", 10), zlimit.Monthly("tokens", 1000, "UTC"))
	set(zlimit.Level{Entity: "acme", Resource: "gpt"}, zlimit.Prepaid("usd", 5_000_000_000))
	before := stored()

	scale := func(args ...string) string {
		t.Helper()
		r := command(t, "", append(append([]string{"limits", "scale"}, args...), "-f", file, "--yes", "--store", dsn)...)
		if r.code != 0 {
			t.Fatalf("limits scale %v = %+v", args, r)
		}
		return r.stdout
	}
	scale("3/2")
	scaled := stored()
	for _, want := range []string{"rpm=10/min", "to 31:22/30s", "x0.5", "jobs=1 slots/min", "rpm=150/min", "tokens=1000/", "usd=5/never"} {
		if !strings.Contains(scaled, want) {
			t.Errorf("limits of factor 3/2 lack %s:\n%s", want, scaled)
		}
	}
	// One level is as it was, as after an interruption, and one has changed without the file.
	set(zlimit.Level{Resource: "gpt"}, zlimit.PerMinute("rpm", 100).Floor("batch", 10), zlimit.Monthly("tokens", 1000, "UTC"))
	set(zlimit.Level{Resource: "new"}, zlimit.PerMinute("rpm", 9))
	scale("1.5")
	if !strings.Contains(stored(), "resource new rpm=9/min") {
		t.Errorf("limits after a second run:\n%s\nwant what the file lacks as it was", stored())
	}
	check.Fatal(t, "Limits.Delete()", l.Limits.Delete(t.Context(), zlimit.Level{Resource: "new"}))
	if got := stored(); got != scaled {
		t.Errorf("limits after a second run:\n%s\nwant\n%s", got, scaled)
	}
	scale("2", "--budgets")
	if got := stored(); !strings.Contains(got, "tokens=2000/") || !strings.Contains(got, "usd=10/never") || !strings.Contains(got, "rpm=200/min") {
		t.Errorf("limits of factor 2 with budgets:\n%s", got)
	}
	if out := scale("1", "--budgets"); !strings.Contains(out, "has the limits of factor 1") {
		t.Errorf("limits scale 1 = %q", out)
	}
	if got := stored(); got != before {
		t.Errorf("restored limits:\n%s\nwant\n%s", got, before)
	}
	if text, err := os.ReadFile(file); err != nil || !strings.Contains(string(text), "rpm") {
		t.Errorf("the file has %q, %v", text, err)
	}
}

// TestScaleArguments refuses factors and files before it changes anything.
func TestScaleArguments(t *testing.T) {
	dsn, file := "sqlite:"+filepath.Join(t.TempDir(), "limits.db"), filepath.Join(t.TempDir(), "before.yaml")
	if r := command(t, "", "limits", "set", "--system", "--limit", "rpm=10/min", "--store", dsn); r.code != 0 {
		t.Fatalf("limits set = %+v", r)
	}
	refused := func(reason string, args ...string) {
		t.Helper()
		r := command(t, "", append([]string{"limits", "scale", "--yes", "--store", dsn}, args...)...)
		if r.code != 2 || !strings.Contains(r.stderr, reason) {
			t.Errorf("limits scale %q = %+v, want exit code 2 and %q", args, r, reason)
		}
	}
	for _, factor := range []string{"0", "-1", "x", "1e3", "1001", "1/1001", "", "0x10", "1/0"} {
		refused("must be from 1/1000 to 1000", "-f", file, "--", factor)
	}
	refused("nothing to restore", "1", "-f", file)
	other := "sqlite:" + filepath.Join(t.TempDir(), "other.db")
	for _, args := range [][]string{{"limits", "set", "--system", "--limit", "rpm=30/min"}, {"limits", "scale", "3/2", "-f", file, "--yes"}} {
		if r := command(t, "", append(args, "--store", other)...); r.code != 0 {
			t.Fatalf("%v = %+v", args, r)
		}
	}
	refused("limits of factor 1 of "+other+", namespace default, and not of "+dsn+", namespace default, whose limits may be scaled now: "+
		"--file must be the file that scale wrote for this store and namespace", "3/2", "-f", file)
	if r := command(t, "", "limits", "get", "--system", "--store", dsn); !strings.Contains(r.stdout, "10/min") {
		t.Errorf("the limits of another store are %+v, want 10/min as before", r)
	}
	refused("--file is missing", "2")
	refused("-1: a number must not be negative", "-1", "-f", file)
	written := filepath.Join(t.TempDir(), "written.yaml")
	check.Fatal(t, "WriteFile()", os.WriteFile(written, []byte("system:\n  limits:\n    rpm: 10/min\n"), 0o600))
	header := "# limits of factor 1 of " + dsn + ", namespace default"
	refused(fmt.Sprintf("a file that you wrote begins with the line %q", header), "2", "-f", written)
	check.Fatal(t, "WriteFile()", os.WriteFile(written, []byte(header+"\nsystem:\n  limits:\n    rpm: 10/min\n"), 0o600))
	if r := command(t, "", "limits", "scale", "2", "-f", written, "--yes", "--store", dsn); r.code != 0 {
		t.Errorf("a file that names the store: %+v", r)
	}
}

// TestScaleOfNamespace scales the namespace of the flag at first, and then the one that the file names.
func TestScaleOfNamespace(t *testing.T) {
	dsn, file := "sqlite:"+filepath.Join(t.TempDir(), "limits.db"), filepath.Join(t.TempDir(), "before.yaml")
	run := func(args ...string) run {
		t.Helper()
		r := command(t, "", append(args, "--store", dsn)...)
		if r.code != 0 {
			t.Fatalf("%v = %+v", args, r)
		}
		return r
	}
	run("namespace", "register", "team")
	run("limits", "set", "--system", "--limit", "rpm=10/min", "--namespace", "team")
	run("limits", "scale", "3/2", "-f", file, "--yes", "--namespace", "team")
	run("limits", "scale", "2", "-f", file, "--yes")
	if r := run("limits", "get", "--system", "--namespace", "team"); !strings.Contains(r.stdout, "20/min") {
		t.Errorf("the limits of the file's namespace are %+v, want 20/min", r)
	}
	r := command(t, "", "limits", "scale", "2", "-f", file, "--yes", "--namespace", "other", "--store", dsn)
	if r.code == 0 || !strings.Contains(r.stderr, `namespace is "team", but --namespace says "other"`) {
		t.Errorf("limits scale of another namespace = %+v", r)
	}
}

// TestScaleByAnotherName takes the file for the database that it is of, from any folder and through links.
func TestScaleByAnotherName(t *testing.T) {
	folder := t.TempDir()
	path, file := filepath.Join(folder, "limits.db"), filepath.Join(folder, "before.yaml")
	t.Chdir(folder)
	run := func(want int, store string, args ...string) {
		t.Helper()
		if r := command(t, "", append(args, "--store", store)...); r.code != want {
			t.Fatalf("%v of %s = %+v, want exit code %d", args, store, r, want)
		}
	}
	run(0, "sqlite:limits.db", "limits", "set", "--system", "--limit", "rpm=10/min")
	run(0, "sqlite:limits.db", "limits", "scale", "3/2", "-f", file, "--yes")
	if text, err := os.ReadFile(file); err != nil || !strings.HasPrefix(string(text), "# limits of factor 1 of sqlite:"+path+", namespace default\n") {
		t.Errorf("the file has %q, %v, want the whole path of the database", text, err)
	}
	elsewhere := t.TempDir()
	check.Fatal(t, "os.Symlink()", os.Symlink(path, filepath.Join(elsewhere, "link.db")))
	t.Chdir(elsewhere)
	for _, store := range []string{path, "link.db", filepath.Join(folder, "..", filepath.Base(folder), "limits.db")} {
		run(0, "sqlite:"+store, "limits", "scale", "3/2", "-f", file, "--yes")
	}
	run(0, "sqlite:limits.db", "limits", "set", "--system", "--limit", "rpm=30/min")
	run(2, "sqlite:limits.db", "limits", "scale", "3/2", "-f", file, "--yes")
}

// TestScaleSaysWhatItLeaves notes the namespace, what the file lacks, quotas, and limits that others have changed.
func TestScaleSaysWhatItLeaves(t *testing.T) {
	dsn, file := "sqlite:"+filepath.Join(t.TempDir(), "limits.db"), filepath.Join(t.TempDir(), "before.yaml")
	do := func(args ...string) run {
		t.Helper()
		r := command(t, "", append(args, "--store", dsn)...)
		if r.code != 0 {
			t.Fatalf("%v = %+v", args, r)
		}
		return r
	}
	scale := func(factor string, args ...string) run {
		t.Helper()
		return do(append([]string{"limits", "scale", factor, "-f", file, "--yes"}, args...)...)
	}
	says := func(text, want string, times int) {
		t.Helper()
		if got := strings.Count(text, want); got != times {
			t.Errorf("%q is there %d times, want %d:\n%s", want, got, times, text)
		}
	}
	do("limits", "set", "--system", "--limit", "rpm=10/min", "--limit", "usd=5/month@UTC")
	r := scale("3/2")
	says(r.stdout, "namespace default\n", 1)
	says(r.stdout, "rpm=10/min becomes 15/min", 1)
	says(r.stdout, "1 limit of namespace default changed", 1)
	says(r.stderr, "note: 1 amount of quotas and prepaid limits not multiplied; --budgets multiplies them too\n", 1)
	says(r.stderr, "warning", 0)
	const raised = "note: amounts of quotas and prepaid limits are raised from their next period on, and add nothing to what is left now; " +
		"zlimit bucket top-up adds to a bucket now\n"
	if r = scale("2", "--budgets", "-o", "json"); r.stderr != raised {
		t.Errorf("stderr of JSON with --yes is %q, want the note of the budget beside the result", r.stderr)
	}
	says(r.stdout, `"namespace":"default"`, 1)
	says(scale("3/2", "--budgets").stderr, "warning", 0) // scale has made both

	do("limits", "patch", "--system", "--limit", "rpm=99/min", "--limit", "tpm=7/min")
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		do("limits", "set", "--resource", name, "--limit", "rpm=1/min")
	}
	refused := command(t, "", "limits", "scale", "3/2", "-f", file, "--store", dsn)
	if refused.code != 2 || !strings.Contains(refused.stderr, "cannot ask") {
		t.Errorf("limits scale without --yes = %+v", refused)
	}
	r = scale("3/2")
	for _, text := range []string{refused.stderr, r.stderr} {
		says(text, " since, and stays: "+file+" has 10/min; set it to that to scale it again\n", 1)
		says(text, "note: not in "+file+", and left as stored: 6 (system tpm, resource a, resource b, resource c, resource d, and 1 more)\n", 1)
	}
	do("limits", "patch", "--system", "--limit", "rpm=10/min") // that of factor 1, which scale multiplies again
	for _, factor := range []string{"3/2", "1"} {
		says(scale(factor, "--budgets").stdout, "rpm=", 1)
	}
	if r = scale("1"); r.stdout != "0 limits of namespace default changed; "+file+" has the limits of factor 1\n" || strings.Contains(r.stderr, "quotas") {
		t.Errorf("a second restoration = %+v", r)
	}
}

// TestScaleOfManagedLevels warns that applying a file of limits undoes the scaling of the levels that it manages, as often as the command runs,
// and no more once all is restored.
func TestScaleOfManagedLevels(t *testing.T) {
	dsn, file := "sqlite:"+filepath.Join(t.TempDir(), "limits.db"), filepath.Join(t.TempDir(), "before.yaml")
	limits := filepath.Join(t.TempDir(), "limits.yaml")
	check.Fatal(t, "WriteFile()", os.WriteFile(limits, []byte("system:\n  limits:\n    rpm: 10/min\nresources:\n  gpt:\n    limits:\n      usd: 5/month@UTC\n"), 0o600))
	do := func(args ...string) run {
		t.Helper()
		r := command(t, "", append(args, "--store", dsn, "--principal", "olga")...)
		if r.code != 0 {
			t.Fatalf("%v = %+v", args, r)
		}
		return r
	}
	do("limits", "apply", "-f", limits, "--yes")
	do("limits", "set", "--resource", "free", "--limit", "rpm=20/min")
	const warned = "note: 1 level managed by file:limits.yaml: limits apply refuses to undo the scaling until limits scale 1; other provisioners undo it\n"
	for range 2 {
		if r := do("limits", "scale", "3/2", "-f", file, "--yes"); !strings.Contains(r.stderr, warned) {
			t.Errorf("limits scale 3/2 says %q, want %q", r.stderr, warned)
		}
	}
	refused := func(args ...string) {
		t.Helper()
		r := command(t, "", append(args, "--store", dsn, "--principal", "olga")...)
		want := regexp.MustCompile(`it would undo zlimit limits scale of 1 of the levels: factor 3/2 by olga at \S+, whose limits of factor 1 are in before.yaml; ` +
			`zlimit limits scale 1 -f before.yaml restores those first, with --rebuild if that file is lost, and --undo-scaling applies`)
		if r.code != 1 || !want.MatchString(r.stderr) {
			t.Errorf("%v = code %d, %s, want %v", args, r.code, r.stderr, want)
		}
		if r := do("limits", "get", "--system"); !strings.Contains(r.stdout, "15/min") {
			t.Errorf("after it the limits are %s", r.stdout)
		}
	}
	saved := filepath.Join(t.TempDir(), "saved.plan")
	if r := command(t, "", "limits", "plan", "-f", limits, "--out", saved, "--store", dsn); !strings.Contains(r.stdout, "(scaled by the factor 3/2 by olga at ") {
		t.Errorf("limits plan shows %s", r.stdout)
	}
	refused("limits", "apply", "-f", limits) // without a question
	refused("limits", "apply", "-f", limits, "--yes")
	refused("limits", "apply", "--plan", saved)
	refused("limits", "apply", "-f", limits, "--yes", "--manager", "another", "--take-over")
	do("limits", "apply", "-f", limits, "--yes", "--undo-scaling")
	if r := do("limits", "get", "--system"); !strings.Contains(r.stdout, "10/min") {
		t.Errorf("after apply the limits are %s", r.stdout)
	}
	do("limits", "scale", "3/2", "-f", file, "--yes")
	if r := do("limits", "get", "--system"); !strings.Contains(r.stdout, "15/min") {
		t.Errorf("after another run the limits are %s", r.stdout)
	}
	if r := do("limits", "scale", "1", "-f", file, "--yes"); strings.Contains(r.stderr, "managed") {
		t.Errorf("limits scale 1 says %q", r.stderr)
	}
	do("limits", "set", "--system", "--limit", "rpm=15/min") // which is no scaling
	do("limits", "apply", "-f", limits, "--yes")
}

// TestScaledBudget raises a budget in use by scale: what is left stays until the next period, and the way back cuts nothing that was left.
func TestScaledBudget(t *testing.T) {
	dsn, file := "sqlite:"+filepath.Join(t.TempDir(), "limits.db"), filepath.Join(t.TempDir(), "before.yaml")
	do := func(args ...string) run {
		t.Helper()
		r := command(t, "", append(args, "--store", dsn)...)
		if r.code != 0 {
			t.Fatalf("%v = %+v", args, r)
		}
		return r
	}
	do("limits", "set", "--resource", "pay", "--limit", "usd=100/month@UTC")
	do("acquire", "u", "pay", "--consume", "usd=90")
	for _, factor := range []string{"2", "1"} {
		do("limits", "scale", factor, "-f", file, "--yes", "--budgets")
		if r := do("available", "u", "pay"); !strings.Contains(r.stdout, "usd          $10 ") {
			t.Errorf("after factor %s there is %s", factor, r.stdout)
		}
	}
}

// A scaleOffice runs commands of two operators on a store, each with files of their own.
type scaleOffice struct {
	t   *testing.T
	dsn string
}

func newScaleOffice(t *testing.T) *scaleOffice {
	o := &scaleOffice{t, "sqlite:" + filepath.Join(t.TempDir(), "limits.db")}
	t.Chdir(t.TempDir())
	o.do("olga", "limits", "set", "--system", "--limit", "rpm=1200/min", "--limit", "tpm=7/min")
	o.do("olga", "limits", "set", "--entity", "acme", "--resource", "gpt", "--limit", "rpm=100/min", "--limit", "usd=5/month@UTC")
	o.do("olga", "acquire", "acme", "gpt", "--consume", "usd=1")
	return o
}

func (o *scaleOffice) run(by string, args ...string) run {
	o.t.Helper()
	return command(o.t, "", append(args, "--store", o.dsn, "--principal", by)...)
}

func (o *scaleOffice) do(by string, args ...string) run {
	o.t.Helper()
	r := o.run(by, args...)
	if r.code != 0 {
		o.t.Fatalf("%v = %+v", args, r)
	}
	return r
}

// refused runs a command that must fail with a text, and leave the limits as they are.
func (o *scaleOffice) refused(want, by string, args ...string) {
	o.t.Helper()
	before := o.do(by, "limits", "list", "--details", "-o", "csv").stdout
	if r := o.run(by, args...); r.code == 0 || !regexp.MustCompile(want).MatchString(r.stderr) {
		o.t.Errorf("%v = %+v, want %q", args, r, want)
	}
	if after := o.do(by, "limits", "list", "--details", "-o", "csv").stdout; after != before {
		o.t.Errorf("%v is refused, and changes limits to\n%s", args, after)
	}
}

// has checks the limits of the system, and of a level of gpt.
func (o *scaleOffice) has(entity string, system, own int) {
	o.t.Helper()
	for _, c := range []struct {
		args []string
		want int
	}{{[]string{"limits", "get", "--system"}, system}, {[]string{"limits", "get", "--entity", entity, "--resource", "gpt"}, own}} {
		if r := o.do("olga", c.args...); !strings.Contains(r.stdout, show.Grouped(int64(c.want))+"/min") {
			o.t.Errorf("%v shows\n%s, want %d/min", c.args, r.stdout, c.want)
		}
	}
}

// TestScaleByTwoFiles refuses a second file for levels that are multiplied, whatever changes beside the multiplied limits, until the first one
// has restored them.
func TestScaleByTwoFiles(t *testing.T) {
	o := newScaleOffice(t)
	o.do("pete", "limits", "scale", "2", "-f", "old.yaml", "--yes")
	o.do("pete", "limits", "scale", "1", "-f", "old.yaml", "--yes")
	o.do("olga", "limits", "scale", "3/2", "-f", "outage.yaml", "--yes")
	const scaled = `the limits of 2 levels are multiplied: factor 3/2 by olga at \S+Z, whose limits of factor 1 are in outage.yaml. `
	const ways = `Use the file outage.yaml; if it is lost, zlimit limits scale 1 -f outage.yaml --rebuild writes it from audit events`
	for _, factor := range []string{"3/2", "1"} {
		o.refused(scaled+`region.yaml does not exist, and would be written with multiplied limits. `+ways, "pete", "limits", "scale", factor, "-f", "region.yaml", "--yes")
		o.refused(scaled+`old.yaml is another file, and would take .*`+ways, "pete", "limits", "scale", factor, "-f", "old.yaml", "--yes")
	}
	if _, err := os.Stat("region.yaml"); err == nil {
		t.Error("a refused command writes its file")
	}
	o.do("pete", "limits", "patch", "--system", "--limit", "tpm=9/min")
	o.do("pete", "bucket", "top-up", "acme", "gpt", "--add", "usd=1")
	o.refused(scaled, "pete", "limits", "scale", "2", "-f", "region.yaml", "--yes")
	check.Fatal(t, "Mkdir()", os.Mkdir("elsewhere", 0o700))
	text := check.Call(os.ReadFile("old.yaml")).Must(t, "ReadFile()")
	check.Fatal(t, "WriteFile()", os.WriteFile("elsewhere/outage.yaml", text, 0o600))
	o.refused(scaled+"elsewhere/outage.yaml is another file of that name. ", "pete", "limits", "scale", "1", "-f", "elsewhere/outage.yaml", "--yes")

	o.do("olga", "limits", "scale", "2", "-f", "outage.yaml", "--yes")
	o.has("acme", 2400, 200)
	o.do("olga", "limits", "scale", "1", "-f", "outage.yaml", "--yes")
	o.has("acme", 1200, 100)
	o.do("pete", "limits", "scale", "3/2", "-f", "region.yaml", "--yes")
	o.has("acme", 1800, 150)
}

// TestScaleOfLostFile writes a lost file from audit events. It has the limits of before two scalings, and restores them.
func TestScaleOfLostFile(t *testing.T) {
	o := newScaleOffice(t)
	o.refused("no level is scaled, so there is nothing to rebuild outage.yaml from", "pete", "limits", "scale", "1", "-f", "outage.yaml", "--rebuild", "--yes")
	o.do("olga", "limits", "scale", "4/3", "-f", "outage.yaml", "--yes", "--budgets")
	o.do("olga", "limits", "scale", "3/2", "-f", "outage.yaml", "--yes", "--budgets")
	o.do("olga", "limits", "patch", "--entity", "acme", "--resource", "gpt", "--limit", "tpm=9/min")
	o.refused("outage.yaml exists; --rebuild writes a file that is lost", "pete", "limits", "scale", "1", "-f", "outage.yaml", "--rebuild", "--yes")
	check.Fatal(t, "Remove()", os.Remove("outage.yaml"))
	o.refused("outage.yaml does not exist, .*--rebuild", "pete", "limits", "scale", "1", "-f", "outage.yaml", "--yes")
	o.refused("Use the file outage.yaml", "pete", "limits", "scale", "1", "-f", "other.yaml", "--rebuild", "--yes")
	if r := o.do("pete", "limits", "scale", "1", "-f", "outage.yaml", "--rebuild", "--yes", "--budgets"); strings.Contains(r.stderr, "warning") {
		t.Errorf("a rebuilt file warns: %s", r.stderr)
	}
	o.has("acme", 1200, 100)
	if r := o.do("pete", "limits", "get", "--entity", "acme", "--resource", "gpt"); !strings.Contains(r.stdout, "9/min") || !strings.Contains(r.stdout, "$5  month") {
		t.Errorf("the restored limits are\n%s, want tpm as patched and usd of factor 1", r.stdout)
	}
	o.do("pete", "limits", "scale", "1", "-f", "outage.yaml", "--yes")
}

// TestScaleOfChangedLimits leaves limits that others have changed since, also to what scale had made or would make of them: the file and --rebuild
// restore the same.
func TestScaleOfChangedLimits(t *testing.T) {
	patch := func(limit string) []string {
		return []string{"limits", "patch", "--entity", "acme", "--resource", "gpt", "--limit", limit}
	}
	scale := []string{"limits", "scale", "3/2", "-f", "outage.yaml", "--yes"}
	all := append(slices.Clone(scale), "--budgets")
	replaced := []string{"limits", "set", "--entity", "acme", "--resource", "gpt", "--limit", "rpm=150/min", "--limit", "usd=7.5/month@UTC"}
	for name, c := range map[string]struct {
		did  [][]string
		want string // budget that stays; that of factor 1 where it is scaled
	}{
		"the same amount":                 {[][]string{all, patch("usd=7.5/month@UTC")}, "$5"},
		"all of the level":                {[][]string{all, replaced}, "$5"},
		"another amount":                  {[][]string{all, patch("usd=9/month@UTC")}, "$9"},
		"back by way of another":          {[][]string{all, patch("usd=9/month@UTC"), patch("usd=7.5/month@UTC")}, "$7.5"},
		"a budget that was not scaled":    {[][]string{scale, patch("usd=7.5/month@UTC")}, "$7.5"},
		"the amount of factor 1":          {[][]string{all, patch("usd=5/month@UTC")}, "$5"},
		"a level that was deleted before": {[][]string{all, {"limits", "delete", "--entity", "acme", "--resource", "gpt"}, replaced}, "$7.5"},
	} {
		for _, lost := range []bool{false, true} {
			o := newScaleOffice(t)
			for _, args := range c.did {
				o.do("olga", args...)
			}
			args := []string{"limits", "scale", "1", "-f", "outage.yaml", "--yes", "--budgets"}
			if lost {
				check.Fatal(t, "Remove()", os.Remove("outage.yaml"))
				args = append(args, "--rebuild")
			}
			r := o.do("pete", args...)
			if got := o.do("pete", "limits", "get", "--entity", "acme", "--resource", "gpt").stdout; !strings.Contains(got, c.want+" ") {
				t.Errorf("%s, file lost: %t: the limits are\n%s, want a budget of %s", name, lost, got, c.want)
			}
			const warned = " was changed by olga since, and stays"
			if got := strings.Contains(r.stderr, warned); got != (!lost && c.want != "$5") {
				t.Errorf("%s, file lost: %t: it says %q, want a warning: %t", name, lost, r.stderr, !got)
			}
		}
	}
}

// TestScaleOfRotatedEntity restores the limits of an entity that took the place of one while that was scaled.
func TestScaleOfRotatedEntity(t *testing.T) {
	for _, lost := range []bool{false, true} {
		o := newScaleOffice(t)
		o.do("olga", "limits", "scale", "3/2", "-f", "outage.yaml", "--yes")
		at := time.Now()
		sh := &shell.Shell{Now: func() time.Time { return at }, Sleep: func(_ context.Context, d time.Duration) error {
			at = at.Add(d)
			return nil
		}}
		if r := execute(t.Context(), sh, "entity", "rotate", "acme", "acme-2", "--store", o.dsn, "--principal", "olga"); r.code != 0 {
			t.Fatalf("entity rotate = %+v", r)
		}
		o.has("acme-2", 1800, 150)
		limits := "entities:\n  acme-2:\n    resources:\n      gpt:\n        limits:\n          rpm: 100/min\n          usd: 5/month@UTC\n"
		check.Fatal(t, "WriteFile()", os.WriteFile("limits.yaml", []byte(limits), 0o600))
		o.refused("it would undo zlimit limits scale of 1 of the levels: factor 3/2 by olga at", "pete", "limits", "apply", "-f", "limits.yaml", "--yes")
		o.refused("the limits of 3 levels are multiplied: factor 3/2 by olga", "pete", "limits", "scale", "2", "-f", "other.yaml", "--yes")
		args := []string{"limits", "scale", "1", "-f", "outage.yaml", "--yes"}
		if lost {
			check.Fatal(t, "Remove()", os.Remove("outage.yaml"))
			args = append(args, "--rebuild")
		}
		const noted = "note: rotated since outage.yaml was written, with the limits of the former ID: 1 (entity acme-2, resource gpt from acme)\n"
		if r := o.do("pete", args...); strings.Contains(r.stderr, noted) == lost || strings.Contains(r.stderr, "not in") {
			t.Errorf("%v notes %q, want %q: %t", args, r.stderr, noted, !lost)
		}
		o.has("acme-2", 1200, 100)
		o.do("pete", "limits", "apply", "-f", "limits.yaml", "--yes")
	}
}
