package cli

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
)

// TestBudgetCutAndSetBack lowers a budget by mistake and sets it back. The commands say what the cut took, by the usage of the period, and the
// top-up that they print brings the balance to the budget less what is used. Without complete usage they say that it is not known.
func TestBudgetCutAndSetBack(t *testing.T) {
	m := &billedMonth{t: t, path: filepath.Join(t.TempDir(), "limits.db"), now: time.Now().UTC()}
	s, _ := m.store()
	l, err := zlimit.New(t.Context(), s, zlimit.WithClock(m.clock), zlimit.WithSetup(), zlimit.WithPrincipal("x"))
	check.Fatal(t, "zlimit.New()", err)
	m.limiter = l
	defer func() { _, _ = l.Close(), s.Close() }()
	m.aggregate(300*time.Millisecond, false) // turns the log of changes on
	run := func(args ...string) string {     // commands open the file by its name, with the clock of the machine
		t.Helper()
		m.now = time.Now().UTC().Truncate(time.Millisecond)
		return m.run(args...)
	}
	catchUp := func() {
		t.Helper()
		m.now = time.Now().UTC().Truncate(time.Millisecond).Add(time.Millisecond)
		m.catchUp()
	}
	run("entity", "create", "ops")
	set := func(usd string) string {
		return run("limits", "set", "--entity", "ops", "--resource", "pay", "--limit", "usd="+usd+"/month@UTC")
	}
	says := func(out, want string) {
		t.Helper()
		if len(regexp.MustCompile(want).FindAllString(out, -1)) != 1 {
			t.Errorf("%q is not there once:\n%s", want, out)
		}
	}
	set("200")
	set("60")
	if out := set("200"); strings.Contains(out, "cut what is left") {
		t.Errorf("a budget that was not used yet is cut:\n%s", out)
	}
	run("acquire", "ops", "pay", "--consume", "usd=50")
	catchUp()
	if out := run("available", "ops", "pay"); strings.Contains(out, "cut") {
		t.Errorf("a budget that was never lowered is cut:\n%s", out)
	}
	set("60")
	run("acquire", "ops", "pay", "--consume", "usd=10")
	const unknown = `usd of ops for pay was \$60 from \S+Z to \S+Z, which may have cut what is left: ` +
		"zlimit available ops pay says how much once an aggregator has counted the usage until then"
	says(set("200"), unknown)
	says(run("available", "ops", "pay"), unknown)
	catchUp()
	const known = `usd of ops for pay was \$60 from \S+Z to \S+Z, which cut what is left: \$60 of \$200 are used, as counted to \S+Z; ` +
		`zlimit (bucket top-up ops pay --add usd=90 --operation cut-usd-\d+T\d+Z) adds what the cut took, less what was used since then`
	says(run("available", "ops", "pay"), known)
	says(run("team", "get", "ops"), known)
	run("limits", "set", "--entity", "idle", "--resource", "pay", "--limit", "usd=200/month@UTC")
	run("acquire", "idle", "pay", "--consume", "usd=30")
	catchUp()
	for _, args := range [][]string{{"capacity", "pay", "--cuts"}, {"capacity", "--cuts", "--entity", "ops"}} {
		out := run(args...)
		if says(out, known); strings.Contains(out, "idle") {
			t.Errorf("the cuts are\n%s, want that of ops alone", out)
		}
	}
	if out := run("capacity", "--cuts", "--entity", "idle"); out != "no budget of entity idle is known to have been cut\n" {
		t.Errorf("the cuts of idle are\n%s", out)
	}
	rejected := command(t, "", "acquire", "ops", "pay", "--consume", "usd=180", "--store", "sqlite:"+m.path)
	says(rejected.stdout, known)
	says(command(t, "", "usage", "forecast", "--entity", "ops", "--resource", "pay", "--store", "sqlite:"+m.path).stderr, "note: "+known)
	set("300")
	out := run("available", "ops", "pay")
	says(out, known)
	says(out, `\$50 +\$200 `) // with which the period began
	says(set("200"), known)
	printed := strings.Fields(regexp.MustCompile(known).FindStringSubmatch(run("available", "ops", "pay"))[1])
	for _, done := range []bool{false, true} { // it is run twice, and adds once
		if out := run(printed...); strings.Contains(out, "was done before") != done {
			t.Errorf("%v, done before: %t: %s", printed, done, out)
		}
	}
	catchUp()
	for _, args := range [][]string{{"available", "ops", "pay"}, {"team", "get", "ops"}} {
		if out := run(args...); strings.Contains(out, "cut") || !strings.Contains(out, "$140") || !strings.Contains(out, " $200 + $90 ") {
			t.Errorf("after the top-up %v shows\n%s, want $140 of $200 + $90 without a note", args, out)
		}
	}
	set("100")
	run("acquire", "ops", "pay", "--consume", "usd=5")
	set("200")
	catchUp()
	if out := run("available", "ops", "pay"); strings.Contains(out, "cut") || !strings.Contains(out, "$135") {
		t.Errorf("after a second cut, which took nothing of what was topped up for the first one:\n%s", out)
	}
	for name, manual := range map[string][]string{"topped": {"top-up", "--add", "usd=30"}, "reset": {"reset"}} {
		of := []string{"--entity", name, "--resource", "pay", "--limit"}
		run(append(append([]string{"limits", "set"}, of...), "usd=200/month@UTC")...)
		run("acquire", name, "pay", "--consume", "usd=15")
		run(append([]string{"bucket", manual[0], name, "pay"}, manual[1:]...)...)
		run(append(append([]string{"limits", "set"}, of...), "usd=20/month@UTC")...)
		run("acquire", name, "pay", "--consume", "usd=2")
		run(append(append([]string{"limits", "set"}, of...), "usd=200/month@UTC")...)
		catchUp()
		missing := map[string]string{"topped": "165", "reset": "180"}[name] // 215 and 200 less what the cut left of it
		says(run("available", name, "pay"), "zlimit bucket top-up "+name+" pay --add usd="+missing+" --operation cut-usd-\\d+T\\d+Z adds what the cut took")
		run("bucket", "top-up", name, "pay", "--add", "usd="+missing)
		if out := run("available", name, "pay"); strings.Contains(out, "cut") {
			t.Errorf("after the top-up of %s:\n%s", name, out)
		}
	}
}
