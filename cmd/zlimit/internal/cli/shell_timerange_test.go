package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
)

// testNow is the time at which tests look at ranges: 23:30 on the last of February in UTC, and March in most of Europe.
var testNow = time.Date(2028, time.February, 29, 23, 30, 0, 0, time.UTC)

// parseRange parses a range as a command does.
func parseRange(args ...string) (from, to time.Time, err error) {
	var r shell.TimeRange
	cmd := &cobra.Command{Use: "zlimit"}
	list := &cobra.Command{Use: "list", RunE: func(cmd *cobra.Command, _ []string) (err error) {
		from, to, err = r.Parse(cmd, testNow.In(time.FixedZone("", 3600)))
		return err
	}, SilenceErrors: true, SilenceUsage: true}
	r.Flags(list)
	cmd.AddCommand(list)
	cmd.SetArgs(append([]string{"list"}, args...))
	err = cmd.Execute()
	return from, to, err
}

func TestTimeRanges(t *testing.T) {
	for _, test := range []struct {
		args     string
		from, to string // "" for open
	}{
		{"", "", ""},
		{"--since 24h", "2028-02-28T23:30:00Z", ""},
		{"--since 1d12h30m --to now", "2028-02-28T11:00:00Z", "2028-02-29T23:30:00Z"},
		{"--since 2w", "2028-02-15T23:30:00Z", ""},
		{"--from yesterday --to today", "2028-02-28T00:00:00Z", "2028-02-29T00:00:00Z"},
		{"--from today --to tomorrow", "2028-02-29T00:00:00Z", "2028-03-01T00:00:00Z"},
		{"--from 2028-01", "2028-01-01T00:00:00Z", ""},
		{"--to 2028-02-29", "", "2028-02-29T00:00:00Z"},
		{"--from 2028-02-29T15:04 --to 2028-02-29T15:04:05", "2028-02-29T15:04:00Z", "2028-02-29T15:04:05Z"},
		{"--from 2028-02-29T15:04:05Z --to 2028-02-29T15:04:05.5-00:30", "2028-02-29T15:04:05Z", "2028-02-29T15:34:05.5Z"},
		{"--from 2028-03-01T00:30:00+01:00", "2028-02-29T23:30:00Z", ""},
		{"--from 2028-03-01T00:30+05:30 --to 2028-03-01T00:30Z", "2028-02-29T19:00:00Z", "2028-03-01T00:30:00Z"},
	} {
		from, to, err := parseRange(strings.Fields(test.args)...)
		if err != nil {
			t.Errorf("%s: %v", test.args, err)
			continue
		}
		for _, end := range []struct {
			name string
			got  time.Time
			want string
		}{{"from", from, test.from}, {"to", to, test.to}} {
			got := ""
			if !end.got.IsZero() {
				got = end.got.Format(time.RFC3339Nano)
			}
			if got != end.want {
				t.Errorf("%s: %s = %q, want %q", test.args, end.name, got, end.want)
			}
		}
	}
}

func TestTimeRangesThatAreNone(t *testing.T) {
	for args, want := range map[string]string{
		"--since 24h --from today":                "list: --since excludes --from",
		"--since yesterday":                       `list: --since "yesterday": must be an age such as 24h, 7d, 2w or 1d12h`,
		"--since=":                                `list: --since "": must be an age`,
		"--since 24":                              `list: --since "24": must be an age`,
		"--since 0h":                              `list: --since "0h": must be an age`,
		"--since -1h":                             `list: --since "-1h": must be an age`,
		"--since 1.5h":                            `list: --since "1.5h": must be an age`,
		"--since 1h2d":                            `list: --since "1h2d": must be an age`,
		"--since 10000w":                          `list: --since "10000w": must be an age`,
		"--since 99999999999999999999s":           `list: --since "99999999999999999999s": must be an age`,
		"--from=":                                 `list: --from "": must be now, today, yesterday, tomorrow, a month such as 2026-03, a date such as 2026-03-01, or a time such as`,
		"--from Today":                            `list: --from "Today": must be now`,
		"--from 24h":                              `list: --from "24h": must be now`,
		"--from 2027-02-29":                       `list: --from "2027-02-29": must be now`,
		"--to 2028-2-9":                           `list: --to "2028-2-9": must be now`,
		"--to 29.02.2028":                         `list: --to "29.02.2028": must be now`,
		"--to 2028-02-29T15":                      `list: --to "2028-02-29T15": must be now`,
		"--from today --to today":                 "list: the range ends at 2028-02-29, and does not begin before",
		"--from now --to 2028-02-29T12:00:01":     "list: the range ends at 2028-02-29T12:00:01, and does not begin before",
		"--since 1h --to 2028-02-29T15:04:00Z":    "list: the range ends at 2028-02-29T15:04, and does not begin before",
		"--from 2028-02-29T15:04:05Europe/Prague": `list: --from "2028-02-29T15:04:05Europe/Prague": must be now`,
	} {
		from, to, err := parseRange(strings.Fields(args)...)
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: from %v to %v, %v; want the error %s", args, from, to, err, want)
		}
	}
}

// FuzzParseMoment parses texts. A time comes back from the form in which it is written, and no text is both a time and
// an age.
func FuzzParseMoment(f *testing.F) {
	for _, text := range []string{
		"now", "today", "2026-03", "2026-03-01", "2026-03-01T15:04", "2026-03-01T15:04:05", "2026-03-01T15:04:05Z",
		"2026-03-01T15:04:05.999999999+23:59", "0000-01-01", "9999-12-31T23:59:59", "24h", "2w3d", "1d12h30m15s", "9999w",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		at, isTime := shell.ParseMoment(text, testNow)
		age, isAge := shell.ParseAge(text)
		if isTime && isAge {
			t.Fatalf("%q is a time and an age", text)
		}
		if isAge && (age < time.Second || age > 225*365*24*time.Hour) {
			t.Fatalf("ParseAge(%q) = %v", text, age)
		}
		if isTime {
			back, ok := shell.ParseMoment(shell.FormatMoment(at), testNow)
			if inYears := at.Year() >= 0 && at.Year() <= 9999; inYears && (!ok || !back.Equal(at.Truncate(time.Second))) {
				t.Fatalf("ParseMoment(%q) = %v, written %s, and read %v, %t", text, at, shell.FormatMoment(at), back, ok)
			}
		}
	})
}
