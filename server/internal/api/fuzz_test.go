package api

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/zlimit/zlimit-go/client"
)

// The paths whose bodies are fuzzed.
var fuzzed = []string{
	"POST /v1/acquire", "POST /v1/settle", "POST /v1/rollback", "POST /v1/heartbeat", "PUT /v1/limits/resources/search", "PUT /v1/limits/system",
	"POST /v1/topup", "POST /v1/reset", "POST /v1/entities/alice/disable", "POST /v1/entities/alice/parent",
}

// FuzzBodies holds that no body makes a call fail inside, that every answer is of the document, and that the document allows every body
// that succeeds.
func FuzzBodies(f *testing.F) {
	s := newService(f)
	lease := ok[client.Acquired](f, s, "POST", "/v1/acquire", keyOfGateway, `{"entity":"alice","resource":"gpt-4","consume":{"rpm":1,"tpm":500},"lease":"10m"}`).Lease
	for i, body := range []string{
		`{"entity":"alice","resource":"gpt-4","consume":{"rpm":1},"also":[{"entity":"bob","resource":"search","consume":{"rpm":1.0}}],"max_wait_ms":0,"priority":"x","lease":"1m"}`,
		`{"lease":"` + lease + `","actual":{"tpm":1},"adjust":{"rpm":-1},"also":[]}`, `{"lease":"` + lease + `"}`, `{"lease":"` + lease + `","for":"1h"}`,
		`{"limits":["rpm=60/min",{"name":"tpm","capacity":10,"refill_period_seconds":60}],"on_unavailable":"allow","cascade":"never"}`,
		`{"limits":["tokens=1000000/month@Europe/Berlin","jobs=3 slots/30s"],"audit_retention_seconds":86400}`,
		`{"entity":"alice","resource":"search","amounts":{"rpm":3},"until":"2030-01-01T00:00:00Z","operation_id":"x"}`,
		`{"entity":"alice","resource":"search","limits":["rpm"]}`, `{"resource":"search"}`, `{"parent":""}`,
	} {
		f.Add(i, body)
	}
	f.Fuzz(func(t *testing.T, path int, body string) {
		method, target, _ := strings.Cut(fuzzed[max(path, -path, 0)%len(fuzzed)], " ")
		key := keyOfOps
		if target == "/v1/acquire" || target == "/v1/settle" || target == "/v1/rollback" || target == "/v1/heartbeat" {
			key = keyOfGateway
		}
		if strings.Contains(body, `"max_wait_ms"`) && !strings.Contains(body, `"max_wait_ms":0`) {
			return // it would wait
		}
		r := send(t, s, method, target, key, body)
		if r.StatusCode == http.StatusInternalServerError {
			t.Errorf("%s %s %q = %d %s", method, target, body, r.StatusCode, r.text)
		}
		if r.StatusCode < 300 && (!json.Valid([]byte(body)) && body != "" || !utf8.ValidString(body)) {
			t.Errorf("%s %s %q = %d, and is no JSON", method, target, body, r.StatusCode)
		}
	})
}
