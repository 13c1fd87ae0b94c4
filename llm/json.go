package llm

import "encoding/json"

// MarshalText returns the name of the API, and nothing for a call of none.
func (a API) MarshalText() ([]byte, error) {
	if a == 0 {
		return nil, nil
	}
	return []byte(a.String()), nil
}

// MarshalJSON returns the report as an object, with the text of its error where it has one.
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
