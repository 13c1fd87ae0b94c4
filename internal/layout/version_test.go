package layout_test

import (
	"testing"

	"github.com/zlimit/zlimit-go/internal/layout"
)

// TestAdmits compares clients with the oldest one admitted by a table. All three numbers count for the client, and the
// first one alone for the layout.
func TestAdmits(t *testing.T) {
	for _, test := range []struct {
		schema, least  string // of the table
		layout, client string
		want           bool
	}{
		{"0.10.0", "0.10.0", "0.10.0", "0.10.0", true},
		{"0.10.0", "0.10.0", "0.10.0", "0.9.9", false},
		{"0.10.0", "0.10.1", "0.10.0", "0.10.0", false},
		{"0.10.0", "0.11.0", "0.10.0", "0.10.9", false},
		{"0.10.0", "0.9.0", "0.10.0", "0.10.0", true}, // 9 is less than 10
		{"0.10.0", "1.0.0", "0.10.0", "0.99.0", false},
		{"0.10.0", "0.15.0", "0.10.0", "0.10.0", false}, // as where limits need readers of 0.15
		{"0.10.0", "0.15.0rc1", "0.10.0", "0.10.0", false},
		{"0.10.0", "0.14.1.dev9+g1", "0.10.0", "0.10.0", false},
		{"0.10.0", "0.0.0", "0.10.0", "0.10.0", true},
		{"0.11.0", "0.10.0", "0.10.0", "0.10.0", true}, // a later layout says by the client who may use it
		{"0.9.0", "0.0.0", "0.10.0", "0.10.0", true},
		{"1.0.0", "0.10.0", "0.10.0", "0.10.0", false},
	} {
		it := layout.Version{SchemaVersion: test.schema, ClientMinVersion: test.least}
		if got := it.Admits(test.layout, test.client); got != test.want {
			t.Errorf("layout %s for clients from %s admits client %s of layout %s: %t", test.schema, test.least, test.client, test.layout, got)
		}
	}
}
