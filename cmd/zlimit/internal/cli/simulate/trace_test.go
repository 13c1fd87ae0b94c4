package simulate

import (
	"errors"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
)

func costsOf(t *testing.T, texts ...string) []cost {
	t.Helper()
	var costs []cost
	for _, text := range texts {
		c, err := parseCost(text)
		if err != nil {
			t.Fatalf("parseCost(%q): %v", text, err)
		}
		costs = append(costs, c)
	}
	return costs
}

func TestReadTrace(t *testing.T) {
	const text = "\ufeffin, TIMESTAMP ,\"model, if any\",out\r\n" +
		"1,2023-11-16 18:15:46.6805900,gpt,2\r\n" +
		"\r\n" +
		" 3 , 2023-11-16 18:15:46.6809999 ,\"two\nlines\",4\r\n" +
		"5,2023-11-16T18:15:46.681Z,,6\n" +
		"7,2023-11-16T19:15:46.682+01:00,,8\n" +
		"9,2023-11-16 19:15:46.683+01:00,,10\n" +
		"0,2023-11-16T18:15:47,,0" // the last line has no end
	got, err := readTrace("t.csv", strings.NewReader(text), costsOf(t, "rpm=1", "tpm=in+out+100"), columns{})
	if err != nil {
		t.Fatalf("readTrace: %v", err)
	}
	start := time.Date(2023, time.November, 16, 18, 15, 46, 0, time.UTC).UnixMilli()
	want := &trace{
		name: "t.csv", width: 2,
		rows:  []row{{at: start + 680, line: 2}, {at: start + 680, line: 4}, {at: start + 681, line: 6}, {at: start + 682, line: 7}, {at: start + 683, line: 8}, {at: start + 1000, line: 9}},
		costs: []int64{1, 103, 1, 107, 1, 111, 1, 115, 1, 119, 1, 100},
		total: []int64{6, 655},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(trace{}, row{})); diff != "" {
		t.Errorf("readTrace (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]int64{1, 111}, got.cost(2)); diff != "" {
		t.Errorf("cost of the third row (-want +got):\n%s", diff)
	}
}

// TestReadTraceOfDollars: amounts of a limit in money are in dollars, those of other limits of the same row in tokens.
func TestReadTraceOfDollars(t *testing.T) {
	const text = "TIMESTAMP,cost,fee,tokens\n2026-10-01 00:00:00,0.90,$0.05,90\n2026-10-01 00:00:01,90, 0.000000001 ,1k\n"
	got, err := readTrace("t.csv", strings.NewReader(text), costsOf(t, "usd=cost+fee+0.5", "tpm=tokens"), columns{})
	if err != nil {
		t.Fatalf("readTrace: %v", err)
	}
	if diff := cmp.Diff([]int64{1_450_000_000, 90, 90_500_000_001, 1000}, got.costs); diff != "" {
		t.Errorf("costs (-want +got):\n%s", diff)
	}
}

// TestReadTraceTruncates shows that times are cut to the millisecond towards the past, before 1970 too.
func TestReadTraceTruncates(t *testing.T) {
	got, err := readTrace("t.csv", strings.NewReader("TIMESTAMP\n1969-12-31 23:59:59.9985\n1970-01-01 00:00:00.9999\n"), nil, columns{})
	if err != nil {
		t.Fatalf("readTrace: %v", err)
	}
	if got.rows[0].at != -2 || got.rows[1].at != 999 {
		t.Errorf("times = %d, %d, want -2, 999", got.rows[0].at, got.rows[1].at)
	}
}

func TestReadTraceRejects(t *testing.T) {
	const numbers = "must be a whole number from 0 to 9223372036854775"
	for _, test := range []struct {
		name, text string
		want       string
	}{
		{"an empty file", "", "t.csv:1: the trace is empty; its first line must name the columns"},
		{"no time", "time,in\n", `t.csv:1: no column "TIMESTAMP"; the columns are time, in`},
		{"no such column", "TIMESTAMP,In\n", `t.csv:1: no column "in"; the columns are TIMESTAMP, In`},
		{"a column twice", "TIMESTAMP,in,in\n", `t.csv:1: column "in" is given twice`},
		{"a time twice", "TIMESTAMP,in,TIMESTAMP\n", `t.csv:1: column "TIMESTAMP" is given twice`},
		{"no time in a row", "TIMESTAMP,in\n2024-01-01 00:00:00,1\nnoon,1\n", `t.csv:3: TIMESTAMP "noon" must be a time such as`},
		{"an empty time", "TIMESTAMP,in\n,1\n", `t.csv:2: TIMESTAMP "" must be a time`},
		{"a day that is none", "TIMESTAMP,in\n2024-02-30 00:00:00,1\n", `t.csv:2: TIMESTAMP "2024-02-30 00:00:00" must be a time`},
		{"no number", "TIMESTAMP,in\n2024-01-01 00:00:00,many\n", `t.csv:2: in "many" ` + numbers},
		{"an empty number", "TIMESTAMP,in\n2024-01-01 00:00:00,\n", `t.csv:2: in "" ` + numbers},
		{"a negative number", "TIMESTAMP,in\n2024-01-01 00:00:00,-1\n", `t.csv:2: in "-1" ` + numbers},
		{"a fraction", "TIMESTAMP,in\n2024-01-01 00:00:00,1.5\n", `t.csv:2: in "1.5" ` + numbers},
		{"too large a number", "TIMESTAMP,in\n2024-01-01 00:00:00,9223372036854776\n", `t.csv:2: in "9223372036854776" ` + numbers},
		{
			"too large a cost", "TIMESTAMP,in\n2024-01-01 00:00:00,9223372036854775\n",
			`t.csv:2: in "9223372036854775" makes the cost tpm=in+1 more than 9223372036854775`,
		},
		{
			"too large a sum", "TIMESTAMP,in\n" + strings.Repeat("2024-01-01 00:00:00,9223372036854774\n", 1001),
			"t.csv:1002: the cost tpm=in+1 of all rows is more than 9223372036854775807",
		},
		{"too few fields", "TIMESTAMP,in\n2024-01-01 00:00:00,1\n\n2024-01-01 00:00:00\n", "t.csv:4: the line has another number of fields than the header, 2"},
		{"too many fields", "TIMESTAMP,in\n2024-01-01 00:00:00,1,2\n", "t.csv:2: the line has another number of fields than the header, 2"},
		{"a quote without end", "TIMESTAMP,in\n\"2024-01-01 00:00:00,1\n2,3\n", "t.csv:2: is no CSV: extraneous or missing"},
		{"a quote within a header", "TIME\"STAMP,in\n", "t.csv:1: is no CSV: bare \" in non-quoted-field"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := readTrace("t.csv", strings.NewReader(test.text), costsOf(t, "tpm=in+1"), columns{})
			if !errors.As(err, new(*shell.UsageError)) || !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("readTrace = %v, want a usage error %q", err, test.want)
			}
		})
	}
	const dollars = "must be dollars from 0 to 9223372, with at most 9 decimal places"
	for field, want := range map[string]string{
		"many":         `t.csv:2: in "many" ` + dollars,
		"-0.5":         `t.csv:2: in "-0.5" ` + dollars,
		"1e-05":        `t.csv:2: in "1e-05" ` + dollars,
		"0.0000000001": `t.csv:2: in "0.0000000001" ` + dollars,
		"9223372":      `t.csv:2: in "9223372" makes the cost usd=in+1 more than 9223372.036854775`,
	} {
		_, err := readTrace("t.csv", strings.NewReader("TIMESTAMP,in\n2024-01-01 00:00:00,"+field+"\n"), costsOf(t, "usd=in+1"), columns{})
		if err == nil || err.Error() != want {
			t.Errorf("readTrace of %q dollars = %v, want %q", field, err, want)
		}
	}
	t.Run("a file that cannot be read", func(t *testing.T) {
		_, err := readTrace("t.csv", iotest.ErrReader(errors.New("disk on fire")), nil, columns{})
		if want := "t.csv: cannot be read: disk on fire"; err == nil || err.Error() != want {
			t.Errorf("readTrace = %v, want %q", err, want)
		}
	})
}
