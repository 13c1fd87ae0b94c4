package httplimit_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/httplimit"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/compare"
	"github.com/zlimit/zlimit-go/zlimit"
)

// TestOutcomeOfProblems says of each error whether the request may have consumed something.
func TestOutcomeOfProblems(t *testing.T) {
	for name, test := range map[string]struct {
		err    error
		status int
		want   string
	}{
		"a rejection":                  {&zlimit.ExceededError{}, http.StatusTooManyRequests, httplimit.OutcomeNone},
		"an outage":                    {&zlimit.UnavailableError{Op: zlimit.OpAcquire}, http.StatusServiceUnavailable, httplimit.OutcomeNone},
		"an outage during the write":   {&zlimit.UnavailableError{Op: zlimit.OpAcquire, Unknown: true}, http.StatusServiceUnavailable, httplimit.OutcomeUnknown},
		"too many other writers":       {zlimit.ErrContended, http.StatusServiceUnavailable, httplimit.OutcomeNone},
		"an unknown time":              {zlimit.ErrClock, http.StatusServiceUnavailable, httplimit.OutcomeNone},
		"a limiter that is closed":     {zlimit.ErrClosed, http.StatusServiceUnavailable, httplimit.OutcomeNone},
		"a deadline":                   {context.DeadlineExceeded, http.StatusServiceUnavailable, httplimit.OutcomeUnknown},
		"a client that left":           {context.Canceled, http.StatusServiceUnavailable, httplimit.OutcomeUnknown},
		"a body that came too slowly":  {httplimit.ErrBodyTimeout, http.StatusRequestTimeout, ""},
		"an ID used twice":             {&zlimit.ReusedIDError{Entity: "secret", ID: "job"}, http.StatusConflict, ""},
		"a lease settled otherwise":    {&zlimit.SettledError{Entity: "secret"}, http.StatusConflict, ""},
		"a lease that expired":         {zlimit.ErrTokenExpired, http.StatusGone, ""},
		"limits that are not there":    {zlimit.ErrNoLimits, http.StatusForbidden, ""},
		"an error of another package":  {errors.New("broken"), http.StatusInternalServerError, ""},
		"a request that breaks a rule": {&zlimit.ValidationError{Field: "entity"}, http.StatusBadRequest, ""},
	} {
		if p := httplimit.ProblemOf(test.err); p.Status != test.status || p.Outcome != test.want {
			t.Errorf("%s: ProblemOf() has status %d and outcome %q, want %d and %q", name, p.Status, p.Outcome, test.status, test.want)
		}
	}
}

// TestLimitsOfProblems shows the limits of a rejection by the names of the fields: without entities, in whole seconds that are never too few.
func TestLimitsOfProblems(t *testing.T) {
	reset := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	window := zlimit.PerMinute("rpm", 20)
	got := httplimit.ProblemOf(&zlimit.ExceededError{Statuses: zlimit.Statuses{
		{Entity: "team", Resource: "api", Ancestor: 1, Limit: zlimit.PerMinute("rpm", 10), Window: &window, Available: -3, Requested: 2, Exceeded: true, RetryAfter: 14*time.Second + 1},
		{Entity: "alice", Resource: "api", Limit: zlimit.Daily("rpd", 5, "UTC"), Available: 5, Requested: 2, ResetsAt: reset},
		{Entity: "alice", Resource: "api", Limit: zlimit.PerDay("tpd", 5), Available: 5, Requested: 9, Exceeded: true, RetryAfter: zlimit.Never},
	}})
	body := check.Call(json.Marshal(got)).Must(t, "json.Marshal()")
	want := `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota exceeded","status":429,` +
		`"detail":"The request asks for more than the quota can hold, and cannot succeed.","violated-policies":["parent:rpm","tpd"],"limits":[` +
		`{"policy":"parent:rpm","capacity":20,"available":-3,"requested":2,"exceeded":true,"retry_after_seconds":15},` +
		`{"policy":"rpd","capacity":5,"available":5,"requested":2,"exceeded":false,"resets_at":"2026-12-01T00:00:00Z"},` +
		`{"policy":"tpd","capacity":5,"available":5,"requested":9,"exceeded":true}],"outcome":"none"}`
	compare.Equal(t, "body", want, string(body))
}

// TestProblemOfPrepaid refuses a request until a prepaid limit is topped up, with the status of a limit and no time.
func TestProblemOfPrepaid(t *testing.T) {
	w := httptest.NewRecorder()
	httplimit.Refuse(w, httptest.NewRequest(http.MethodGet, "/", nil), &zlimit.ExceededError{Statuses: zlimit.Statuses{
		{Entity: "alice", Resource: "api", Limit: zlimit.Prepaid("usd", 5_000_000_000), Available: 2_000_000_000, Requested: 7_000_000_000, Exceeded: true, RetryAfter: zlimit.Never},
	}})
	if w.Code != http.StatusTooManyRequests || w.Header().Get("X-Should-Retry") != "false" || len(w.Header().Values("Retry-After")) != 0 ||
		!strings.Contains(w.Body.String(), `"detail":"The prepaid quota has not enough until it is topped up."`) {
		t.Errorf("Refuse() = %d %v %s", w.Code, w.Header(), w.Body)
	}
}
