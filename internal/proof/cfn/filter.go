package cfn

import (
	"slices"
	"strings"
)

// Matches reports whether a value matches a filter pattern of an event source of Lambda, by those rules that the template and the guide use. A list has
// values, or objects with the prefix of some.
func Matches(pattern, value any) bool {
	switch p := pattern.(type) {
	case map[string]any:
		m, ok := value.(map[string]any)
		for key, inner := range p {
			ok = ok && Matches(inner, m[key])
		}
		return ok
	case []any:
		return slices.ContainsFunc(p, func(rule any) bool {
			text, ok := value.(string)
			if object, isObject := rule.(map[string]any); isObject {
				prefix, isPrefix := object["prefix"].(string)
				return ok && isPrefix && len(object) == 1 && strings.HasPrefix(text, prefix)
			}
			return ok && rule == text
		})
	default:
		return false
	}
}
