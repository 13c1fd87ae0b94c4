package grammar

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/internal/calendar"
)

// cycleForm is what follows the amount of a quota: day, week or month, a zone, and perhaps a day and a time.
var cycleForm = regexp.MustCompile(`^(day|week|month)@(.+?)(?::(\w+))?(?:T(\d\d):(\d\d))?$`)

// cronForm is what follows the amount of a quota with times of its own.
var cronForm = regexp.MustCompile(`^cron\s*"([^"]*)"\s*@\s*(\S+)$`)

// weekdays are the days of a week, in their order.
var weekdays = []string{"mon", "tue", "wed", "thu", "fri", "sat", "sun"}

// isQuota reports whether the period of a limit is that of a quota, perhaps a wrong one.
func isQuota(period string) bool {
	return strings.Contains(period, "@") || strings.HasPrefix(period, "cron") || period == "month"
}

// setTimes parses the times of a quota: day@ZONE, week@ZONE[:DAY], month@ZONE[:DAY], each with THH:MM after it or not, or
// cron "PATTERN; …"@ZONE.
func (l *LimitOf[M]) setTimes(text string) error {
	if m := cronForm.FindStringSubmatch(text); m != nil {
		l.Resets, l.Zone = m[1], m[2]
	} else if m := cycleForm.FindStringSubmatch(text); m != nil {
		hour, _ := strconv.Atoi(m[4]) // 0 where it is left out
		minute, _ := strconv.Atoi(m[5])
		patterns, err := cycle(m[1], m[3], hour, minute)
		if err != nil {
			return err
		}
		l.Resets, l.Zone = patterns, m[2]
	} else {
		return fmt.Errorf(`period %q must be day, week or month with a time zone, such as month@Europe/Berlin or week@UTC:fri, or cron "0 8 * * 1-5"@UTC`, text)
	}
	times, err := calendar.Parse(l.Resets, l.Zone)
	if err == nil {
		l.Resets = times.String()
	}
	return err
}

// cycle returns the patterns of a day of a cycle, "" for the first one, at a time.
func cycle(name, day string, hour, minute int) (string, error) {
	switch name {
	case "day":
		if day != "" {
			return "", fmt.Errorf("day %q: a day has no days", day)
		}
		return calendar.Daily(hour, minute), nil
	case "week":
		at := max(slices.Index(weekdays, day), 0)
		if day != "" && weekdays[at] != day {
			return "", fmt.Errorf("day %q must be from mon to sun", day)
		}
		return calendar.Weekly(at+1, hour, minute), nil
	default:
		n, err := strconv.Atoi(day)
		if day == "" {
			n, err = 1, nil
		}
		if err != nil || n < 1 || n > 31 {
			return "", fmt.Errorf("day %q must be from 1 to 31", day)
		}
		return calendar.Monthly(n, hour, minute), nil
	}
}

// times returns the times of a quota in the shortest form that setTimes reads.
func (l *LimitOf[M]) times() string {
	first, _, _ := strings.Cut(l.Resets, ";")
	for _, form := range []struct{ name, read string }{{"day", "%d %d * * *"}, {"week", "%d %d * * %d"}, {"month", "%d %d %d"}} {
		var hour, minute int
		day := 1
		if n, _ := fmt.Sscanf(first, form.read, &minute, &hour, &day); n < 2 {
			continue
		}
		if text, ok := l.cycle(form.name, day, hour, minute); ok {
			return text
		}
	}
	return fmt.Sprintf("cron %q@%s", l.Resets, l.Zone)
}

// cycle returns the form of a day of a cycle at a time; false where the quota has others.
func (l *LimitOf[M]) cycle(name string, day, hour, minute int) (text string, ok bool) {
	text = name + "@" + l.Zone
	same := ""
	switch {
	case name == "day":
		same = calendar.Daily(hour, minute)
	case name == "week" && day >= 1 && day <= 7:
		if same = calendar.Weekly(day, hour, minute); day > 1 {
			text += ":" + weekdays[day-1]
		}
	case name == "month" && day >= 1 && day <= 31:
		if same = calendar.Monthly(day, hour, minute); day > 1 {
			text += ":" + strconv.Itoa(day)
		}
	}
	if hour > 0 || minute > 0 {
		text += fmt.Sprintf("T%02d:%02d", hour, minute)
	}
	return text, same == l.Resets
}

// errQuotaRefill is why a quota has one amount alone.
var errQuotaRefill = errors.New("a quota has no refill: write AMOUNT/day@ZONE, not CAPACITY:REFILL")

// carryForm comes before the most that a quota carries.
const carryForm = " carry "

// errCarry is why only some limits carry what is left.
var errCarry = errors.New("carry is for quotas with reset times, such as 25/month@UTC carry 50")

// cutCarry splits the period of a limit into the part before what it carries, and that.
func cutCarry(text string) (period, carry string, ok bool) {
	whole := text + " " // the amount may be missing
	at := strings.LastIndex(whole, carryForm)
	if at < 0 || strings.Contains(whole[at:], `"`) {
		return text, "", false
	}
	return strings.TrimSpace(whole[:at]), strings.TrimSpace(whole[at+len(carryForm):]), true
}

// carry returns what a quota carries in the form that cutCarry reads.
func (l *LimitOf[M]) carry() string {
	if l.Carry == 0 {
		return ""
	}
	return carryForm + FormatAmount(l.Name, l.Carry)
}

// sessionForm comes before the length of sessions, in place of a period.
const sessionForm = "session:"

// MaxSession is the longest session, in which every program of the table can count. A limit with such sessions is prepaid: its one session
// never ends.
const MaxSession = 1_000_000_000 * time.Second

// neverForm stands in place of a period for a prepaid limit.
const neverForm = "never"

// ParseSession parses the length of sessions: a period of whole seconds.
func ParseSession(text string) (time.Duration, error) {
	length, err := ParsePeriod(text)
	switch {
	case err != nil:
		return 0, fmt.Errorf("session %q must have a length of whole seconds, such as session:5h, session:90s or session:2d", text)
	case CheckSession(length) != "":
		return 0, fmt.Errorf("session %q %s", text, CheckSession(length))
	default:
		return length, nil
	}
}

// CheckSession returns the rule that the length of sessions breaks, "" for none.
func CheckSession(length time.Duration) string {
	if length < time.Second || length > MaxSession || length%time.Second != 0 {
		return "must be whole seconds, from 1 to 1000000000"
	}
	return ""
}
