package api

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/client"
)

// TestRolloverOverHTTP stores a quota that carries, as text and as an object, and takes what it has carried.
func TestRolloverOverHTTP(t *testing.T) {
	s := newService(t)
	const path = "/v1/limits/resources/models"
	text := send(t, s, "PUT", path, keyOfOps, `{"limits":["tokens=25/month@UTC carry 50"]}`)
	object := send(t, s, "PUT", path, keyOfOps, `{"limits":[{"name":"tokens","capacity":25,"resets":"0 0 1 * *","zone":"UTC","carry":50}]}`)
	if string(text.text) != string(object.text) || text.Header.Get("ETag") != object.Header.Get("ETag") || !strings.Contains(string(text.text), `"carry":50`) {
		t.Errorf("as text %s, as an object %s, want the same with carry", text.text, object.text)
	}
	without := send(t, s, "PUT", path, keyOfOps, `{"limits":["tokens=25/month@UTC"]}`)
	if without.Header.Get("ETag") == text.Header.Get("ETag") {
		t.Error("a quota that carries nothing has the same ETag")
	}
	send(t, s, "PUT", path, keyOfOps, `{"limits":["tokens=25/month@UTC carry 50"]}`)
	ok[client.Acquired](t, s, "POST", "/v1/acquire", keyOfGateway, `{"entity":"alice","resource":"models","consume":{"tokens":10}}`)
	fails(t, s, http.StatusTooManyRequests, "exceeded", "POST", "/v1/acquire", keyOfGateway, `{"entity":"alice","resource":"models","consume":{"tokens":30}}`)
	s.pass(31 * 24 * time.Hour)
	got := ok[struct{ Limits []client.Limit }](t, s, "GET", "/v1/available?entity=alice&resource=models", keyOfReader, "").Limits[0]
	if got.Capacity != 25 || got.Carried != 15 || got.Available != 40 {
		t.Errorf("in the next month the limit is %+v, want 40 of 25 with 15 carried", got)
	}
	taken := ok[client.Acquired](t, s, "POST", "/v1/acquire", keyOfGateway, `{"entity":"alice","resource":"models","consume":{"tokens":30}}`).Limits[0]
	if taken.Available != 10 || taken.Carried != 15 {
		t.Errorf("after a request for more than a month has the limit is %+v, want 10 left", taken)
	}
	for body, want := range map[string]string{
		`{"limits":["tokens=25/month@UTC carry 2501"]}`:                                                        "limits[0] carry must",
		`{"limits":[{"name":"tokens","capacity":25,"resets":"0 0 1 * *","zone":"UTC","carry":-1}]}`:            "limits[0].carry must be a whole number from 0 to 9007199254740991",
		`{"limits":[{"name":"tokens","capacity":25,"refill_amount":25,"refill_period_seconds":60,"carry":5}]}`: "limits[0].carry is for quotas",
		`{"limits":[{"name":"tokens","capacity":25,"prepaid":true,"carry":5}]}`:                                "",
		`{"limits":[{"name":"tokens","capacity":25,"resets":"0 0 1 * *","zone":"UTC","carry":"5"}]}`:           "",
	} {
		if p := fails(t, s, http.StatusBadRequest, "invalid", "PUT", path, keyOfOps, body); len(p.Errors) != 1 || !strings.HasPrefix(p.Errors[0].Field+" "+p.Errors[0].Reason, want) {
			t.Errorf("PUT %s names %+v, want %s", body, p.Errors, want)
		}
	}
}

// TestPrepaidOverHTTP uses up a prepaid limit, which only a top-up refills.
func TestPrepaidOverHTTP(t *testing.T) {
	s := newService(t)
	const path, body = "/v1/limits/resources/credit", `{"entity":"alice","resource":"credit","consume":{"tokens":3}}`
	text := send(t, s, "PUT", path, keyOfOps, `{"limits":["tokens=5/never"]}`)
	object := send(t, s, "PUT", path, keyOfOps, `{"limits":[{"name":"tokens","capacity":5,"prepaid":true}]}`)
	if string(text.text) != string(object.text) || !strings.Contains(string(text.text), `"prepaid":true`) {
		t.Errorf("as text %s, as an object %s, want the same with prepaid", text.text, object.text)
	}
	ok[client.Acquired](t, s, "POST", "/v1/acquire", keyOfGateway, body)
	s.pass(400 * 24 * time.Hour)
	refused := send(t, s, "POST", "/v1/acquire", keyOfGateway, body)
	if refused.StatusCode != http.StatusTooManyRequests || !strings.Contains(string(refused.text), `"used_up"`) || refused.Header.Get("Retry-After") != "" {
		t.Errorf("a year later %d %s, Retry-After %q, want used_up without a time", refused.StatusCode, refused.text, refused.Header.Get("Retry-After"))
	}
	send(t, s, "POST", "/v1/topup", keyOfOps, `{"entity":"alice","resource":"credit","amounts":{"tokens":4}}`)
	if got := ok[client.Acquired](t, s, "POST", "/v1/acquire", keyOfGateway, body).Limits[0]; got.Available != 3 {
		t.Errorf("after a top-up the limit is %+v, want 3 left", got)
	}
	fails(t, s, http.StatusBadRequest, "invalid", "PUT", path, keyOfOps, `{"limits":[{"name":"tokens","capacity":5,"prepaid":true,"session_seconds":60}]}`)
}
