package cli

import (
	"bytes"
	"errors"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/usage"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A readout is a long list that knows its progress by time, and the written rows.
type readout struct {
	bytes.Buffer
	rows   int // of the list
	passes int
	gap    int   // rows that the last pass read between two writes, at most
	since  int   // rows read since the last write
	fail   error // at the last row
}

func (r *readout) Write(b []byte) (int, error) {
	r.since = 0
	return r.Buffer.Write(b)
}

// snapshots yields the list, whose last row alone has a second limit.
func (r *readout) snapshots() iter.Seq2[zlimit.Snapshot, error] {
	return func(yield func(zlimit.Snapshot, error) bool) {
		r.passes++
		r.since, r.gap = 0, 0
		start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		for n := range r.rows {
			r.since++
			r.gap = max(r.gap, r.since)
			s := zlimit.Snapshot{
				Entity: "e", Resource: "r", Window: zlimit.WindowHourly, Start: start.Add(time.Duration(n) * time.Hour),
				Consumed: map[string]zlimit.Quantity{"rpm": 1000}, Events: int64(n),
			}
			if n == r.rows-1 {
				s.Consumed["tpm"] = 5_000_000
				if r.fail != nil {
					yield(s, r.fail)
					return
				}
			}
			if !yield(s, nil) {
				return
			}
		}
	}
}

// TestLongListsStream prints a list of 100,000 rows. No more than some thousands of them are read between two writes,
// and the result is that of a short list.
func TestLongListsStream(t *testing.T) {
	q := zlimit.UsageQuery{Entity: "e", Window: zlimit.WindowHourly}
	for _, test := range []struct {
		form   shell.Output
		passes int
	}{{shell.Output{JSON: true}, 1}, {shell.Output{CSV: true}, 2}, {shell.Output{}, 2}} {
		r := &readout{rows: 100_000}
		sh := &shell.Shell{Stdout: r, Output: test.form}
		check.Fatal(t, "Print()", usage.SnapshotsOf(q, false).Print(sh, r.snapshots()))
		if r.passes != test.passes {
			t.Errorf("%v reads the list %d times, want %d", &test.form, r.passes, test.passes)
		}
		if r.gap > 5000 { // in the pass that writes
			t.Errorf("%v: %d rows were read between two writes", &test.form, r.gap)
		}
		lines := strings.Split(strings.TrimSuffix(r.String(), "\n"), "\n")
		if want := r.rows + 1; !test.form.JSON && len(lines) != want {
			t.Errorf("%v has %d lines, want %d", &test.form, len(lines), want)
		}
		// The first and the last row are printed as in a short list.
		short := &readout{}
		var rows []zlimit.Snapshot
		for s := range r.snapshots() {
			if s.Events == 0 || s.Events == int64(r.rows-1) {
				rows = append(rows, s)
			}
		}
		check.Fatal(t, "Print()", usage.SnapshotsOf(q, false).Print(&shell.Shell{Stdout: short, Output: test.form}, shell.Remembered(rows)))
		if test.form.JSON {
			head, last, _ := strings.Cut(short.String(), `},{"entity"`)
			if !strings.HasPrefix(r.String(), head) || !strings.HasSuffix(r.String(), last) {
				t.Errorf("JSON begins with %.200s and ends with %s", r.String(), r.String()[r.Len()-200:])
			}
			continue
		}
		of := strings.Split(strings.TrimSuffix(short.String(), "\n"), "\n")
		for i, want := range map[int]string{0: of[0], 1: of[1], len(lines) - 1: of[2]} {
			if lines[i] != want {
				t.Errorf("line %d of %v is %q, want %q", i, &test.form, lines[i], want)
			}
		}
	}
}

// TestListsThatFail ends with the error of a row, whatever was printed before.
func TestListsThatFail(t *testing.T) {
	for _, form := range []shell.Output{{JSON: true}, {CSV: true}, {}} {
		r := &readout{rows: 2000, fail: errors.New("gone")}
		sh := &shell.Shell{Stdout: r, Output: form}
		if err := usage.SnapshotsOf(zlimit.UsageQuery{Window: zlimit.WindowHourly}, false).Print(sh, r.snapshots()); !errors.Is(err, r.fail) {
			t.Errorf("%v: print() = %v, want %v", &form, err, r.fail)
		}
	}
}
