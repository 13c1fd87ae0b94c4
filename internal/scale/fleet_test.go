package scale

import (
	"strings"
	"testing"
)

// caseOf returns a case of the scenarios.
func caseOf(t *testing.T, name string) *Case {
	t.Helper()
	for _, s := range Scenarios() {
		for i := range s.Cases {
			if s.caseName(&s.Cases[i]) == name {
				return &s.Cases[i]
			}
		}
	}
	t.Fatalf("no case %q", name)
	return nil
}

// TestOneWriteARequest has fleets of several sizes pay at most 1.1 write units a request, of buckets that are used seldom and
// often.
func TestOneWriteARequest(t *testing.T) {
	names := []string{"fleet: 1 processes, 10/s", "fleet: 10 processes, 100/s", "fleet: 100 processes, 10/s", "fleet: 10 processes, 1/s"}
	if testing.Short() {
		names = names[1:3]
	}
	for _, name := range names {
		c := caseOf(t, name)
		o := run(t, &c.Load, c.Params)
		f := figureOf(o, "", false)
		if f.Writes > 1.1 || o.Admitted < o.Offered-2 || o.Over > 0 {
			t.Errorf("%s: %v write units a request, %d of %d admitted, %d over", name, f.Writes, o.Admitted, o.Offered, o.Over)
		}
		if strings.Contains(name, " 1 processes") && f.Reads > 0.01 {
			t.Errorf("%s: %v read units a request: there is no other process", name, f.Reads)
		}
	}
}
