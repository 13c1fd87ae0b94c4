package hindsight_test

import (
	"encoding/json"
	"testing"

	"github.com/zlimit/zlimit-go/internal/proof/compare"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/hindsight"
)

// TestSettings reads details of this package, and of other programs.
func TestSettings(t *testing.T) {
	limit := map[string]any{"name": "tpm", "capacity": int64(500), "refill_amount": int64(500), "refill_period_seconds": int64(60)}
	for name, c := range map[string]struct {
		details map[string]any
		want    map[string]any
		unknown bool
	}{
		"nothing":               {nil, map[string]any{}, false},
		"a level":               {map[string]any{"limits": []any{limit}, "within": "models", "disabled": true, "config_version": int64(3), "cascade": nil, "title": ""}, map[string]any{"tpm": zlimit.PerMinute("tpm", 500), "within": "models", "disabled": true}, false},
		"an entity":             {map[string]any{"name": "Acme", "metadata": map[string]any{"tier": "gold"}, "before": map[string]any{"name": "Ace"}}, map[string]any{"name": "Acme", "metadata.tier": "gold"}, false},
		"numbers":               {map[string]any{"days": json.Number("1.5")}, map[string]any{"days": json.Number("1.5")}, false},
		"a limit as text":       {map[string]any{"limits": []any{"tpm=500/min"}}, map[string]any{}, true},
		"limits as text":        {map[string]any{"limits": "none"}, map[string]any{"limits": "none"}, true},
		"another list":          {map[string]any{"tags": []any{}}, map[string]any{}, true},
		"a number within":       {map[string]any{"metadata": map[string]any{"n": int64(1)}}, map[string]any{"metadata.n": int64(1)}, true},
		"another kind of value": {map[string]any{"days": 1.5}, map[string]any{}, true},
	} {
		got, known := hindsight.Settings(c.details)
		compare.Equal(t, name, c.want, got)
		if known == c.unknown {
			t.Errorf("%s: known %t", name, known)
		}
	}
}
