package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/internal/proof/check"
)

// TestApplyReportsAllBudgets applies a file that cuts the budgets of 59 levels and raises one. A pipe and JSON have all of them, in the order of the
// plan. A terminal has the first ones, counts of the others by kind, and with --all all of them.
func TestApplyReportsAllBudgets(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "limits.yaml")
	write := func(amount func(n int) int) {
		var text strings.Builder
		text.WriteString("entities:\n")
		for n := range 60 {
			fmt.Fprintf(&text, "  tenant-%02d:\n    resources:\n      gpt:\n        limits:\n          usd: %d/month@UTC\n", n, amount(n))
		}
		check.Fatal(t, "WriteFile()", os.WriteFile(file, []byte(text.String()), 0o600))
	}
	// lines returns the lines about levels, and the others, of an apply to a store of its own.
	lines := func(sh *shell.Shell, args ...string) (levels, others []string) {
		store := "sqlite:" + filepath.Join(dir, fmt.Sprint(len(args), sh.Live, ".db"))
		write(func(int) int { return 100 })
		output(t, sh, "limits", "apply", "-f", file, "--yes", "--store", store)
		write(func(n int) int {
			if n == 59 {
				return 300
			}
			return 50
		})
		args = append([]string{"limits", "apply", "-f", file, "--yes", "--store", store}, args...)
		_, after, _ := strings.Cut(output(t, sh, args...), "applied to namespace")
		for _, line := range strings.Split(strings.TrimSpace(after), "\n") {
			if strings.HasPrefix(line, "entity tenant-") {
				levels = append(levels, line)
			} else if !strings.HasPrefix(line, "  zlimit bucket top-up") {
				others = append(others, line)
			}
		}
		return levels, others
	}
	terminal := func() *shell.Shell {
		sh, _ := onTerminal(nil)
		return sh
	}
	pipe := func() *shell.Shell {
		sh := terminal()
		sh.Live, sh.Watch = false, false
		return sh
	}
	if levels, others := lines(pipe()); len(levels) != 60 || len(others) != 1 || !strings.HasPrefix(levels[59], "entity tenant-59, resource gpt: usd=300/month") {
		t.Errorf("a pipe has %d levels and %q", len(levels), others)
	}
	if levels, others := lines(terminal(), "--all"); len(levels) != 60 || len(others) != 1 {
		t.Errorf("a terminal has %d levels and %q with --all", len(levels), others)
	}
	levels, others := lines(terminal())
	want := "budgets of 40 more levels are not shown: 39 lowered from now on, 1 raised from their next period on; " +
		"--all shows what is left of each, and so do a pipe and -o json"
	if len(levels) != 20 || len(others) != 2 || others[1] != want {
		t.Errorf("a terminal has %d levels and %q, want 20 and %q", len(levels), others, want)
	}
	sh := terminal()
	store := "sqlite:" + filepath.Join(dir, "json.db")
	write(func(int) int { return 100 })
	output(t, sh, "limits", "apply", "-f", file, "--yes", "--store", store)
	write(func(int) int { return 50 })
	var got struct {
		Budgets []struct {
			Entity string `json:"entity"`
			Left   int64  `json:"left"`
		} `json:"budgets"`
	}
	check.Fatal(t, "Unmarshal()", json.Unmarshal([]byte(output(t, sh, "limits", "apply", "-f", file, "--yes", "--store", store, "-o", "json")), &got))
	if len(got.Budgets) != 60 || got.Budgets[59].Entity != "tenant-59" || got.Budgets[59].Left != 50_000_000_000 {
		t.Errorf("JSON has %d budgets: %+v", len(got.Budgets), got.Budgets)
	}
}

// TestApplyOfNewLevels applies a file with new levels. It reports the budgets of those that had one by a wider level before, and no others.
func TestApplyOfNewLevels(t *testing.T) {
	dir := t.TempDir()
	file, store := filepath.Join(dir, "limits.yaml"), "sqlite:"+filepath.Join(dir, "limits.db")
	sh, _ := onTerminal(nil)
	apply := func(text string) string {
		check.Fatal(t, "WriteFile()", os.WriteFile(file, []byte(text), 0o600))
		return output(t, sh, "limits", "apply", "-f", file, "--yes", "--store", store)
	}
	const first = "resources:\n  gpt:\n    limits:\n      usd: 10/month@UTC\nentities:\n  acme:\n    limits:\n      tpd: 5/day@UTC\n"
	if text := apply(first); strings.Contains(text, "left") {
		t.Errorf("the first apply reports %s", text)
	}
	text := apply(first + "    resources:\n      pay:\n        limits:\n          tpd: 9/day@UTC\n      other:\n        limits:\n          eur: 9/day@UTC\n" +
		"  globex:\n    resources:\n      gpt:\n        limits:\n          usd: 30/month@UTC\n")
	for _, want := range []string{
		"entity globex, resource gpt: usd=30/month@UTC from now on; $30 is left, and was $10", "entity acme, resource pay: tpd=9/day@UTC from now on; 9 is left, and was 5",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("apply reports %s, want %q", text, want)
		}
	}
	if strings.Contains(text, "eur=") || strings.Contains(text, "more level") {
		t.Errorf("apply reports %s", text)
	}
}
