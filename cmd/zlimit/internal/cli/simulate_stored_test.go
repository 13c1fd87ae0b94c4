package cli

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/simulate"
	"github.com/zlimit/zlimit-go/internal/proof/check"
)

// replayed runs the command on a text in place of a file.
func replayed(t *testing.T, input string, args ...string) (out simulate.Outcome) {
	t.Helper()
	got := command(t, input, append([]string{"simulate", "-o", "json"}, args...)...)
	if got.code != shell.ExitOK {
		t.Fatalf("simulate %v: code %d, %s", args, got.code, got.stderr)
	}
	check.Fatal(t, "json.Unmarshal()", json.Unmarshal([]byte(got.stdout), &out))
	return out
}

// TestSimulateStoredLimits replays a request an hour from October 31 to November 2 against limits that must be stored. The expected numbers
// follow by counting hours.
func TestSimulateStoredLimits(t *testing.T) {
	var trace strings.Builder
	trace.WriteString("TIMESTAMP,n,Key\n")
	start := time.Date(2026, 10, 31, 0, 30, 0, 0, time.UTC)
	for h := range 72 {
		fmt.Fprintf(&trace, "%s,1,%s\n", start.Add(time.Duration(h)*time.Hour).Format(time.DateTime), []string{"a", "b"}[h%2])
	}
	for _, test := range []struct {
		limit    string
		more     []string
		admitted int
	}{
		{"n=20/day@UTC", nil, 60},
		{"n=30/month@UTC", nil, 24 + 30},
		{"n=23/month@Europe/Berlin", nil, 23 + 23}, // of 23 hours before the new month of Berlin, and 49 after it
		{"n=3/session:6h", nil, 36},                // three of each six hours
		{"n=10/never", nil, 10},
		{"n=10/never", []string{"--key", "Key"}, 20},
		{"n=1/h shadow", nil, 72},
		{"n=30/month@UTC", []string{"--key", "Key"}, 24 + 48},
	} {
		out := replayed(t, trace.String(), append([]string{"--trace", "-", "--limit", test.limit, "--cost", "n=n"}, test.more...)...)
		if out.Admitted != test.admitted || out.Rejected != 72-test.admitted {
			t.Errorf("%s %v: %d admitted, %d rejected, want %d admitted", test.limit, test.more, out.Admitted, out.Rejected, test.admitted)
		}
	}
	for _, test := range []struct{ limit, store, want string }{
		{"n=20/day@UTC", "sqlite:" + filepath.Join(t.TempDir(), "x.db"), "simulate: n=20/day@UTC is for the store memory: alone"},
		{"n=2 slots/30s", "memory:", ""},
	} {
		got := command(t, trace.String(), "simulate", "--trace", "-", "--limit", test.limit, "--cost", "n=n", "--store", test.store)
		if got.code != shell.ExitUsage || !strings.Contains(got.stderr, test.want) {
			t.Errorf("%s: code %d, %s, want %q", test.limit, got.code, got.stderr, test.want)
		}
	}
}

// TestSimulateDollars replays the example of the help: a column of dollars against a budget.
func TestSimulateDollars(t *testing.T) {
	const trace = "TIMESTAMP,Dollars\n2026-10-01T00:00:00Z,90\n2026-10-02T00:00:00Z,90\n2026-10-03T00:00:00Z,9.5\n"
	for _, test := range []struct {
		cost     []string
		admitted int
		used     int64
	}{
		{[]string{"--cost", "usd=Dollars"}, 2, 99_500_000_000},
		{[]string{"--cost", "usd=Dollars+0.5"}, 1, 90_500_000_000}, // the third makes 100.5
		{[]string{"--cost", "usd=33.5"}, 2, 67_000_000_000},
		{[]string{"--cost", "usd=90", "--actual", "usd=Dollars"}, 1, 90_000_000_000},
	} {
		out := replayed(t, trace, append([]string{"--trace", "-", "--limit", "usd=100/month@Europe/Berlin"}, test.cost...)...)
		if out.Admitted != test.admitted || out.TokensAdmitted["usd"] != test.used {
			t.Errorf("%v: %d admitted, which took %d; want %d, %d", test.cost, out.Admitted, out.TokensAdmitted["usd"], test.admitted, test.used)
		}
	}
}

// TestSimulateUsage replays hours of two entities and of their parent, as zlimit usage list prints them.
func TestSimulateUsage(t *testing.T) {
	const usage = `from,to,window,start,entity,resource,tpm,tpm_from_children,usd,usd_from_children,events
2026-10-01T00:00:00Z,2026-10-02T00:00:00Z,hourly,2026-10-01T10:00:00Z,a,gpt,100,0,0.5,0,4
2026-10-01T00:00:00Z,2026-10-02T00:00:00Z,hourly,2026-10-01T10:00:00Z,b,gpt,70.5,0,0.25,0,1000
2026-10-01T00:00:00Z,2026-10-02T00:00:00Z,hourly,2026-10-01T10:00:00Z,team,gpt,180.5,170.5,0.75,0.75,5
2026-10-01T00:00:00Z,2026-10-02T00:00:00Z,hourly,2026-10-01T11:00:00Z,a,gpt,-20,0,,,1
`
	out := replayed(t, usage, "--usage", "-", "--limit", "tpm=60/day@UTC", "--limit", "usd=1/day@UTC")
	if out.Requests != 7+60+5 || out.Keys != 3 || out.TokensRequested["tpm"] != 100+70+10 || out.TokensRequested["usd"] != 750_000_000 {
		t.Errorf("requests = %+v", out)
	}
	// Of a four of seven parts, of which each is at most a quarter of the limit; 60 of b; and 10 of the team.
	if out.TokensAdmitted["tpm"] != 57+60+10 {
		t.Errorf("admitted = %v", out.TokensAdmitted)
	}
	// Few large requests of more than a limit holds are replayed as smaller ones: 25 a minute on a limit of 20.
	const busy = "window,start,entity,events,tpm\nhourly,2026-10-01T10:00:00Z,a,3,1500\n"
	out = replayed(t, busy, "--usage", "-", "--limit", "tpm=20/min")
	if admitted := out.TokensAdmitted["tpm"]; out.Impossible != 0 || admitted < 1200 || admitted > 1220 {
		t.Errorf("of 1500 in an hour on 20 a minute, %d are admitted and %d requests are impossible, want from 1200 to 1220 and none", admitted, out.Impossible)
	}
	out = replayed(t, usage, "--usage", "-", "--limit", "tpm=60/day@UTC", "--limit", "usd=1/day@UTC")
	if first := time.Date(2026, 10, 1, 10, 0, 30, 0, time.UTC); !out.First.Equal(first) {
		t.Errorf("the first request is at %v, want %v", out.First, first)
	}
	const tenths = "start,window,entity,events,usd\n2026-10-01T10:00:00Z,daily,a,1,0.0000000019\n"
	if out := replayed(t, tenths, "--usage", "-", "--limit", "usd=1/day@UTC"); out.TokensRequested["usd"] != 1 {
		t.Errorf("thousandths of billionths are %d billionths, want 1", out.TokensRequested["usd"])
	}
	for input, note := range map[string]bool{
		usage:  false,
		tenths: false, // of one entity
		"start,window,entity,events,n\n2026-10-01T10:00:00Z,daily,a,1,1\n2026-10-01T10:00:00Z,daily,team,1,1\n": true,
	} {
		limit := "usd=1/day@UTC"
		if note {
			limit = "n=1/day@UTC"
		}
		got := command(t, input, "simulate", "--usage", "-", "--limit", limit)
		if got.code != shell.ExitOK || strings.Contains(got.stderr, "list it with --with-children") != note {
			t.Errorf("code %d, stderr %q, want a note of children: %v", got.code, got.stderr, note)
		}
	}
	for _, test := range []struct {
		input, want string
		args        []string
	}{
		{usage, `no column "rpm"`, []string{"--limit", "rpm=60/day@UTC"}},
		{"start,window,entity,events,n\nnoon,hourly,a,1,1\n", `standard input:2: start "noon" must be a time`, []string{"--limit", "n=1/min"}},
		{"start,window,entity,events,n\n2026-10-01T10:00:00Z,yearly,a,1,1\n", "must be hourly, daily or monthly", []string{"--limit", "n=1/min"}},
		{"start,window,entity,events,n\n2026-10-01T10:00:00Z,hourly,,1,1\n", "entity must not be empty", []string{"--limit", "n=1/min"}},
		{"start,window,entity,events,n\n2026-10-01T10:00:00Z,hourly,a,1,x\n", `n "x" must be an amount`, []string{"--limit", "n=1/min"}},
		{usage, "--usage excludes --cost", []string{"--limit", "tpm=1/min", "--cost", "tpm=1"}},
		{usage, "--trace excludes --usage", []string{"--limit", "tpm=1/min", "--trace", "x"}},
	} {
		got := command(t, test.input, append([]string{"simulate", "--usage", "-"}, test.args...)...)
		if got.code != shell.ExitUsage || !strings.Contains(got.stderr, test.want) {
			t.Errorf("%v: code %d, %s, want %q", test.args, got.code, got.stderr, test.want)
		}
	}
}
