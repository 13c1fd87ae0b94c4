package llm

import "encoding/json"

// MarshalJSON returns the report as an object, with the text of its error if it has one.
func (r Report) MarshalJSON() ([]byte, error) {
	type fields Report
	text := ""
	if r.Err != nil {
		text = r.Err.Error()
	}
	return json.Marshal(struct {
		fields
		Error string `json:"error,omitempty"`
	}{fields(r), text})
}
