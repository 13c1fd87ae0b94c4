package hindsight

import (
	"encoding/json"

	"github.com/zlimit/zlimit-go/zlimit"
)

// Limits returns the limits in the details of an audit event, by name. What has another form is left out. It makes no call.
func Limits(details map[string]any) map[string]*zlimit.Limit {
	all := map[string]*zlimit.Limit{}
	list, _ := details["limits"].([]any)
	for _, each := range list {
		fields, ok := each.(map[string]any)
		if !ok {
			continue
		}
		text, err := json.Marshal(fields)
		var l zlimit.Limit
		if err == nil && json.Unmarshal(text, &l) == nil && l.Name != "" {
			all[l.Name] = &l
		}
	}
	return all
}

// Settings returns what the details of an audit event say of a level or an entity, by name: each limit as a [zlimit.Limit], texts, flags and numbers
// as they are, and what is within others by both names with a point between them. It returns false if a part has a form that this package does not
// know. The settings of before, the version and empty texts are left out. It makes no call. [Differences] compares the settings of before and after a change.
func Settings(details map[string]any) (all map[string]any, known bool) {
	all, known = map[string]any{}, true
	for name, value := range details {
		switch v := value.(type) {
		case nil:
		case string, bool, int64, json.Number:
			if name != "config_version" && v != "" {
				all[name] = v
			}
			known = known && name != "limits"
		case map[string]any:
			for key, inner := range v {
				if name != "before" {
					_, isText := inner.(string)
					all[name+"."+key], known = inner, known && isText
				}
			}
		case []any:
			limits := Limits(details)
			known = known && name == "limits" && len(limits) == len(v)
			for _, l := range limits {
				all[l.Name] = *l
			}
		default:
			known = false
		}
	}
	return all, known
}
