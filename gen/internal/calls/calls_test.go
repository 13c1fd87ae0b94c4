package calls_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/zlimit/zlimit-go/gen/internal/calls"
	"github.com/zlimit/zlimit-go/internal/proof/check"
)

func TestLoad(t *testing.T) {
	c := check.Call(calls.Load("calls.yaml", []byte(`
writes: [DeleteItem, PutItem]
registry: [GetItem]
programs:
  read: { doc: Reads., reads: [GetItem, Query], indexes: [Query], bucket: [PutObject] }
  keep: { doc: Keeps., reads: [GetItem], writes: { note: [PutItem], book: [DeleteItem, PutItem] } }
`))).Must(t, "calls.Load()")
	p := c.Program("read")
	if p == nil || p.Doc != "Reads." || !slices.Equal(p.Reads, []string{"GetItem", "Query"}) || p.Writes != nil ||
		!slices.Equal(p.Indexes, []string{"Query"}) || !slices.Equal(p.Bucket, []string{"PutObject"}) {
		t.Errorf("Program(read) = %+v", p)
	}
	keep := c.Program("keep")
	if keep == nil || !slices.Equal(keep.Records(), []string{"book", "note"}) || !slices.Equal(keep.Changes(), []string{"DeleteItem", "PutItem"}) {
		t.Errorf("Program(keep) = %+v", keep)
	}
	if !slices.Equal(c.Writes, []string{"DeleteItem", "PutItem"}) || !slices.Equal(c.Registry, []string{"GetItem"}) || c.Program("none") != nil {
		t.Errorf("Load() = %+v", c)
	}
}

func TestLoadReportsEverything(t *testing.T) {
	_, err := calls.Load("calls.yaml", []byte(`
writes: [PutItem, DeleteItem]
registry: [Get*]
programs:
  read: { doc: Reads., reads: [GetItem, GetItem], index: [Query] }
  full: { doc: Does all., reads: [] }
  none: { doc: Does nothing. }
  both: { doc: Confuses., reads: [PutItem], writes: { note: [GetItem], book: [] } }
`))
	if err == nil {
		t.Fatal("Load() = nil, want errors")
	}
	for _, want := range []string{
		`calls.yaml:2:19: writes: DeleteItem stands behind PutItem`,
		`calls.yaml:3:12: registry: "Get*" is not an action`,
		`reads has GetItem twice`, `unknown key index`, `program full: reads is empty`, `program none`,
		`program both: PutItem among the reads changes items`, `program both: GetItem among the writes is none of [PutItem DeleteItem]`,
		`program both: writes of book is empty`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("Load() = %v, want %q in it", err, want)
		}
	}
}
