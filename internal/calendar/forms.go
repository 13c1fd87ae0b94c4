package calendar

import (
	"fmt"
	"strings"
)

// Daily returns the pattern of a time of each day.
func Daily(hour, minute int) string { return fmt.Sprintf("%d %d * * *", minute, hour) }

// Weekly returns the pattern of a time of one day of each week, from 1 for Monday to 7 for Sunday.
func Weekly(day, hour, minute int) string { return fmt.Sprintf("%d %d * * %d", minute, hour, day) }

// months are those with a given day after the 28th. The shorter months, whose last day stands for it, come before them.
// In February that is the 28th, in every year.
var months = map[int][]string{
	29: {"29 1,3-12", "28 2"},
	30: {"30 1,3-12", "28 2"},
	31: {"31 1,3,5,7,8,10,12", "30 4,6,9,11", "28 2"},
}

// Monthly returns the patterns of a time of one day of each month, from 1 to 31. Where a month is shorter, it is the last day.
func Monthly(day, hour, minute int) string {
	dates, ok := months[day]
	if !ok {
		dates = []string{fmt.Sprintf("%d *", day)}
	}
	texts := make([]string, len(dates))
	for i, date := range dates {
		texts[i] = fmt.Sprintf("%d %d %s *", minute, hour, date)
	}
	return strings.Join(texts, "; ")
}
