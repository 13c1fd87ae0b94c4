package httplimit_test

import (
	"encoding/json"
	"net/http/httptest"
	"testing"

	"github.com/zlimit/zlimit-go/httplimit"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
)

// TestRejectedHandler serves what a process has reported.
func TestRejectedHandler(t *testing.T) {
	s := check.Call(zlimit.Memory()).Must(t, "zlimit.Memory()")
	defer s.Close()
	reporting := check.Call(zlimit.New(t.Context(), s, zlimit.WithRejectionReports(zlimit.RejectionReports{}))).Must(t, "zlimit.New()")
	for range 3 {
		_, _ = reporting.Acquire(t.Context(), zlimit.Request{
			Entity: "acme", Resource: "gpt", Consume: zlimit.Amounts{"rpd": 1}, Limits: []zlimit.Limit{zlimit.PerDay("rpd", 1)},
		})
	}
	check.Fatal(t, "Close()", reporting.Close())
	l := check.Call(zlimit.New(t.Context(), s)).Must(t, "zlimit.New()")
	defer l.Close()
	handler := httplimit.Rejected(l)
	get := func(target string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("GET", target, nil))
		return w
	}
	var got zlimit.Rejections
	if w := get("/?minutes=60&resource=gpt"); w.Code != 200 || json.Unmarshal(w.Body.Bytes(), &got) != nil || got.Total != 2 || len(got.Heaviest) != 1 || got.Heaviest[0].Entity != "acme" {
		t.Errorf("GET = %d, %s, want two rejections of acme", w.Code, w.Body)
	}
	for _, target := range []string{"/?minutes=0", "/?minutes=x", "/?max=100000", "/?entity=a%23b"} {
		if w := get(target); w.Code != 400 {
			t.Errorf("GET %s = %d, want 400", target, w.Code)
		}
	}
}
