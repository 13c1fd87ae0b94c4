package cli

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/simulate"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
	"github.com/zlimit/zlimit-go/internal/proof/soak"
	"github.com/zlimit/zlimit-go/zlimit/dynamo"
)

// llmTrace is a trace of an LLM service in production, beside the repository where it was put there.
const llmTrace = "../../../../../shared/data/llm_conv_trace.csv"

// TestSimulateLLMTrace replays an hour of real traffic in memory, and its first minutes on every other store. The long form replays the
// hour in a file, too.
func TestSimulateLLMTrace(t *testing.T) {
	t.Parallel()
	whole, err := os.ReadFile(llmTrace)
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("no trace at %s", llmTrace)
	}
	check.Fatal(t, "os.ReadFile()", err)
	simulated := func(t *testing.T, trace, dsn string) run {
		return command(t, "", "simulate", "--trace", trace, "--store", dsn,
			"--limit", "rpm=300/min", "--limit", "tpm=400000/min",
			"--cost", "rpm=1", "--cost", "tpm=ContextTokens+GeneratedTokens",
			"--freshness", "0", "-o", "json")
	}
	hour := func(t *testing.T, dsn string) {
		want := `{"requests":19366,"admitted":16956,"rejected":2410,"impossible":0,` +
			`"tokens_requested":{"rpm":19366,"tpm":26450535},"tokens_admitted":{"rpm":16956,"tpm":21766807},` +
			`"rejected_by":{"rpm":1615,"tpm":902},"first":"2023-11-16T18:15:46.68Z","last":"2023-11-16T19:14:08.402Z"}` + "\n"
		if diff := cmp.Diff(run{shell.ExitOK, want, ""}, simulated(t, llmTrace, dsn), cmp.AllowUnexported(run{})); diff != "" {
			t.Errorf("simulate (-want +got):\n%s", diff)
		}
	}
	minutes := func(t *testing.T, dsn string) {
		const rows = 2000 // of which some are rejected
		trace := filepath.Join(t.TempDir(), "first.csv")
		if err := os.WriteFile(trace, bytes.Join(bytes.SplitAfterN(whole, []byte("\n"), rows+2)[:rows+1], nil), 0o600); err != nil {
			t.Fatalf("write the first rows of the trace: %v", err)
		}
		want := simulated(t, trace, "memory:")
		if want.code != shell.ExitOK || !strings.Contains(want.stdout, `"rejected_by":{"rpm":`) {
			t.Fatalf("simulate in memory: code %d, %s%s, want some requests rejected", want.code, want.stdout, want.stderr)
		}
		if diff := cmp.Diff(want, simulated(t, trace, dsn), cmp.AllowUnexported(run{})); diff != "" {
			t.Errorf("simulate (-memory +%s):\n%s", dsn, diff)
		}
	}
	t.Run("memory", func(t *testing.T) { hour(t, "memory:") })
	t.Run("sqlite", func(t *testing.T) {
		soak.Pick(minutes, hour)(t, "sqlite:"+filepath.Join(t.TempDir(), "limits.db"))
	})
	t.Run("dynamodb", func(t *testing.T) {
		engine := enginetest.Fresh(t) // which other tests need not share meanwhile
		dsn, table := engineDSN(t, engine)
		input := dynamo.CreateTableInput(table)
		input.StreamSpecification = nil // which slows the engine down with every record
		if _, err := engine.Client().CreateTable(t.Context(), input); err != nil {
			t.Fatalf("create the table: %v", err)
		}
		if got := command(t, "", "setup", "--store", dsn); got.code != shell.ExitOK {
			t.Fatalf("setup: code %d, stderr %s", got.code, got.stderr)
		}
		minutes(t, dsn)
	})
}

// An idealBucket is a token bucket in exact numbers. A millitoken flows in whenever the product of time and rate passes
// a whole number of millitokens.
type idealBucket struct{ capacity, refill, period int64 } // tokens, tokens, milliseconds

// flowed returns the millitokens that have flowed in since 1970.
func (b *idealBucket) flowed(at int64) *big.Int {
	product := new(big.Int).Mul(big.NewInt(at), big.NewInt(b.refill*1000))
	return product.Div(product, big.NewInt(b.period)) // rounds towards the past
}

func (b *idealBucket) limit() string {
	return fmt.Sprintf("%d:%d/%dms", b.capacity, b.refill, b.period)
}

// replay returns what becomes of requests: rows of a time and the costs of each bucket. Requests that are not admitted,
// or cost nothing, leave no trace. A time before the latest one so far counts as the latest one.
func replay(buckets []*idealBucket, rows [][]int64) (out simulate.Outcome) {
	out.TokensAdmitted = map[string]int64{}
	for i := range buckets {
		out.TokensAdmitted[limitName(i)] = 0
	}
	var levels []*big.Int // millitokens; nil before the first admission
	var last int64        // time of the last admission
	now := int64(math.MinInt64)
	for _, row := range rows {
		impossible, short, free := false, false, true
		now = max(now, row[0])
		var after []*big.Int
		for i, b := range buckets {
			cost := big.NewInt(row[1+i] * 1000)
			full := big.NewInt(b.capacity * 1000)
			level := new(big.Int).Set(full)
			if levels != nil {
				level.Add(levels[i], new(big.Int).Sub(b.flowed(now), b.flowed(last)))
			}
			if level.Cmp(full) > 0 {
				level = full
			}
			impossible = impossible || cost.Cmp(full) > 0
			short = short || cost.Sign() > 0 && level.Cmp(cost) < 0
			free = free && cost.Sign() == 0
			after = append(after, new(big.Int).Sub(level, cost))
		}
		out.Requests++
		switch {
		case impossible:
			out.Impossible++
		case short:
			out.Rejected++
		default:
			out.Admitted++
			for i := range buckets {
				out.TokensAdmitted[limitName(i)] += row[1+i]
			}
			if !free {
				levels, last = after, now
			}
		}
	}
	return out
}

func limitName(i int) string { return string(rune('a' + i)) }

// simulated runs the command on rows, and returns its figures, as far as replay has them.
func simulated(t *testing.T, buckets []*idealBucket, rows [][]int64) (simulate.Outcome, string) {
	t.Helper()
	var text strings.Builder
	w := csv.NewWriter(&text)
	header, args := []string{"TIMESTAMP"}, []string{"simulate", "--trace", "-", "--freshness", "0", "-o", "json"}
	for i, b := range buckets {
		header = append(header, "cost of "+limitName(i))
		args = append(args, "--limit", limitName(i)+"="+b.limit(), "--cost", limitName(i)+"=cost of "+limitName(i))
	}
	_ = w.Write(header)
	for _, row := range rows {
		record := []string{time.UnixMilli(row[0]).UTC().Format("2006-01-02 15:04:05.000")}
		for _, cost := range row[1:] {
			record = append(record, strconv.FormatInt(cost, 10))
		}
		_ = w.Write(record)
	}
	w.Flush()
	got := command(t, text.String(), args...)
	if got.code != shell.ExitOK {
		t.Fatalf("zlimit %q: code %d, stderr %s\ntrace:\n%s", args, got.code, got.stderr, text.String())
	}
	var all simulate.Outcome
	if err := json.Unmarshal([]byte(got.stdout), &all); err != nil {
		t.Fatalf("%v in %s", err, got.stdout)
	}
	return simulate.Outcome{
		Requests: all.Requests, Admitted: all.Admitted, Rejected: all.Rejected, Impossible: all.Impossible,
		TokensAdmitted: all.TokensAdmitted,
	}, text.String()
}

// TestSimulateAgreesWithIdealBuckets replays random traces, in order and out of order, against limits of all kinds.
func TestSimulateAgreesWithIdealBuckets(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		var buckets []*idealBucket
		for range rapid.IntRange(1, 3).Draw(r, "limits") {
			buckets = append(buckets, &idealBucket{
				capacity: rapid.Int64Range(1, 40).Draw(r, "capacity"),
				refill:   rapid.Int64Range(1, 40).Draw(r, "refill"),
				period:   rapid.SampledFrom([]int64{1, 7, 1000, 1003, 60_000, 86_400_000}).Draw(r, "period"),
			})
		}
		at := rapid.Int64Range(0, 4e12).Draw(r, "start")
		back := rapid.SampledFrom([]int64{0, 0, 3000}).Draw(r, "back")
		var rows [][]int64
		for range rapid.IntRange(0, 40).Draw(r, "rows") {
			at += rapid.Int64Range(-back, 5000).Draw(r, "pause")
			row := []int64{at}
			for _, b := range buckets {
				row = append(row, rapid.Int64Range(0, min(b.capacity+2, 12)).Draw(r, "cost"))
			}
			rows = append(rows, row)
		}
		want := replay(buckets, rows)
		got, trace := simulated(t, buckets, rows)
		if diff := cmp.Diff(want, got); diff != "" {
			r.Fatalf("simulate (-ideal +got):\n%s\ntrace:\n%s", diff, trace)
		}
	})
}

// TestSimulateAroundTheEpoch replays a trace around the epoch.
func TestSimulateAroundTheEpoch(t *testing.T) {
	buckets := []*idealBucket{{capacity: 3, refill: 1, period: 7}}
	var rows [][]int64
	for at := int64(-100); at < 100; at += 3 {
		rows = append(rows, []int64{at, 1})
	}
	want := replay(buckets, rows)
	got, _ := simulated(t, buckets, rows)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("simulate (-ideal +got):\n%s", diff)
	}
}

// TestSimulateReadsTheStandardInput names it in errors.
func TestSimulateReadsTheStandardInput(t *testing.T) {
	args := []string{"simulate", "--trace", "-", "--limit", "a=1/s", "--cost", "a=1"}
	got := command(t, "TIMESTAMP\nx\n", args...)
	if want := `zlimit: standard input:2: TIMESTAMP "x" must be a time`; got.code != shell.ExitUsage || !strings.HasPrefix(got.stderr, want) {
		t.Errorf("code %d, stderr %q; want 2 and %q", got.code, got.stderr, want)
	}
}

// TestSimulateNeedsATable: the error of a missing table has the remedy and the store.
func TestSimulateNeedsATable(t *testing.T) {
	dsn, _ := engineDSN(t, enginetest.Start(t))
	got := command(t, "TIMESTAMP\n2024-01-01 00:00:00\n",
		"simulate", "--trace", "-", "--limit", "a=1/s", "--cost", "a=1", "--store", dsn)
	want := "; create the table with: zlimit setup --store '" + dsn + "'\n"
	if got.code != shell.ExitFailure || !strings.Contains(got.stderr, "table not found") || !strings.HasSuffix(got.stderr, want) ||
		strings.Count(got.stderr, "\n") != 1 {
		t.Errorf("code %d, stderr %q; want 1 and one line that ends in %q", got.code, got.stderr, want)
	}
	if got := command(t, "", "setup", "--store", dsn); got.code != shell.ExitOK {
		t.Fatalf("setup: code %d, stderr %s", got.code, got.stderr)
	}
	got = command(t, "", "limits", "list", "--store", dsn, "--namespace", "staging")
	want = `zlimit: namespace not found: "staging"; register it with: zlimit setup --store '` + dsn + "' --namespace 'staging'\n"
	if got.code != shell.ExitFailure || got.stderr != want {
		t.Errorf("code %d, stderr %q; want 1 and %q", got.code, got.stderr, want)
	}
}

// TestOutageIsAFailure asks a table on an endpoint without a listener.
func TestOutageIsAFailure(t *testing.T) {
	const dsn = "dynamodb:limits?region=us-east-1&endpoint=http://127.0.0.1:1"
	for _, args := range [][]string{
		{"limits", "list"},
		{"available", "acme", "gpt"},
		{"simulate", "--trace", "-", "--limit", "a=1/s", "--cost", "a=1"},
	} {
		got := command(t, "TIMESTAMP\n2024-01-01 00:00:00\n", append(args, "--store", dsn)...)
		if got.code != shell.ExitFailure || got.stdout != "" || !strings.Contains(got.stderr, "unavailable") || strings.Count(got.stderr, "\n") != 1 {
			t.Errorf("zlimit %s: code %d, stdout %q, stderr %q; want code 1 and one line", strings.Join(args, " "), got.code, got.stdout, got.stderr)
		}
	}
}

// TestSimulateShowsProgress lets the clock run while a trace is replayed on a terminal.
func TestSimulateShowsProgress(t *testing.T) {
	sh, _ := onTerminal(nil)
	sh.Stdin = strings.NewReader("TIMESTAMP\n" + strings.Repeat("2024-01-01 00:00:00\n", 1500))
	calls := 0
	start := sh.Now()
	sh.Now = func() time.Time {
		calls++
		return start.Add(time.Duration(calls) * time.Millisecond)
	}
	got := execute(t.Context(), sh, "simulate", "--trace", "-", "--limit", "a=1/s", "--cost", "a=1")
	if got.code != shell.ExitOK {
		t.Fatalf("code %d, stderr %s", got.code, got.stderr)
	}
	lines := strings.Split(got.stderr, "\r")
	if len(lines) < 5 || !strings.HasSuffix(lines[1], " of 1,500 requests replayed"+show.ClearLine) || lines[len(lines)-1] != show.ClearLine {
		t.Errorf("stderr = %q, want a line now and then, cleared in the end", lines)
	}
	if !slices.IsSortedFunc(lines[1:len(lines)-1], func(a, b string) int { return len(a) - len(b) }) {
		t.Errorf("stderr = %q, want progress", lines)
	}
}
