package zlimit_test

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/soak"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// trace is a file of requests to LLM services: time, context tokens, generated tokens.
const trace = "../../shared/data/llm_conv_trace.csv"

// TestTrace replays an hour of production traffic. The figures were computed with an ideal bucket in exact rationals.
func TestTrace(t *testing.T) {
	f, err := os.Open(trace)
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("no trace at %s", trace)
	}
	check.Fatal(t, "os.Open()", err)
	defer f.Close()
	rows := check.Call(csv.NewReader(f).ReadAll()).Must(t, "ReadAll()")
	forEachStoreAtNight(t, func(t *testing.T, s zlimit.Store) {
		if !soak.Runs() && store.Of(s).Partitioned() {
			t.Skip("an engine takes a while for 17,000 writes: make soak")
		}
		c := newClock()
		l := newLimiter(t, s, zlimit.WithClock(c.now), zlimit.WithFreshness(0))
		var admitted, rejected, tokens int64
		for _, row := range rows[1:] {
			at, err := time.Parse("2006-01-02 15:04:05", row[0])
			input, inputErr := strconv.ParseInt(row[1], 10, 64)
			output, outputErr := strconv.ParseInt(row[2], 10, 64)
			check.Fatal(t, fmt.Sprintf("parse of %q", row), errors.Join(err, inputErr, outputErr))
			c.ms.Store(at.UnixMilli())
			r := ask(zlimit.Amounts{"rpm": 1, "tpm": input + output})
			r.Limits = []zlimit.Limit{zlimit.PerMinute("rpm", 300), zlimit.PerMinute("tpm", 400_000)}
			_, err = l.Acquire(context.Background(), r)
			switch {
			case err == nil:
				admitted++
				tokens += input + output
			case errors.As(err, new(*zlimit.ExceededError)):
				rejected++
			default:
				t.Fatalf("Acquire() = %v", err)
			}
		}
		if admitted != 16956 || rejected != 2410 || tokens != 21766807 {
			t.Errorf("admitted %d with %d tokens, rejected %d, want 16956 with 21766807, 2410", admitted, tokens, rejected)
		}
	})
}
