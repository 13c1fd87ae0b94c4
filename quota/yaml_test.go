package quota

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/zlimit/zlimit-go/internal/proof/check"
)

// layoutFile is a state file in the layout that programs exchange.
const layoutFile = `quotas:
  gemini-3-pro-preview:
    max_rpm: 150
    max_tpm: 1000000
    max_rpd: 1000
state:
  gemini-3-pro-preview:
    requests:
      - 2026-02-20T14:32:01.123456789Z
    tokens:
      - time: 2026-02-20T14:32:01.123456789Z
        count: 1500
    day_start: 2026-02-20T00:00:00Z
    day_count: 42
`

func fileLimiter(t *testing.T, path string, now *time.Time) *Limiter {
	t.Helper()
	l, err := NewWithConfig(t.Context(), Config{FilePath: path, Providers: []Provider{ProviderLocal}, Clock: func() time.Time { return *now }})
	if err != nil {
		t.Fatalf("NewWithConfig = %v", err)
	}
	return l
}

func TestLoadAndPersistKeepTheLayout(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ratelimits.yaml")
	check.Fatal(t, "os.WriteFile()", os.WriteFile(path, []byte(layoutFile), 0o640))
	now := time.Date(2026, 2, 20, 14, 32, 30, 0, time.UTC)
	l := fileLimiter(t, path, &now)
	check.Fatal(t, "Load", l.Load(t.Context()))
	got, err := l.Stats(t.Context(), "gemini-3-pro-preview")
	want := Stats{
		RPM: 1, MaxRPM: 150, TPM: 1500, MaxTPM: 1_000_000, RPD: 42, MaxRPD: 1000, InputTPM: 1500,
		DayStart: time.Date(2026, 2, 20, 0, 0, 0, 0, time.UTC),
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Fatalf("Stats = %v, differs (-want +got):\n%s", err, diff)
	}
	check.Fatal(t, "Persist", l.Persist(t.Context()))
	data, err := os.ReadFile(path)
	if diff := cmp.Diff(layoutFile, string(data)); diff != "" || err != nil {
		t.Errorf("Persist after Load: %v, file differs (-want +got):\n%s", err, diff)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("Stat after Persist = %v, %v, want mode 0640 kept", info.Mode(), err)
	}
	// The entry counts to the last nanosecond of its minute.
	now = time.Date(2026, 2, 20, 14, 33, 1, 123456788, time.UTC)
	if st, _ := l.Stats(t.Context(), "gemini-3-pro-preview"); st.RPM != 1 {
		t.Errorf("RPM 1ns before a minute is over = %d, want 1", st.RPM)
	}
	now = now.Add(1)
	if st, _ := l.Stats(t.Context(), "gemini-3-pro-preview"); st.RPM != 0 {
		t.Errorf("RPM after a minute = %d, want 0", st.RPM)
	}
}

func TestLoadOfMissingFileIsEmpty(t *testing.T) {
	now := time.Unix(1e9, 0)
	l := fileLimiter(t, filepath.Join(t.TempDir(), "none.yaml"), &now)
	check.Error(t, "Load of a missing file", l.Load(t.Context()))
}

func TestPersistMakesTheDirectoryAndFollowsLinks(t *testing.T) {
	dir := t.TempDir()
	now := time.Unix(1e9, 0)
	target := filepath.Join(dir, "deep", "er", "state.yaml")
	check.Fatal(t, "Persist", fileLimiter(t, target, &now).Persist(t.Context()))
	link := filepath.Join(dir, "link.yaml")
	if err := os.Symlink(target, link); err != nil {
		t.Skipf("no symbolic links: %v", err)
	}
	l := fileLimiter(t, link, &now)
	check.Fatal(t, "SetQuota()", l.SetQuota(t.Context(), "m", ModelQuota{MaxRPM: 7}))
	check.Fatal(t, "Persist through a link", l.Persist(t.Context()))
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("after Persist the link is %v, %v, want still a link", info.Mode(), err)
	}
	if data, err := os.ReadFile(target); err != nil || !strings.Contains(string(data), "max_rpm: 7") {
		t.Errorf("target = %q, %v, want the new state", data, err)
	}
	left, _ := filepath.Glob(filepath.Join(dir, "deep", "er", ".*"))
	if len(left) > 0 {
		t.Errorf("Persist left %v behind", left)
	}
}

// TestPersistRemovesWhatAKilledOneLeft checks that the temporary file of a killed process does not stay forever.
func TestPersistRemovesWhatAKilledOneLeft(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{".state.yaml.1.tmp", ".state.yaml.2.tmp"} {
		check.Fatal(t, "os.WriteFile()", os.WriteFile(filepath.Join(dir, name), []byte("quotas:\n  half"), 0o600))
	}
	now := time.Unix(1e9, 0)
	check.Fatal(t, "Persist", fileLimiter(t, filepath.Join(dir, "state.yaml"), &now).Persist(t.Context()))
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("directory after Persist = %v, %v, want the state file alone", entries, err)
	}
}

// TestFailedPersistLeavesTheOldFile stops the write where the new file would
// take the name.
func TestFailedPersistLeavesTheOldFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "state.yaml")
	check.Fatal(t, "os.MkdirAll()", os.MkdirAll(filepath.Join(path, "in the way"), 0o700))
	now := time.Unix(1e9, 0)
	if err := fileLimiter(t, path, &now).Persist(t.Context()); err == nil {
		t.Fatal("Persist onto a directory = nil, want an error")
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("directory after a failed Persist = %v, %v, want only what was there", entries, err)
	}
}

// TestReadersSeeWholeFiles reads while another goroutine persists: every read
// gives a complete state.
func TestReadersSeeWholeFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.yaml")
	now := time.Unix(1e9, 0)
	l := fileLimiter(t, path, &now)
	for range 500 {
		check.Fatal(t, "RecordUsage()", l.RecordUsage(t.Context(), "m", 1, 2))
	}
	check.Fatal(t, "Persist()", l.Persist(t.Context()))
	done := make(chan error)
	go func() {
		for range 20 {
			if err := l.Persist(context.Background()); err != nil {
				done <- err
				return
			}
		}
		close(done)
	}()
	for reading := true; reading; {
		select {
		case err, failed := <-done:
			if failed {
				t.Fatalf("Persist = %v", err)
			}
			reading = false
		default:
		}
		st, err := readStateFile(path)
		if err != nil || len(st.State["m"].Requests) != 500 {
			t.Fatalf("read during Persist = %d requests, %v, want 500", len(st.State["m"].Requests), err)
		}
	}
}

func TestBadStateFileNamesTheLine(t *testing.T) {
	for name, c := range map[string]struct {
		file string
		line int
		says string
	}{
		"a syntax error":               {"quotas:\n  m: {max_rpm: 1\nstate: {}\n", 2, "did not find"},
		"a tab as indentation":         {"quotas:\n  m:\n\tmax_rpm: 1\n", 3, "cannot start any token"},
		"a bracket on the first line":  {"]", 1, "did not find"},
		"a byte that is not UTF-8":     {"quotas:\n  m\xff: {}\n", 2, "0xff"},
		"a NUL byte":                   {"quotas: {}\nstate:\x00", 2, "control character"},
		"an unknown field":             {"quotas: {}\nlimits: {}\n", 2, "unknown key limits"},
		"an unknown quota field":       {"quotas:\n  m:\n    max_rpm: 1\n    max_rps: 2\n", 4, "unknown key max_rps"},
		"a model given twice":          {"quotas:\n  m: {max_rpm: 1}\n  m: {max_rpm: 2}\n", 3, "has m twice"},
		"a negative limit":             {"quotas:\n  m:\n    max_rpm: -1\n", 3, "must not be negative"},
		"a limit that is a float":      {"quotas:\n  m:\n    max_rpm: 1.5\n", 3, "whole number"},
		"a limit beyond 64 bits":       {"quotas:\n  m:\n    max_rpm: 99999999999999999999\n", 3, "whole number"},
		"a limit that is a word":       {"quotas:\n  m:\n    max_tpm: many\n", 3, "whole number"},
		"a quota that is a list":       {"quotas:\n  m: [1]\n", 2, "is not a mapping"},
		"a time that is none":          {"state:\n  m:\n    requests:\n      - noon\n", 4, "must be a timestamp"},
		"a time out of range":          {"state:\n  m:\n    requests: [9999-01-01T00:00:00Z]\n", 3, "years 1700 to 2200"},
		"tokens without a time":        {"state:\n  m:\n    tokens:\n      - count: 5\n", 4, "years 1700 to 2200"},
		"a negative count":             {"state:\n  m:\n    tokens:\n      - {time: 2026-01-01T00:00:00Z, count: -5}\n", 4, "must not be negative"},
		"a count beyond the largest":   {"state:\n  m:\n    tokens:\n      - {time: 2026-01-01T00:00:00Z, count: 9000000000}\n", 4, "input tokens"},
		"more output than count":       {"state:\n  m:\n    tokens:\n      - {time: 2026-01-01T00:00:00Z, count: 5, output: 6}\n", 4, "tokens"},
		"a day count without a day":    {"state:\n  m:\n    day_count: 5\n", 2, "day_start"},
		"a negative day count":         {"state:\n  m:\n    day_count: -1\n", 3, "must not be negative"},
		"an alias":                     {"quotas:\n  a: &x {max_rpm: 1}\n  b: *x\n", 3, "alias"},
		"two documents":                {"quotas: {}\n---\nquotas: {}\n", 2, "second document"},
		"a name with a control letter": {"quotas:\n  \"a\\x07\": {max_rpm: 1}\n", 2, "control characters"},
		"a top level that is a list":   {"- 1\n", 1, "is not a mapping"},
		"a file cut short":             {layoutFile[:len(layoutFile)-40] + "\"", 13, "could not find"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "state.yaml")
			check.Fatal(t, "os.WriteFile()", os.WriteFile(path, []byte(c.file), 0o600))
			now := time.Unix(1e9, 0)
			l := fileLimiter(t, path, &now)
			err := l.Load(t.Context())
			var at *FileError
			if !errors.As(err, &at) || at.Line != c.line || at.Path != path || !strings.Contains(err.Error(), c.says) {
				t.Errorf("Load = %v, want line %d and %q", err, c.line, c.says)
			}
			if all, _ := l.AllStats(t.Context()); len(all) != 0 {
				t.Errorf("after a failed Load AllStats = %v, want nothing loaded", all)
			}
			if data, _ := os.ReadFile(path); string(data) != c.file {
				t.Error("the failed Load changed the file")
			}
		})
	}
}

// FuzzStateFile feeds bytes to the reader. The reader refuses them, or what it
// read is valid, can be used, and comes back the same through a file.
func FuzzStateFile(f *testing.F) {
	f.Add([]byte(layoutFile))
	f.Add([]byte(""))
	f.Add([]byte("quotas: ~\nkey_quotas: {k: {max_tpd: 5}}\nkey_state: {k: {day_count: 1, day_start: 2026-02-20}}\n"))
	f.Add([]byte("state: {m: {tokens: [{time: 2026-02-20T00:00:00.000000001+02:00, count: 9, output: 4}], requests: [2026-02-20]}}"))
	f.Add([]byte("quotas: &a {m: *a}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		st, err := parseState(data)
		if err != nil {
			if !errors.As(err, new(*FileError)) {
				t.Fatalf("parseState = %v (%T), want a *FileError", err, err)
			}
			return
		}
		check.Fatal(t, "parseState gave a state that is not valid", st.Validate())
		now := time.Date(2026, 2, 20, 0, 0, 30, 0, time.UTC)
		path := filepath.Join(t.TempDir(), "state.yaml")
		l := newLimiter(Config{FilePath: path, Providers: []Provider{ProviderLocal}, Clock: func() time.Time { return now }}, nil)
		l.mem.load(&st)
		before := l.mem.state()
		check.Fatal(t, "writeStateFile", writeStateFile(path, before))
		after, err := readStateFile(path)
		if diff := cmp.Diff(before, after, cmpopts.EquateEmpty()); diff != "" || err != nil {
			t.Fatalf("state through a file: %v, differs (-want +got):\n%s", err, diff)
		}
	})
}
