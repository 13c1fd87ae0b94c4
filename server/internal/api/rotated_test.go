package api

import (
	"net/http"
	"strings"
	"testing"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/rotation"
)

// TestRotated changes an entity that has a new ID: what has no effect, or lets both IDs spend the budget, is refused with the new ID.
func TestRotated(t *testing.T) {
	s := newService(t)
	for id, metadata := range map[string]map[string]string{"tb": {rotation.ToKey: "tb-x"}, "tb-x": {rotation.FromKey: "tb"}, "key": nil} {
		check.Call(s.limiter.Entities.Create(t.Context(), zlimit.Entity{ID: id, Metadata: metadata})).Must(t, "Entities.Create()")
	}
	check.Call(s.limiter.Limits.Disable(t.Context(), zlimit.Level{Entity: "tb"}, nil)).Must(t, "Limits.Disable()")
	for _, c := range []struct{ method, path, body string }{
		{"POST", "/v1/entities/tb/enable", ""},
		{"POST", "/v1/entities/tb/enable", `{"resource":"search"}`},
		{"POST", "/v1/entities/tb/bypass", ""},
		{"POST", "/v1/entities/tb/inherit", ""},
		{"POST", "/v1/entities/key/parent", `{"parent":"tb"}`},
		{"POST", "/v1/entities/tb/parent", `{"parent":"key"}`},
		{"DELETE", "/v1/limits/entities/tb", ""},
		{"DELETE", "/v1/limits/entities/tb/resources/search", ""},
		{"POST", "/v1/topup", `{"entity":"tb","resource":"search","amounts":{"rpm":1}}`},
		{"POST", "/v1/reset", `{"entity":"tb","resource":"search"}`},
		{"PUT", "/v1/limits/entities/tb", `{"limits":["rpm=5/min"]}`},
		{"PUT", "/v1/limits/entities/tb/resources/search", `{"limits":["rpm=5/min"]}`},
	} {
		p := fails(t, s, http.StatusBadRequest, "invalid", c.method, c.path, keyOfOps, c.body)
		if !strings.Contains(p.Detail, "has the new ID tb-x") {
			t.Errorf("%s %s: %q, want the new ID", c.method, c.path, p.Detail)
		}
	}
	p := fails(t, s, http.StatusForbidden, "disabled", "POST", "/v1/acquire", keyOfGateway, `{"entity":"tb","resource":"search","consume":{"rpm":1}}`)
	if strings.Contains(p.Detail+p.Title, "tb-x") {
		t.Errorf("who asks with a leaked ID learns the next one: %+v", p)
	}
	for _, path := range []string{"/v1/entities/tb/disable", "/v1/entities/tb-x/enable", "/v1/resources/search/enable"} {
		if r := send(t, s, "POST", path, keyOfOps, ""); r.StatusCode != http.StatusOK {
			t.Errorf("POST %s = %d %s, want 200", path, r.StatusCode, r.text)
		}
	}
}
