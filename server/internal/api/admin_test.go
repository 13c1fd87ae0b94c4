package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/client"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/server/internal/auth"
	"github.com/zlimit/zlimit-go/zlimit"
)

func TestLimits(t *testing.T) {
	s := newService(t)
	for _, path := range []string{"system", "resources/chat", "entities/alice", "entities/alice/resources/chat", "entities/a%2Fb/resources/c%2Fd"} {
		t.Run(path, func(t *testing.T) {
			path := "/v1/limits/" + path
			fails(t, s, http.StatusNotFound, "not_found", "GET", path, keyOfReader, "")
			fails(t, s, http.StatusPreconditionFailed, "changed", "PUT", path, keyOfOps, `{"limits":["rpm=60/min"]}`, `If-Match: "x"`)
			put := send(t, s, "PUT", path, keyOfOps, `{"limits":["rpm=60/min",{"name":"tpm","capacity":10000,"refill_period_seconds":60}],"on_unavailable":"allow"}`, "If-None-Match: *")
			got := send(t, s, "GET", path, keyOfReader, "")
			stored := as[storedLevel](t, got)
			want := []zlimit.Limit{zlimit.PerMinute("rpm", 60), zlimit.PerMinute("tpm", 10_000)}
			if diff := cmp.Diff(want, stored.Config.Limits); diff != "" || stored.Config.OnUnavailable != zlimit.PolicyAllow || string(put.text) != string(got.text) {
				t.Errorf("put %s, get %s (-want +got):\n%s", put.text, got.text, diff)
			}
			before := got.Header.Get("ETag")
			if before == "" || before != put.Header.Get("ETag") {
				t.Errorf("ETag = %q and %q, want the same", put.Header.Get("ETag"), before)
			}
			fails(t, s, http.StatusPreconditionFailed, "changed", "PUT", path, keyOfOps, `{"limits":["rpm=1/min"]}`, "If-None-Match: *")
			after := send(t, s, "PUT", path, keyOfOps, `{"limits":["rpm=61/min"]}`, `If-Match: "x", `+before).Header.Get("ETag")
			if after == "" || after == before {
				t.Errorf("ETag = %q after a change of %q", after, before)
			}
			fails(t, s, http.StatusPreconditionFailed, "changed", "PUT", path, keyOfOps, `{"limits":["rpm=62/min"]}`, "If-Match: "+before)
			fails(t, s, http.StatusPreconditionFailed, "changed", "DELETE", path, keyOfOps, "", "If-Match: "+before)
			fails(t, s, http.StatusBadRequest, "invalid", "DELETE", path, keyOfOps, "", "If-None-Match: "+before)
			if r := send(t, s, "DELETE", path, keyOfOps, "", "If-Match: "+after); r.StatusCode != http.StatusNoContent {
				t.Errorf("DELETE = %d %s, want 204", r.StatusCode, r.text)
			}
			fails(t, s, http.StatusPreconditionFailed, "changed", "PUT", path, keyOfOps, `{"limits":["rpm=62/min"]}`, "If-Match: *")
			if r := send(t, s, "DELETE", path, keyOfOps, ""); r.StatusCode != http.StatusNoContent {
				t.Errorf("DELETE of nothing = %d %s, want 204", r.StatusCode, r.text)
			}
		})
	}
}

// TestWithin deletes the limits of a resource that lies within another one: it still does.
func TestWithin(t *testing.T) {
	s := newService(t)
	ok[storedLevel](t, s, "PUT", "/v1/limits/resources/gpt-5", keyOfOps, `{"limits":["rpm=60/min"],"within":"budget","cascade":"never"}`)
	if r := send(t, s, "DELETE", "/v1/limits/resources/gpt-5", keyOfOps, ""); r.StatusCode != http.StatusNoContent {
		t.Fatalf("DELETE = %d %s, want 204", r.StatusCode, r.text)
	}
	got := ok[storedLevel](t, s, "GET", "/v1/limits/resources/gpt-5", keyOfReader, "")
	if got.Config.Within != "budget" || got.Config.Cascade != zlimit.CascadeNever || len(got.Config.Limits) != 0 {
		t.Errorf("after DELETE the config is %+v, want within and cascade alone", got.Config)
	}
}

func TestConfigsThatBreakRules(t *testing.T) {
	s := newService(t)
	for _, body := range []string{
		`{}`, `{"limits":[]}`, `{"limits":["rpm"]}`, `{"limits":[5]}`, `{"limits":[{"name":"rpm"}]}`, `{"limits":["rpm=1/min","rpm=2/min"]}`, `{"limits":[{"name":"rpm","capacity":1,"Name":"tpm"}]}`,
		`{"limits":[{"name":"rpm","capacity":1,"capacity":2,"refill_period_seconds":60}]}`, `{"limits":["rpm=1/min"],"on_unavailable":"maybe"}`, `{"limits":["rpm=1/min"],"cascade":"maybe"}`,
		`{"limits":["rpm=1/min"],"within":"search"}`, `{"limits":["rpm=1/min"],"audit_retention_seconds":-1}`, `{"limits":null}`, `{"limits":["rpm=1/min"],"version":3}`,
		`{"limits":["rpm=0/min"]}`, `{"limits":"rpm=1/min"}`,
	} {
		p := fails(t, s, http.StatusBadRequest, "invalid", "PUT", "/v1/limits/entities/alice", keyOfOps, body)
		if len(p.Errors) != 1 || p.Errors[0].Field == "" || p.Errors[0].Reason == "" {
			t.Errorf("PUT %s names %+v, want a field and a rule", body, p.Errors)
		}
	}
	fails(t, s, http.StatusNotFound, "not_found", "GET", "/v1/limits/entities/alice", keyOfReader, "")
}

// TestConfigsOfReplies writes configs as replies have them.
func TestConfigsOfReplies(t *testing.T) {
	s := newService(t)
	const path = "/v1/limits/resources/gpt-5"
	for _, body := range []string{
		`{"limits":["rpm=60/min"]}`, `{"limits":["rpm=60/min"],"on_unavailable":"block","cascade":"always"}`, `{"limits":["usd=25/month@UTC carry 50"]}`,
		`{"limits":["tokens=10/never soft","calls=5 slots/30s","tpm=10/session:5h shadow"],"audit_retention_seconds":0}`,
		`{"limits":["tpm=100/min when \"* 9 * * *\" x2 floors batch=20+5"]}`,
	} {
		ok[storedLevel](t, s, "PUT", path, keyOfOps, body)
		var read struct{ Config json.RawMessage }
		got := send(t, s, "GET", path, keyOfReader, "")
		if err := json.Unmarshal(got.text, &read); err != nil {
			t.Fatalf("json.Unmarshal(%s) = %v", got.text, err)
		}
		if again := send(t, s, "PUT", path, keyOfOps, string(read.Config), "If-Match: "+got.Header.Get("ETag")); again.StatusCode != http.StatusOK {
			t.Errorf("%s is read as %s, and PUT of that is %d %s", body, read.Config, again.StatusCode, again.text)
		}
	}
}

func TestSwitches(t *testing.T) {
	s := newService(t)
	acquire := func(entity string) *response {
		return send(t, s, "POST", "/v1/acquire", keyOfGateway, fmt.Sprintf(`{"entity":%q,"resource":"search","consume":{"rpm":1}}`, entity))
	}
	for _, c := range []struct {
		path, body string
		want       [2]int // of alice and bob
	}{
		{"entities/alice/disable", ``, [2]int{403, 200}},
		{"entities/alice/inherit", `{}`, [2]int{200, 200}},
		{"entities/alice/disable", `{"resource":"search"}`, [2]int{403, 200}},
		{"resources/search/disable", ``, [2]int{403, 403}},
		{"entities/alice/enable", `{"resource":"search"}`, [2]int{200, 403}},
		{"resources/search/bypass", ``, [2]int{200, 200}},
		{"resources/search/inherit", ``, [2]int{200, 200}},
	} {
		report := ok[zlimit.SwitchReport](t, s, "POST", "/v1/"+c.path, keyOfOps, c.body)
		if report.Everywhere.IsZero() {
			t.Errorf("%s = %+v, want a time", c.path, report)
		}
		if got := [2]int{acquire("alice").StatusCode, acquire("bob").StatusCode}; got != c.want {
			t.Errorf("after %s %s requests are %v, want %v", c.path, c.body, got, c.want)
		}
	}
	fails(t, s, http.StatusBadRequest, "invalid", "POST", "/v1/resources/search/disable", keyOfOps, `{"resource":"x"}`)
}

// TestSwitchesWithoutBody leaves the body out, as a client does that always names a type, or that does not know the length before.
func TestSwitchesWithoutBody(t *testing.T) {
	s := newService(t)
	for _, kind := range []string{"", "application/json", "application/x-www-form-urlencoded"} {
		for _, length := range []int64{0, -1} {
			if length < 0 && kind != "application/json" { // a body that may have something
				continue
			}
			for _, path := range []string{"entities/alice/disable", "entities/alice/enable", "resources/search/disable", "resources/search/inherit"} {
				r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/v1/"+path, strings.NewReader(""))
				r.ContentLength = length
				r.Header.Set("Authorization", "Bearer "+keyOfOps)
				if kind != "" {
					r.Header.Set("Content-Type", kind)
				}
				w := httptest.NewRecorder()
				s.ServeHTTP(w, r)
				if w.Code != http.StatusOK {
					t.Errorf("POST %s of %q, length %d = %d %s, want 200", path, kind, length, w.Code, w.Body)
				}
			}
		}
	}
	for method, path := range map[string]string{"POST": "/v1/entities/alice/parent", "PUT": "/v1/limits/system"} { // where it must be there
		fails(t, s, http.StatusBadRequest, "invalid", method, path, keyOfOps, " ")
	}
}

func TestParent(t *testing.T) {
	s := newService(t)
	for _, e := range []zlimit.Entity{{ID: "team"}, {ID: "old"}, {ID: "alice", ParentID: "old", Cascade: true}} {
		if _, err := s.limiter.Entities.Create(t.Context(), e); err != nil {
			t.Fatalf("Entities.Create() = %v", err)
		}
	}
	ok[zlimit.SwitchReport](t, s, "POST", "/v1/entities/alice/parent", keyOfOps, `{"parent":"team"}`)
	got := ok[client.Acquired](t, s, "POST", "/v1/acquire", keyOfGateway, `{"entity":"alice","resource":"search","consume":{"rpm":1}}`)
	policies := []string{}
	for _, l := range got.Limits {
		policies = append(policies, l.Policy)
	}
	if !slices.Equal(policies, []string{"rpm", "parent:rpm"}) {
		t.Errorf("the limits are %v, want those of alice and of the team", policies)
	}
	available := ok[struct{ Limits []client.Limit }](t, s, "GET", "/v1/available?entity=alice&resource=search&parents=true", keyOfReader, "")
	if len(available.Limits) != 2 {
		t.Errorf("available with parents = %+v, want 2 limits", available)
	}
	fails(t, s, http.StatusNotFound, "not_found", "POST", "/v1/entities/nobody/parent", keyOfOps, `{"parent":"team"}`)
	fails(t, s, http.StatusBadRequest, "invalid", "POST", "/v1/entities/alice/parent", keyOfOps, `{"parent":"alice"}`)
	ok[zlimit.SwitchReport](t, s, "POST", "/v1/entities/alice/parent", keyOfOps, `{"parent":""}`)
}

func TestTopUpAndReset(t *testing.T) {
	s := newService(t)
	ok[client.Acquired](t, s, "POST", "/v1/acquire", keyOfGateway, `{"entity":"alice","resource":"budget","consume":{"tokens":900}}`)
	const body = `{"entity":"alice","resource":"budget","amounts":{"tokens":300}}`
	first := ok[zlimit.BucketChange](t, s, "POST", "/v1/topup", keyOfOps, body, "Idempotency-Key: ticket 4")
	again := ok[zlimit.BucketChange](t, s, "POST", "/v1/topup", keyOfOps, body, "Idempotency-Key: ticket 4")
	if first.Repeated || !again.Repeated || s.left(t, "alice", "budget", "tokens") != 400 {
		t.Errorf("repeated = %v, %v, left %d, want false, true, 400", first.Repeated, again.Repeated, s.left(t, "alice", "budget", "tokens"))
	}
	fails(t, s, http.StatusConflict, "reused_key", "POST", "/v1/topup", keyOfOps, strings.Replace(body, "300", "301", 1), "Idempotency-Key: ticket 4")
	fails(t, s, http.StatusBadRequest, "invalid", "POST", "/v1/topup", keyOfOps, strings.Replace(body, "}}", `},"operation_id":"x"}`, 1), "Idempotency-Key: ticket 4")
	fails(t, s, http.StatusBadRequest, "invalid", "POST", "/v1/topup", keyOfOps, strings.Replace(body, "}}", `},"until":"tomorrow"}`, 1))
	until := s.now.Add(time.Hour).UTC().Format(time.RFC3339)
	granted := ok[zlimit.BucketChange](t, s, "POST", "/v1/topup", keyOfOps, strings.Replace(strings.Replace(body, "}}", `},"until":"`+until+`","operation_id":"ticket-5"}`, 1), "alice", "bob", 1))
	if granted.OperationID != "ticket-5" || granted.Limits[0].Until.IsZero() {
		t.Errorf("top up with an end = %+v, want ticket-5 and the end", granted)
	}
	reset := ok[zlimit.BucketChange](t, s, "POST", "/v1/reset", keyOfOps, `{"entity":"alice","resource":"budget","limits":["tokens"]}`, "Idempotency-Key: ticket 6")
	if reset.Limits[0].After.Tokens() != 1000 || s.left(t, "alice", "budget", "tokens") != 1000 {
		t.Errorf("reset = %+v, left %d, want 1000", reset, s.left(t, "alice", "budget", "tokens"))
	}
	fails(t, s, http.StatusBadRequest, "invalid", "POST", "/v1/reset", keyOfOps, `{"entity":"alice","resource":"budget","limits":["x"]}`)
	var principals []string
	for event, err := range s.limiter.Audit.Events(t.Context(), "alice", zlimit.AuditQuery{}) {
		check.Fatal(t, "Audit.Events()", err)
		principals = append(principals, string(event.Action)+" by "+event.Principal)
	}
	if want := []string{"bucket_topped_up by ops", "bucket_reset by ops"}; !slices.Equal(principals, want) {
		t.Errorf("audit events = %v, want %v", principals, want)
	}
}

// TestRoles calls every route as every caller.
func TestRoles(t *testing.T) {
	s := newService(t)
	const unauthorized, forbidden = http.StatusUnauthorized, http.StatusForbidden
	for _, c := range []struct {
		method, path, body string
		may                []string
	}{
		{"POST", "/v1/acquire", `{"entity":"alice","resource":"search","consume":{"rpm":1}}`, []string{keyOfGateway, keyOfOther}},
		{"POST", "/v1/acquire", `{"entity":"team-a/1","resource":"search","consume":{"rpm":1}}`, []string{keyOfGateway, keyOfOther, keyOfTeam}},
		{"POST", "/v1/acquire", `{"entity":"team-a/1","resource":"search","consume":{"rpm":1},"also":[{"entity":"alice","resource":"search","consume":{"rpm":1}}]}`, []string{keyOfGateway, keyOfOther}},
		{"GET", "/v1/available?entity=alice&resource=search", ``, []string{keyOfGateway, keyOfOther, keyOfReader, keyOfOps}},
		{"GET", "/v1/available?entity=team-a/1&resource=search", ``, []string{keyOfGateway, keyOfOther, keyOfReader, keyOfOps, keyOfTeam}},
		{"GET", "/v1/limits/resources/search", ``, []string{keyOfReader, keyOfOps}},
		{"PUT", "/v1/limits/resources/search", `{"limits":["rpm=10/min"]}`, []string{keyOfOps}},
		{"PUT", "/v1/limits/entities/team-a%2F1", `{"limits":["rpm=10/min"]}`, []string{keyOfOps, keyOfTeam}},
		{"GET", "/v1/limits/entities/team-a%2F1", ``, []string{keyOfReader, keyOfOps, keyOfTeam}},
		{"GET", "/v1/usage?entity=alice", ``, []string{keyOfReader, keyOfOps}},
		{"GET", "/v1/usage?entity=team-a/1", ``, []string{keyOfReader, keyOfOps, keyOfTeam}},
		{"GET", "/v1/usage?resource=search", ``, []string{keyOfReader, keyOfOps}},
		{"POST", "/v1/entities/alice/enable", ``, []string{keyOfOps}},
		{"POST", "/v1/entities/team-a%2F1/enable", ``, []string{keyOfOps, keyOfTeam}},
		{"POST", "/v1/resources/search/enable", ``, []string{keyOfOps}},
		{"POST", "/v1/reset", `{"entity":"alice","resource":"search"}`, []string{keyOfOps}},
		{"POST", "/v1/topup", `{"entity":"alice","resource":"search","amounts":{"rpm":1}}`, []string{keyOfOps}},
		{"DELETE", "/v1/limits/entities/team-a%2F1", ``, []string{keyOfOps, keyOfTeam}},
	} {
		for _, key := range []string{keyOfGateway, keyOfOther, keyOfReader, keyOfOps, keyOfTeam} {
			r := send(t, s, c.method, c.path, key, c.body)
			if may := slices.Contains(c.may, key); may != (r.StatusCode < 300) || !may && r.StatusCode != forbidden {
				t.Errorf("%s %s %s by %s = %d %s, want that it may: %v", c.method, c.path, c.body, key, r.StatusCode, r.text, may)
			}
		}
		for _, key := range []string{"", "unknown", hashOf(keyOfOps)} {
			r := send(t, s, c.method, c.path, key, c.body)
			if r.StatusCode != unauthorized || r.Header.Get("WWW-Authenticate") != "Bearer" {
				t.Errorf("%s %s without a key = %d %s, want 401", c.method, c.path, r.StatusCode, r.text)
			}
		}
	}
	fails(t, s, forbidden, "forbidden", "POST", "/v1/entities/team-a%2F1/parent", keyOfTeam, `{"parent":"alice"}`)
	fails(t, s, forbidden, "forbidden", "GET", "/v1/events", keyOfTeam, "")
	fails(t, s, forbidden, "forbidden", "GET", "/v1/events", keyOfGateway, "")
}

func TestNamespaces(t *testing.T) {
	s := newService(t)
	second := check.Call(s.limiter.Namespace(t.Context(), "second", zlimit.WithSetup())).Must(t, "Namespace()")
	defer second.Close()
	check.Fatal(t, "Limits.Set()", second.Limits.Set(t.Context(), zlimit.Level{Resource: "search"}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 3)}}))
	const body = `{"entity":"alice","resource":"search","consume":{"rpm":1},"lease":"1m"}`
	fails(t, s, http.StatusForbidden, "forbidden", "POST", "/v1/acquire", keyOfGateway, body, "Zlimit-Namespace: second") // not served
	s.options.Namespaces = map[string]*zlimit.RateLimiter{"second": second}
	s.Handler = New(s.options)
	got := ok[client.Acquired](t, s, "POST", "/v1/acquire", keyOfGateway, body, "Zlimit-Namespace: second")
	if got.Limits[0].Capacity != 3 {
		t.Errorf("the limit of the second namespace has %d, want 3", got.Limits[0].Capacity)
	}
	fails(t, s, http.StatusForbidden, "foreign_lease", "POST", "/v1/rollback", keyOfGateway, fmt.Sprintf(`{"lease":%q}`, got.Lease))
	ok[client.Settled](t, s, "POST", "/v1/rollback", keyOfGateway, fmt.Sprintf(`{"lease":%q}`, got.Lease), "Zlimit-Namespace: second")
	fails(t, s, http.StatusForbidden, "forbidden", "POST", "/v1/acquire", keyOfOther, body, "Zlimit-Namespace: second")
	fails(t, s, http.StatusForbidden, "forbidden", "POST", "/v1/acquire", keyOfGateway, body, "Zlimit-Namespace: third")
}

func TestRequestsThatBreakRules(t *testing.T) {
	s := newService(t)
	many := `{"entity":"a","resource":"search","consume":{"rpm":1},"also":[` + strings.Repeat(`{"entity":"a","resource":"search","consume":{"rpm":1}},`, 7) + `{"entity":"a","resource":"search","consume":{"rpm":1}}]}`
	amounts := make([]string, 32+1)
	for i := range amounts {
		amounts[i] = fmt.Sprintf(`"l%d":1`, i)
	}
	for _, c := range []struct{ name, body, field string }{
		{"no object", `[]`, "body"},
		{"no JSON", `{"entity":`, "body"},
		{"two bodies", `{"entity":"a","resource":"search","consume":{"rpm":1}}{}`, "body"},
		{"no entity", `{"resource":"search","consume":{"rpm":1}}`, "entity"},
		{"an empty entity", `{"entity":"","resource":"search","consume":{"rpm":1}}`, "entity"},
		{"an entity of another form", `{"entity":"a b","resource":"search","consume":{"rpm":1}}`, "entity"},
		{"an entity as a number", `{"entity":5,"resource":"search","consume":{"rpm":1}}`, "entity"},
		{"no consume", `{"entity":"a","resource":"search"}`, "consume"},
		{"an empty consume", `{"entity":"a","resource":"search","consume":{}}`, "consume"},
		{"consume as a list", `{"entity":"a","resource":"search","consume":["rpm"]}`, "consume"},
		{"a negative amount", `{"entity":"a","resource":"search","consume":{"rpm":-1}}`, "consume[rpm]"},
		{"a part of a token", `{"entity":"a","resource":"search","consume":{"rpm":0.5}}`, "consume[rpm]"},
		{"an amount as text", `{"entity":"a","resource":"search","consume":{"rpm":"1"}}`, "consume[rpm]"},
		{"a great amount", `{"entity":"a","resource":"search","consume":{"rpm":1e300}}`, "consume[rpm]"},
		{"an amount twice", `{"entity":"a","resource":"search","consume":{"rpm":1,"rpm":2}}`, "consume[rpm]"},
		{"33 amounts", `{"entity":"a","resource":"search","consume":{` + strings.Join(amounts, ",") + `}}`, "consume"},
		{"a field twice", `{"entity":"a","entity":"b","resource":"search","consume":{"rpm":1}}`, "entity"},
		{"a field in other letters", `{"Entity":"a","resource":"search","consume":{"rpm":1}}`, "Entity"},
		{"an unknown field", `{"entity":"a","resource":"search","consume":{"rpm":1},"limits":[]}`, "limits"},
		{"null", `{"entity":"a","resource":"search","consume":{"rpm":1},"priority":null}`, "priority"},
		{"a long wait", `{"entity":"a","resource":"search","consume":{"rpm":1},"max_wait_ms":60001}`, "max_wait_ms"},
		{"a lease of no time", `{"entity":"a","resource":"search","consume":{"rpm":1},"lease":"0s"}`, "lease"},
		{"a long lease", `{"entity":"a","resource":"search","consume":{"rpm":1},"lease":"25h"}`, "lease"},
		{"a lease without a unit", `{"entity":"a","resource":"search","consume":{"rpm":1},"lease":"10"}`, "lease"},
		{"a lease of two parts", `{"entity":"a","resource":"search","consume":{"rpm":1},"lease":"1h10m"}`, "lease"},
		{"nine requests", many, "also"},
		{"also without an entity", `{"entity":"a","resource":"search","consume":{"rpm":1},"also":[{"resource":"search","consume":{"rpm":1}}]}`, "also[0].entity"},
		{"also with a lease", `{"entity":"a","resource":"search","consume":{"rpm":1},"also":[{"entity":"a","resource":"search","consume":{"rpm":1},"lease":"1m"}]}`, "also[0].lease"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := fails(t, s, http.StatusBadRequest, "invalid", "POST", "/v1/acquire", keyOfGateway, c.body)
			if len(p.Errors) != 1 || p.Errors[0].Field != c.field || p.Errors[0].Reason == "" {
				t.Errorf("the errors are %+v, want one of %s", p.Errors, c.field)
			}
		})
	}
	if got := send(t, s, "POST", "/v1/acquire", keyOfGateway, `{"entity":"a","resource":"search","consume":{"rpm":1.0}}`); got.StatusCode != 200 {
		t.Errorf("an amount of 1.0 = %d %s, want 200", got.StatusCode, got.text)
	}
	fails(t, s, http.StatusRequestEntityTooLarge, "too_large", "POST", "/v1/acquire", keyOfGateway, `{"entity":"`+strings.Repeat("a", maxBody)+`"}`)
	fails(t, s, http.StatusUnsupportedMediaType, "media_type", "POST", "/v1/acquire", keyOfGateway, `{}`, "Content-Type: text/plain")
	fails(t, s, http.StatusUnsupportedMediaType, "media_type", "POST", "/v1/acquire", keyOfGateway, `{}`, "Content-Encoding: gzip")
	fails(t, s, http.StatusUnsupportedMediaType, "media_type", "POST", "/v1/acquire", keyOfGateway, "")
	fails(t, s, http.StatusNotFound, "not_found", "POST", "/v1/nothing", keyOfGateway, `{}`)
	if r := send(t, s, "GET", "/v1/acquire", keyOfGateway, ""); r.StatusCode != http.StatusMethodNotAllowed || r.Header.Get("Allow") != "POST" {
		t.Errorf("GET /v1/acquire = %d, Allow %q, want 405 and POST", r.StatusCode, r.Header.Get("Allow"))
	}
	for _, query := range []string{
		"resource=search", "entity=a", "entity=a&resource=search&x=1", "entity=a&resource=search&entity=b", "entity=a&resource=search&parents=yes", "entity=a;b", "entity=%zz&resource=search",
	} {
		fails(t, s, http.StatusBadRequest, "invalid", "GET", "/v1/available?"+query, keyOfGateway, "")
	}
	for _, query := range []string{
		"", "entity=a&window=yearly", "entity=a&from=yesterday", "entity=a&to=2026-01-01", "entity=a&windows=-1", "entity=a&windows=1001", "entity=a&windows=many",
		"entity=a&from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z", "entity=a&from=2020-01-02T00:00:00Z", "entity=a+b",
	} {
		fails(t, s, http.StatusBadRequest, "invalid", "GET", "/v1/usage?"+query, keyOfReader, "")
	}
}

// TestRulesAreWritten holds the words of each kind of rule.
func TestRulesAreWritten(t *testing.T) {
	s := newService(t)
	for request, want := range map[string]string{
		`POST /v1/acquire []`:                                                                     "body [] must be an object",
		`POST /v1/acquire {"entity":5}`:                                                           "entity 5 must be a text",
		`POST /v1/acquire {"entity":"a","resource":"search"}`:                                     "consume  must be given",
		`POST /v1/heartbeat {"lease":5,"for":"1m"}`:                                               "lease  must be a text",
		`POST /v1/heartbeat {"lease":"x","for":"1h10m"}`:                                          "for 1h10m must be whole seconds, minutes or hours from 1s to 24h, such as 10m",
		`PUT /v1/limits/system {"limits":[5]}`:                                                    `limits[0] 5 must be a text such as "tpm=10000/min", or an object`,
		`PUT /v1/limits/system {"limits":[{"name":"rpm"}]}`:                                       "limits[0].capacity  must be given",
		`PUT /v1/limits/system {"limits":[],"cascade":"maybe"}`:                                   "cascade maybe must be nothing, always or never",
		`GET /v1/usage?entity=a&window=yearly`:                                                    "window yearly must be hourly, daily or monthly",
		`GET /v1/usage?entity=a&windows=many`:                                                     "windows many must be a whole number",
		`GET /v1/usage?entity=a&windows=1001`:                                                     "windows 1001 must be a whole number from 0 to 1000",
		`GET /v1/usage?entity=a&from=yesterday`:                                                   "from yesterday must be a time of RFC 3339, such as 2026-11-28T12:00:00Z",
		`GET /v1/usage?entity=a&x=1`:                                                              "x 1 is no field of this request",
		`GET /v1/usage?entity=a&entity=b`:                                                         "entity b is given twice",
		`GET /v1/events?kinds=x`:                                                                  "kinds x must be kinds of events, such as decision,settle",
		acquired(`"consume":{}`):                                                                  "consume {} must have from 1 to 32 amounts",
		acquired(`"consume":{"rpm":1e300}`):                                                       "consume[rpm] 1e+300 must be a whole number from 0 to 9007199254740991",
		acquired(`"consume":{"rpm":1},"priority":null`):                                           "priority null must have a value, or be left out",
		acquired(`"consume":{"rpm":1},"max_wait_ms":null`):                                        "max_wait_ms null must have a value, or be left out",
		acquired(`"consume":{"rpm":1e400}`):                                                       "body  has a number that is too large",
		`POST /v1/topup {"entity":"a","resource":"search","amounts":{"rpm":1},"operation_id":""}`: "operation_id  must not be empty",
		`POST /v1/entities/a/disable {"resource":""}`:                                             "resource  must not be empty",
		acquired(`"consume":{"rpm":1},"priority":"` + strings.Repeat("x", 65) + `"`):              "priority " + strings.Repeat("x", 65) + " must have at most 64 characters",
		`POST /v1/acquire {"entity":"","resource":"a","consume":{"rpm":1}}`:                       "entity  must not be empty",
		acquired(`"consume":{"rpm":1},"lease":"10"`):                                              "lease 10 must be whole seconds, minutes or hours from 1s to 24h, such as 10m",
		acquired(`"consume":{"rpm":1},"also":[{},{},{},{},{},{},{},{}]`):                          "also [{},{},{},{},{},{},{},{}] must have at most 7 values",
	} {
		method, rest, _ := strings.Cut(request, " ")
		path, body, _ := strings.Cut(rest, " ")
		key := keyOfOps
		if strings.HasSuffix(path, "acquire") || strings.HasSuffix(path, "heartbeat") {
			key = keyOfGateway
		}
		p := fails(t, s, http.StatusBadRequest, "invalid", method, path, key, body)
		if len(p.Errors) != 1 || p.Errors[0].Field+" "+p.Errors[0].Value+" "+p.Errors[0].Reason != want {
			t.Errorf("%s names %+v, want %s", request, p.Errors, want)
		}
	}
}

func acquired(fields string) string {
	return `POST /v1/acquire {"entity":"a","resource":"search",` + fields + `}`
}

// TestSites refuses what a web page of another site sends.
func TestSites(t *testing.T) {
	s := newService(t)
	const body = `{"entity":"a","resource":"search","consume":{"rpm":1}}`
	fails(t, s, http.StatusForbidden, "cross_origin", "POST", "/v1/acquire", keyOfGateway, body, "Sec-Fetch-Site: cross-site")
	fails(t, s, http.StatusForbidden, "cross_origin", "POST", "/v1/acquire", keyOfGateway, body, "Origin: https://example.com")
	s.options.Callers = func() *auth.Callers { return auth.Anyone("default") }
	open := New(s.options)
	ok[client.Acquired](t, open, "POST", "/v1/acquire", "", body)
	for host, want := range map[string]bool{
		"localhost": true, "localhost:8080": true, "127.0.0.1:8080": true, "[::1]:8080": true, "[::1]": true, "example.com": false, "localhost.example.com": false, "10.0.0.1": false, "": false, "0.0.0.0": false,
	} {
		if got := auth.IsLoopback(host); got != want {
			t.Errorf("auth.IsLoopback(%q) = %v, want %v", host, got, want)
		}
	}
}

// TestManaged: a level that a file of limits keeps is managed, also after another writer changed it there and back.
func TestManaged(t *testing.T) {
	s := newService(t)
	at := zlimit.Level{Resource: "gpt-4"}
	err := s.limiter.Managed.Run(t.Context(), func(ctx context.Context, r *zlimit.ManagedRun) error {
		return r.Record(ctx, zlimit.ManagedSet{Levels: []zlimit.Level{at}})
	})
	check.Fatal(t, "Managed.Run()", err)
	for resource, want := range map[string]bool{"gpt-4": true, "search": false} {
		if got := ok[storedLevel](t, s, "GET", "/v1/limits/resources/"+resource, keyOfReader, ""); got.Managed != want {
			t.Errorf("%s: managed = %t, want %t", resource, got.Managed, want)
		}
	}
	for _, n := range []int64{61, 60} {
		check.Fatal(t, "Limits.Patch()", s.limiter.Limits.Patch(t.Context(), at, zlimit.PerMinute("rpm", n)))
	}
	if got := ok[storedLevel](t, s, "GET", "/v1/limits/resources/gpt-4", keyOfReader, ""); !got.Managed {
		t.Error("after a change there and back: managed = false, want true")
	}
}
