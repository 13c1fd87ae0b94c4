package grammar

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// MaxFloor is the largest floor of a priority, in percent of the capacity.
const MaxFloor = 99

// ParseFloors parses floors of priorities, and what is guaranteed to them: PRIORITY=FLOOR or PRIORITY=FLOOR+SHARE, with spaces between
// them, such as batch=20+5 crawl=50. It returns them in the order of the priorities, each in the shortest form. The percents may have a %
// behind.
func ParseFloors(text string) (string, error) {
	floors := strings.Fields(text)
	names, shared := make(map[string]bool, len(floors)), int64(0)
	for i, one := range floors {
		name, percents, _ := strings.Cut(one, "=")
		if rule := CheckLimitName(name); rule != "" {
			return "", fmt.Errorf("floor %q must be PRIORITY=PERCENT, such as batch=20: the priority %s", one, rule)
		}
		first, second, shares := strings.Cut(percents, "+")
		floor, err := percent(first)
		if err != nil || floor < 1 && !shares {
			return "", fmt.Errorf("floor %q must be PRIORITY=PERCENT, a whole percent of the capacity from 1 to %d", one, MaxFloor)
		}
		if names[name] {
			return "", fmt.Errorf("floor %q: the priority has another floor before", one)
		}
		names[name] = true
		floors[i] = name + "=" + strconv.FormatInt(floor, 10)
		if !shares {
			continue
		}
		share, err := percent(second)
		if shared += share; err != nil || share < 1 || shared > MaxFloor {
			return "", fmt.Errorf("floor %q: the guaranteed share behind + must be a whole percent of the limit, and all shares at most %d together", one, MaxFloor)
		}
		floors[i] += "+" + strconv.FormatInt(share, 10)
	}
	slices.Sort(floors)
	return strings.Join(floors, " "), nil
}

// percent parses a percentage from 0 to MaxFloor.
func percent(text string) (int64, error) {
	n, err := strconv.ParseInt(strings.TrimSuffix(text, "%"), 10, 64)
	if err == nil && (n < 0 || n > MaxFloor) {
		err = strconv.ErrRange
	}
	return n, err
}

// AddFloor returns floors with one more of a priority, or with one more guaranteed share; the other one is 0. What a priority has already
// stays, so that ParseFloors finds a second one.
func AddFloor(floors, priority string, floor, share int) string {
	all, found := strings.Fields(floors), false
	for i, one := range all {
		name, percents, _ := strings.Cut(one, "=")
		if name != priority || found {
			continue
		}
		first, second, shares := strings.Cut(percents, "+")
		switch {
		case share != 0 && !shares:
			second = strconv.Itoa(share)
		case share == 0 && first == "0":
			first = strconv.Itoa(floor)
		default:
			continue
		}
		all[i], found = name+"="+first+"+"+second, true
	}
	if one := priority + "=" + strconv.Itoa(floor); !found && share == 0 {
		all = append(all, one)
	} else if !found {
		all = append(all, one+"+"+strconv.Itoa(share))
	}
	return strings.Join(all, " ")
}

// Shares yields the guaranteed shares of floors that were parsed, in percent, by their priorities.
func Shares(floors string) map[string]int64 {
	shares := map[string]int64{}
	for _, one := range strings.Fields(floors) {
		name, percents, _ := strings.Cut(one, "=")
		if _, second, found := strings.Cut(percents, "+"); found {
			shares[name], _ = percent(second)
		}
	}
	return shares
}

// cutFloors splits the text after the name of a limit into the part before its floors, and the floors.
func cutFloors(text string) (rest, floors string, found bool) { return Cut(text, " floors ") }

// floors returns the floors in the form that ParseRate reads.
func (l *LimitOf[M]) floors() string {
	if l.Floors == "" {
		return ""
	}
	return " floors " + l.Floors
}
