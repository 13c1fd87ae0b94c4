package provision_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/internal/declaration"
	"github.com/zlimit/zlimit-go/internal/deploy/provision"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
)

// TestEveryFieldOfALimit loads a limit from a file. In every field it is the limit of its text in the SDK. An import
// writes the same limit.
func TestEveryFieldOfALimit(t *testing.T) {
	ctx := t.Context()
	seen := map[string]bool{}
	for _, rate := range []string{
		"100:50/min", "1000/day@Europe/Berlin", "25/month@UTC carry 50", "2000/session:5h", "20 slots/30s",
		`60/min when "* 9-17 * * 1-5"@Europe/Berlin x2`, "60/min floors batch=20", "60/min soft", "60/min shadow",
	} {
		var want zlimit.Limit
		check.Fatal(t, "UnmarshalText()", want.UnmarshalText([]byte("a="+rate)))
		fields := reflect.ValueOf(want)
		for i := range fields.NumField() {
			if !fields.Field(i).IsZero() {
				seen[fields.Type().Field(i).Name] = true
			}
		}
		d, err := declaration.Load("limits.yaml", []byte("system: {limits: {a: '"+rate+"'}}\n"))
		if err != nil {
			t.Fatalf("%s: %v", rate, err)
		}
		levels := provision.Declared(d)
		if diff := cmp.Diff([]zlimit.Limit{want}, levels[0].Config.Limits); diff != "" {
			t.Errorf("%s in a file (-SDK +file):\n%s", rate, diff)
		}
		l := check.Call(zlimit.Open(ctx, "memory:", zlimit.WithSetup())).Must(t, "zlimit.Open()")
		if err := l.Limits.Set(ctx, zlimit.Level{}, zlimit.Config{Limits: []zlimit.Limit{want}}); err != nil {
			t.Fatalf("%s: %v", rate, err)
		}
		imported, _, err := provision.New(l, zlimit.DefaultNamespace, time.Now).Import(ctx)
		check.Fatal(t, "Import()", err)
		if diff := cmp.Diff(levels, provision.Declared(imported)); diff != "" {
			t.Errorf("%s imported (-declared +imported):\n%s", rate, diff)
		}
		check.Error(t, "Close()", l.Close())
	}
	for i, limit := 0, reflect.TypeFor[zlimit.Limit](); i < limit.NumField(); i++ {
		if !seen[limit.Field(i).Name] {
			t.Errorf("no text of this test sets the field %s of a limit", limit.Field(i).Name)
		}
	}
}
