package hindsight

import (
	"maps"
	"slices"
)

// Differences writes how values differ: those that are new or changed, and then those that are gone, by name. A value that is not there is
// zero, and a text that is empty is left out.
func Differences[V any](was, is map[string]V, write func(name string, was, is V) string) (texts []string) {
	for _, name := range slices.Sorted(maps.Keys(is)) {
		texts = append(texts, write(name, was[name], is[name]))
	}
	for _, name := range slices.Sorted(maps.Keys(was)) {
		if _, ok := is[name]; !ok {
			texts = append(texts, write(name, was[name], *new(V)))
		}
	}
	return slices.DeleteFunc(texts, func(text string) bool { return text == "" })
}
