// Package fields has a stored level for each field of [zlimit.Config]. Tests of several packages go through all of
// them, so that no place leaves a new field out.
package fields

import (
	"reflect"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

// Wider is the resource that others lie within. A test stores limits for it first.
var Wider = zlimit.Stored{Level: zlimit.Level{Resource: "models"}, Config: zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 600)}}}

// A new field of a config needs a level here, and a config that says the field alone.
var all = []zlimit.Stored{
	{Level: zlimit.Level{Entity: "acme"}, Config: zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 60)}}},
	{Level: zlimit.Level{Resource: "gpt-4"}, Config: zlimit.Config{OnUnavailable: zlimit.PolicyAllow}},
	{Level: zlimit.Level{Resource: "gpt-5"}, Config: zlimit.Config{Within: Wider.Level.Resource}},
	{Level: zlimit.Level{Resource: "gpt-6"}, Config: zlimit.Config{Cascade: zlimit.CascadeAlways}},
	{Config: zlimit.Config{AuditRetention: 30 * 24 * time.Hour}},
}

// Each calls test with each field of a config: its name, a level, and a config for that level that says the field
// alone. It fails for a field that has none.
func Each(t *testing.T, test func(t *testing.T, field string, at zlimit.Level, alone zlimit.Config)) {
	t.Helper()
	fields := reflect.TypeFor[zlimit.Config]()
	for i := range fields.NumField() {
		name := fields.Field(i).Name
		t.Run(name, func(t *testing.T) {
			for _, s := range all {
				rest := s.Config
				if field := reflect.ValueOf(&rest).Elem().Field(i); !field.IsZero() {
					field.SetZero()
					if !reflect.ValueOf(rest).IsZero() {
						t.Fatalf("%v says more than %s alone: %+v", s.Level, name, s.Config)
					}
					test(t, name, s.Level, s.Config)
					return
				}
			}
			t.Error("no level of internal/proof/fields says this field")
		})
	}
}
