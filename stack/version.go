package stack

import (
	"cmp"
	"strconv"
	"strings"
)

// compareVersions compares versions such as 0.10.2, part by part; other text counts as 0.
func compareVersions(a, b string) int {
	as, bs := strings.Split(strings.TrimPrefix(a, "v"), "."), strings.Split(strings.TrimPrefix(b, "v"), ".")
	for i := range max(len(as), len(bs)) {
		if c := cmp.Compare(part(as, i), part(bs, i)); c != 0 {
			return c
		}
	}
	return 0
}

func part(parts []string, i int) int {
	if i >= len(parts) {
		return 0
	}
	n, _ := strconv.Atoi(parts[i])
	return n
}
