package grammar

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/zlimit/zlimit-go/internal/calendar"
)

// windowForm is a window after the period of a limit: when "PATTERN"@ZONE CHANGE, perhaps without a zone.
var windowForm = regexp.MustCompile(`^when\s*"([^"]*)"\s*(?:@\s*(\S+))?\s+(x\S*|to\s.*)$`)

// cutWindows splits the text after the name of a limit into its rate and its windows.
func cutWindows(text string) (rate string, windows []string) {
	parts := strings.Split(text, " when ")
	for _, part := range parts[1:] {
		windows = append(windows, "when "+strings.TrimSpace(part))
	}
	return strings.TrimSpace(parts[0]), windows
}

// setWindows parses windows. All of them, and the times of a quota, are in one zone, which is UTC if none is named.
func (l *LimitOf[M]) setWindows(windows []string) error {
	var texts []string
	for _, text := range windows {
		m := windowForm.FindStringSubmatch(text)
		if m == nil {
			return fmt.Errorf(`window %q must be when "PATTERN" and a change, such as when "* 9-17 * * 1-5" x2 or when "0-29 * * * *"@Europe/Berlin to 20:10/30s`, text)
		}
		if m[2] != "" && l.Zone != "" && m[2] != l.Zone {
			return fmt.Errorf("window %q: zone %q must be that of the whole limit, %s", text, m[2], l.Zone)
		}
		if m[2] != "" {
			l.Zone = m[2]
		}
		texts = append(texts, m[1]+" "+m[3])
	}
	if l.Zone == "" {
		l.Zone = "UTC"
	}
	w, err := calendar.ParseWindows(strings.Join(texts, "; "), l.Zone)
	if err == nil {
		l.Windows = w.String()
	}
	return err
}

// windows returns the windows in the form that setWindows reads.
func (l *LimitOf[M]) windows() string {
	var b strings.Builder
	for text := range strings.SplitSeq(l.Windows, ";") {
		fields := strings.Fields(text)
		if len(fields) < 6 {
			continue
		}
		fmt.Fprintf(&b, " when %q", strings.Join(fields[:5], " "))
		if l.Resets == "" && l.Zone != "UTC" {
			b.WriteString("@" + l.Zone)
		}
		b.WriteString(" " + strings.Join(fields[5:], " "))
	}
	return b.String()
}
