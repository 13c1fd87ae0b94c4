package provision_test

import (
	"context"
	"testing"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/fields"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A file says these fields of a level: without a word of them, they are deleted. All others stay as an operator stored them.
var saidByFiles = map[string]bool{"Limits": true, "OnUnavailable": true, "AuditRetention": true}

// TestEveryFieldOfAConfig applies a file that leaves out a field which is stored.
func TestEveryFieldOfAConfig(t *testing.T) {
	ctx := context.Background()
	fields.Each(t, func(t *testing.T, field string, at zlimit.Level, alone zlimit.Config) {
		w := newTestbed(t)
		operator := w.limiter("olga", nil)
		for _, s := range []zlimit.Stored{fields.Wider, {Level: at, Config: alone}} {
			check.Fatal(t, "Limits.Set()", operator.Limits.Set(ctx, s.Level, s.Config))
		}
		declared := []zlimit.Stored{{Level: at, Config: zlimit.Config{Limits: []zlimit.Limit{zlimit.PerHour("tpm", 7)}}}}
		if _, _, err := w.provisioner("deploy", nil).Apply(ctx, declared, nil); err != nil {
			t.Fatalf("Apply() = %v", err)
		}
		want := declared[0].Config
		if !saidByFiles[field] {
			want = alone
			want.Limits = declared[0].Config.Limits
		}
		if got, err := operator.Limits.Get(ctx, at); err != nil || !got.Same(&want) {
			t.Errorf("%v is %+v, %v after limits apply, want %+v", at, got, err, want)
		}
	})
}
