package calls_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/zlimit/zlimit-go/gen/internal/calls"
)

func TestLoad(t *testing.T) {
	c, err := calls.Load("calls.yaml", []byte(`
writes: [PutItem]
registry: [GetItem]
programs:
  read: { doc: Reads., table: [GetItem, Query], indexes: [Query], bucket: [PutObject] }
`))
	if err != nil {
		t.Fatal(err)
	}
	p := c.Program("read")
	if p == nil || p.Doc != "Reads." || !slices.Equal(p.Table, []string{"GetItem", "Query"}) ||
		!slices.Equal(p.Indexes, []string{"Query"}) || !slices.Equal(p.Bucket, []string{"PutObject"}) {
		t.Errorf("Program(read) = %+v", p)
	}
	if !slices.Equal(c.Writes, []string{"PutItem"}) || !slices.Equal(c.Registry, []string{"GetItem"}) || c.Program("none") != nil {
		t.Errorf("Load() = %+v", c)
	}
}

func TestLoadReportsEverything(t *testing.T) {
	_, err := calls.Load("calls.yaml", []byte(`
writes: [PutItem, DeleteItem]
registry: [Get*]
programs:
  read: { doc: Reads., table: [GetItem, GetItem], index: [Query] }
  full: { doc: Does all., table: [] }
  none: { doc: Does nothing. }
`))
	if err == nil {
		t.Fatal("Load() = nil, want errors")
	}
	for _, want := range []string{
		`calls.yaml:2:19: writes: DeleteItem stands behind PutItem`,
		`calls.yaml:3:12: registry: "Get*" is not an action`,
		`table has GetItem twice`, `unknown key index`, `program full: table is empty`, `program none`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("Load() = %v, want %q in it", err, want)
		}
	}
}
