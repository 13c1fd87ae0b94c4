package grammar

import (
	"maps"
	"slices"
)

// MaxWithin is the most resources of a chain, each of which lies within the next one.
const MaxWithin = 3

// CheckWithin returns resources, each within the next one, that make a circle or are more than [MaxWithin]; nil where
// there are none. wider has the wider resource of each, "" for none. Chains without a resource that was changed are
// left as they are.
func CheckWithin(wider map[string]string, changed func(resource string) bool) []string {
	for _, id := range slices.Sorted(maps.Keys(wider)) {
		chain := []string{id}
		for next := wider[id]; next != ""; next = wider[next] {
			last := len(chain) == MaxWithin || slices.Contains(chain, next)
			if chain = append(chain, next); !last {
				continue
			}
			if slices.ContainsFunc(chain, changed) {
				return chain
			}
			break
		}
	}
	return nil
}
