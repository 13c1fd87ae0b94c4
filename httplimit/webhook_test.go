package httplimit_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/zlimit/zlimit-go/httplimit"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/faulttest"
	"github.com/zlimit/zlimit-go/zlimit"
)

// TestWebhook posts an alert until a reply is final.
func TestWebhook(t *testing.T) {
	for _, test := range []struct {
		name    string
		replies []int // 0 for none
		fails   bool
	}{
		{"at once", []int{204}, false},
		{"after a failure", []int{500, 0, 200}, false},
		{"after throttles", []int{429, 408, 429, 200}, false},
		{"never", []int{503, 503, 503, 503}, true},
		{"refused", []int{410}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				calls := 0
				client := &http.Client{Transport: faulttest.RoundTripper(func(r *http.Request) (*http.Response, error) {
					var alert zlimit.BudgetAlert
					if err := json.NewDecoder(r.Body).Decode(&alert); err != nil || alert.ID != "a/b" || r.Header.Get("Idempotency-Key") != "a/b" {
						t.Errorf("the request has %+v, %v, %v", alert, err, r.Header)
					}
					if calls++; calls > len(test.replies) {
						t.Fatalf("%d calls, want %d", calls, len(test.replies))
					}
					status := test.replies[calls-1]
					if status == 0 {
						return nil, errors.New("no reply")
					}
					return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader("ok"))}, nil
				})}
				notify := check.Call(httplimit.Webhook("https://hooks.example.com/x", client)).Must(t, "httplimit.Webhook()")
				if err := notify(t.Context(), zlimit.BudgetAlert{ID: "a/b"}); (err != nil) != test.fails {
					t.Errorf("notify() = %v", err)
				}
				if calls != len(test.replies) {
					t.Errorf("%d calls, want %d", calls, len(test.replies))
				}
			})
		})
	}
	for _, address := range []string{"", "hooks.example.com", "ftp://hooks.example.com", "https://"} {
		if _, err := httplimit.Webhook(address, nil); !errors.As(err, new(*zlimit.ValidationError)) {
			t.Errorf("Webhook(%q) = %v, want a ValidationError", address, err)
		}
	}
}
