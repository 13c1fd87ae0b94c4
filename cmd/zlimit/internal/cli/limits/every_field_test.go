package limits

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/fields"
	"github.com/zlimit/zlimit-go/zlimit"
)

// TestEveryFieldOfAConfig: limits get -o json shows each field that is stored, and a plan has a line for it.
func TestEveryFieldOfAConfig(t *testing.T) {
	fields.Each(t, func(t *testing.T, _ string, at zlimit.Level, alone zlimit.Config) {
		if len(alone.Limits) == 0 {
			alone.Limits = []zlimit.Limit{}
		}
		said := check.Call(json.Marshal(level{Level: at, config: alone})).Must(t, "json.Marshal()")
		without := check.Call(json.Marshal(level{Level: at, config: zlimit.Config{Limits: []zlimit.Limit{}}})).Must(t, "json.Marshal()")
		if bytes.Equal(said, without) {
			t.Errorf("limits get -o json leaves the field out: %s", said)
		}
		if len(settings(&alone)) != 1 {
			t.Errorf("a plan shows %v for the field, want one line", settings(&alone))
		}
	})
}
