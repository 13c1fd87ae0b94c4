package grammar

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// MaxFloor is the largest floor of a priority, in percent of the capacity.
const MaxFloor = 99

// ParseFloors parses floors of priorities, PRIORITY=PERCENT with spaces between them, such as batch=20 crawl=50. It returns them in
// the order of the priorities, each in the shortest form. The percents may have a % behind.
func ParseFloors(text string) (string, error) {
	floors := strings.Fields(text)
	names := make(map[string]bool, len(floors))
	for i, floor := range floors {
		name, percent, _ := strings.Cut(floor, "=")
		if rule := CheckLimitName(name); rule != "" {
			return "", fmt.Errorf("floor %q must be PRIORITY=PERCENT, such as batch=20: the priority %s", floor, rule)
		}
		n, err := strconv.ParseInt(strings.TrimSuffix(percent, "%"), 10, 64)
		if err != nil || n < 1 || n > MaxFloor {
			return "", fmt.Errorf("floor %q must be PRIORITY=PERCENT, a whole percent of the capacity from 1 to %d", floor, MaxFloor)
		}
		if names[name] {
			return "", fmt.Errorf("floor %q: the priority has another floor before", floor)
		}
		names[name] = true
		floors[i] = name + "=" + strconv.FormatInt(n, 10)
	}
	slices.Sort(floors)
	return strings.Join(floors, " "), nil
}

// cutFloors splits the text after the name of a limit into the part before its floors, and the floors.
func cutFloors(text string) (rest, floors string, found bool) { return Cut(text, " floors ") }

// floors returns the floors in the form that ParseRate reads.
func (l *Limit) floors() string {
	if l.Floors == "" {
		return ""
	}
	return " floors " + l.Floors
}
