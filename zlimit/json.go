package zlimit

import (
	"encoding/json"
	"time"

	"github.com/zlimit/zlimit-go/internal/grammar"
)

// secondsJSON is a duration as a number of seconds, exact to the nanosecond, and null for Never.
type secondsJSON time.Duration

// MarshalJSON implements [json.Marshaler].
func (s secondsJSON) MarshalJSON() ([]byte, error) {
	if time.Duration(s) == Never {
		return []byte("null"), nil
	}
	return []byte(grammar.Seconds(time.Duration(s))), nil
}

// UnmarshalJSON implements [json.Unmarshaler].
func (s *secondsJSON) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		return nil // as all of encoding/json has it
	}
	d, err := time.ParseDuration(string(text) + "s")
	if err != nil {
		return &ValidationError{Field: "duration", Value: string(text), Reason: "must be a number of seconds"}
	}
	*s = secondsJSON(d)
	return nil
}

// MarshalJSON returns the config as an object, with audit_retention_seconds where it says so.
func (c Config) MarshalJSON() ([]byte, error) {
	type fields Config
	return json.Marshal(struct {
		fields
		AuditRetention secondsJSON `json:"audit_retention_seconds,omitempty"`
	}{fields(c), secondsJSON(c.AuditRetention)})
}

// UnmarshalJSON sets the config to the one of an object like that of [Config.MarshalJSON].
func (c *Config) UnmarshalJSON(text []byte) error {
	type fields Config
	next := struct {
		fields
		AuditRetention secondsJSON `json:"audit_retention_seconds"`
	}{fields(*c), secondsJSON(c.AuditRetention)}
	if err := json.Unmarshal(text, &next); err != nil {
		return err
	}
	*c = Config(next.fields)
	c.AuditRetention = time.Duration(next.AuditRetention)
	return nil
}

// MarshalJSON returns the error as an object with op, unknown and the text of the cause.
func (e *UnavailableError) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Op      string `json:"op"`
		Unknown bool   `json:"unknown"`
		Error   string `json:"error"`
	}{e.Op, e.Unknown, textOf(e.Err)})
}

// MarshalJSON returns the event as an object, with the duration in seconds and the text of the error.
func (e Event) MarshalJSON() ([]byte, error) {
	type fields Event
	return json.Marshal(struct {
		fields
		Duration secondsJSON `json:"duration_seconds"`
		Error    string      `json:"error,omitempty"`
	}{fields(e), secondsJSON(e.Duration), textOf(e.Err)})
}

func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// MarshalText returns the name of the kind, like [EventKind.String].
func (k EventKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }
