package store

import "fmt"

// TableSettings are settings of a table besides its layout, for a store that creates one on a service.
type TableSettings struct {
	WarmReadUnits, WarmWriteUnits int64 // served immediately, capacity units a second; 0 for the default of the service
	MaxReadUnits, MaxWriteUnits   int64 // ceilings, capacity units a second; 0 for none
	DeletionProtection            bool  // the service refuses to delete the table
	MixedFleet                    bool  // other clients of the layout use the table: its mixed indexes hold whole items
}

// The capacity units a second that a new on-demand table serves immediately. DynamoDB rejects lower settings.
const (
	LeastWarmReads  = 12_000
	LeastWarmWrites = 4_000
)

// A ProjectionError reports a table that is not made for a mixed fleet.
type ProjectionError struct {
	Table, Index string
	Projection   string // the kind of projection
}

// Error names the contents of the index, and the remedy.
func (e *ProjectionError) Error() string {
	return fmt.Sprintf("index %s of table %s projects %s, and must project ALL; DynamoDB cannot change that: "+
		"delete the index and create it again, or use a new table", e.Index, e.Table, e.Projection)
}

// CheckSettings returns the first setting that is out of its range, with its value and the rule; ok is true when there is
// none.
func CheckSettings(s TableSettings) (field, value, rule string, ok bool) {
	for _, setting := range []struct {
		field        string
		units, least int64
	}{
		{"warm read units", s.WarmReadUnits, LeastWarmReads},
		{"warm write units", s.WarmWriteUnits, LeastWarmWrites},
		{"max read units", s.MaxReadUnits, 1},
		{"max write units", s.MaxWriteUnits, 1},
	} {
		if setting.units != 0 && setting.units < setting.least {
			return setting.field, fmt.Sprint(setting.units), fmt.Sprintf("must be at least %d, or 0", setting.least), false
		}
	}
	return "", "", "", true
}
