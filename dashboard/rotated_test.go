package dashboard_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/rotation"
)

// TestChangesOfARotatedID changes an entity that has a new ID on the page: only a suspension is done.
func TestChangesOfARotatedID(t *testing.T) {
	v := visit(t)
	v.signIn(t, "admin")
	for id, metadata := range map[string]map[string]string{"tb": {rotation.ToKey: "tb-x"}, "tb-x": {rotation.FromKey: "tb"}} {
		check.Call(v.limiter.Entities.Create(t.Context(), zlimit.Entity{ID: id, Metadata: metadata})).Must(t, "Entities.Create()")
	}
	post := func(path string, form url.Values) (int, string) {
		t.Helper()
		return v.post(t, path, form, "Sec-Fetch-Site", "same-origin")
	}
	for _, do := range []string{"bypass", "enable", "reset", "topup"} {
		status, body := post("/entity/change", url.Values{
			"id": {"tb"}, "resource": {"gpt"}, "do": {do}, "confirm": {"tb"}, "operation": {"op-" + do}, "limit": {"rpm"}, "amount": {"5"},
		})
		if status != http.StatusBadRequest || !strings.Contains(body, "has the new ID tb-x") {
			t.Errorf("%s: %d, want the new ID in %.3000s", do, status, body)
		}
	}
	if status, body := post("/entity/change", url.Values{"id": {"tb"}, "resource": {"gpt"}, "do": {"disable"}, "confirm": {"tb"}}); status != http.StatusOK {
		t.Errorf("disable: %d, want 200 in %.3000s", status, body)
	}
	status, body := post("/limits/save", url.Values{"entity": {"tb"}, "resource": {"gpt"}, "limits": {"rpm=5/min"}, "before": {"{}"}})
	if status != http.StatusBadRequest || !strings.Contains(body, "has the new ID tb-x") {
		t.Errorf("limits: %d, want the new ID in %.3000s", status, body)
	}
}
