package llm_test

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/zlimit/zlimit-go/httplimit"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/llm"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/zlimittest"
)

// TestErrorsOfProviders refuses calls of each provider, by the transport and by a server. Both answer in the form of the provider.
func TestErrorsOfProviders(t *testing.T) {
	const what = "rate limit exceeded: rpm (requested 1, available 0 of 1), retry after 1m0s"
	const rule = `Invalid request. The model must match a rule.`
	openAI := [2]string{
		`{"error":{"code":"rate_limit_exceeded","message":"` + what + `","param":null,"type":"rate_limit_error"}}`,
		`{"error":{"code":"invalid_request","message":"` + rule + `","param":null,"type":"invalid_request_error"}}`,
	}
	anthropic := [2]string{
		`{"error":{"message":"` + what + `","type":"rate_limit_error"},"type":"error"}`,
		`{"error":{"message":"` + rule + `","type":"invalid_request_error"},"type":"error"}`,
	}
	google := [2]string{
		`{"error":{"code":429,"details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"60s"}],"message":"` + what + `","status":"RESOURCE_EXHAUSTED"}}`,
		`{"error":{"code":400,"message":"` + rule + `","status":"INVALID_ARGUMENT"}}`,
	}
	amazon := [2]string{`{"message":"` + what + `"}`, `{"message":"` + rule + `"}`}
	ollama := [2]string{`{"error":"` + what + `"}`, `{"error":"` + rule + `"}`}
	for path, want := range map[string][2]string{
		"/v1/chat/completions":                    openAI,
		"/gateway/v1/responses":                   openAI,
		"/openai/deployments/%s/chat/completions": openAI,
		"/anthropic/v1/messages":                  anthropic,
		"/v1beta/models/%s:generateContent":       google,
		"/v1/projects/p/locations/l/publishers/google/models/%s:streamGenerateContent": google,
		"/v1/projects/p/locations/l/publishers/anthropic/models/%s:rawPredict":         anthropic,
		"/v1beta/interactions":                  google,
		"/model/%s/converse":                    amazon,
		"/model/%s/invoke-with-response-stream": amazon,
		"/api/chat":                             ollama,
	} {
		limiter, _ := zlimittest.New(t, zlimit.PerMinute("rpm", 1), zlimit.PerMinute("tpm", 10_000))
		transport, _ := newTransport(t, limiter, respond(200, http.Header{}, io.NopCloser(strings.NewReader("{}"))),
			llm.WithResponses(), llm.WithModels(llm.Rule{Pattern: "known*", Resource: "m"}))
		send := func(model string) (int, string, http.Header) {
			response, err := transport.RoundTrip(newRequest(t, strings.ReplaceAll(path, "%s", model), `{"model":"`+model+`"}`))
			if err != nil {
				t.Fatalf("%s: RoundTrip() = %v", path, err)
			}
			defer response.Body.Close()
			body, _ := io.ReadAll(response.Body)
			return response.StatusCode, string(body), response.Header
		}
		send("known")
		for i, model := range []string{"known", "other"} {
			status, body, header := send(model)
			if status != []int{429, 400}[i] || body != want[i] {
				t.Errorf("%s: the response is %d %s, want %s", path, status, body, want[i])
			}
			isAmazon := strings.Contains(path, "/model/")
			if got, exception := header.Get("X-Amzn-Errortype"), []string{"ThrottlingException", "ValidationException"}[i]; (got != "") != isAmazon || isAmazon && got != exception {
				t.Errorf("%s: X-Amzn-Errortype = %q", path, got)
			}
			if retry := header.Get("Retry-After"); (retry == "60") != (i == 0) {
				t.Errorf("%s: Retry-After = %q", path, retry)
			}
		}
		_, err := limiter.Acquire(t.Context(), zlimit.Request{Entity: "alice", Resource: "m", Consume: zlimit.Amounts{"rpm": 1}})
		w := httptest.NewRecorder()
		if llm.Refuse(w, newRequest(t, strings.ReplaceAll(path, "%s", "known"), "{}"), err); w.Code != 429 || w.Body.String() != want[0] {
			t.Errorf("%s: Refuse() answers %d %s, want %s", path, w.Code, w.Body, want[0])
		}
	}
}

// TestRefuse answers errors that are not of limits, and requests whose paths name no provider.
func TestRefuse(t *testing.T) {
	secret := errors.New("secret")
	for _, test := range []struct {
		path, header string
		err          error
		status       int
		want         string
	}{
		{"/v1/models", "", &httplimit.KeyError{Source: "request", Reason: "is missing", Challenge: "Bearer"}, 401, `"code":"invalid_api_key"`},
		{"/v1/models", "Anthropic-Version", zlimit.ErrNoLimits, 403, `{"error":{"message":"No quota.","type":"permission_error"},"type":"error"}`},
		{"/v1/messages/count_tokens", "", zlimit.ErrClosed, 503, `"type":"overloaded_error"`},
		{"/gemini/v1beta/files", "", zlimit.ErrClosed, 503, `{"error":{"code":503,"message":"Temporarily unavailable.","status":"UNAVAILABLE"}}`},
		{"/files", "X-Goog-Api-Key", secret, 500, `"status":"INTERNAL"`},
		{"/guardrail/x", "X-Amz-Date", secret, 500, `{"message":"Internal error."}`},
		{"/api/tags", "", secret, 500, `{"error":"Internal error."}`},
		{"/", "", secret, 500, `"type":"server_error"`},
	} {
		r, w := newRequest(t, test.path, "{}"), httptest.NewRecorder()
		if test.header != "" {
			r.Header.Set(test.header, "x")
		}
		llm.Refuse(w, r, test.err)
		if body := w.Body.String(); w.Code != test.status || !strings.Contains(body, test.want) || strings.Contains(body, "secret") {
			t.Errorf("%s: Refuse(%v) answers %d %s, want %s", test.path, test.err, w.Code, body, test.want)
		}
		if (w.Header().Get("Www-Authenticate") == "Bearer") != (test.status == 401) {
			t.Errorf("%s: WWW-Authenticate = %q", test.path, w.Header().Get("Www-Authenticate"))
		}
	}
	w := httptest.NewRecorder()
	llm.WriteError(w, newRequest(t, "/v1/messages", ""), http.StatusTeapot, "no coffee")
	if w.Code != http.StatusTeapot || w.Body.String() != `{"error":{"message":"no coffee","type":"invalid_request_error"},"type":"error"}` {
		t.Errorf("WriteError() answers %d %s", w.Code, w.Body)
	}
}

// TestRefusePrepaid refuses a call until a prepaid limit is topped up. SDKs do not retry it.
func TestRefusePrepaid(t *testing.T) {
	w := httptest.NewRecorder()
	llm.Refuse(w, httptest.NewRequest(http.MethodPost, "/v1/chat/completions", nil), &zlimit.ExceededError{Statuses: zlimit.Statuses{
		{Entity: "alice", Resource: "api", Limit: zlimit.Prepaid("usd", 5_000_000_000), Available: 2_000_000_000, Requested: 7_000_000_000, Exceeded: true, RetryAfter: zlimit.Never},
	}})
	const want = `{"error":{"code":"insufficient_quota","message":"rate limit exceeded: usd (requested $7, available $2 of $5), not enough until a top-up","param":null,"type":"rate_limit_error"}}`
	if w.Code != http.StatusTooManyRequests || w.Header().Get("X-Should-Retry") != "false" || len(w.Header().Values("Retry-After")) != 0 || w.Body.String() != want {
		t.Errorf("Refuse() = %d %v %s, want %s", w.Code, w.Header(), w.Body, want)
	}
}

// TestMessagesOfBadRequests reads what callers are answered for requests that break a rule: sentences, without options of this package.
func TestMessagesOfBadRequests(t *testing.T) {
	form := "--b\r\nContent-Disposition: form-data; name=\"model\"\r\n%s\r\nsmall\r\n"
	for _, test := range []struct {
		kind, body, want string
		header           http.Header
	}{
		{"", `{"messages":[]}`, "The model must be named by the request.", nil},
		{"", ``, "The body must be one object of JSON, of at most 256 levels, to find its model.", nil},
		{"", `{"model":""}`, "The model must be named by the request.", nil},
		{"", `{"model":null}`, "The model must be named by the request.", nil},
		{"", `{"model":{}}`, "The model must be named by the request.", nil},
		{"", `{"model":"large"}`, "The model must match a rule.", nil},
		{"", `{"model":"small-2"}`, `The model has no price for limit \"usd\".`, nil},
		{"", `{"Model":"small"}`, "The body must write the name of its model in lower case.", nil},
		{"", `[]`, "The body must be one object of JSON, of at most 256 levels, to find its model.", nil},
		{"", `{"model":"small","max_tokens":"many"}`, "The max_tokens must be a number of tokens, to bound the length of the answer.", nil},
		{"", `{"model":"small","n":"x"}`, "The n must be a number of choices.", nil},
		{"", `{"model":"small","x":"` + strings.Repeat("y", 2000) + `"}`, "The body must be at most 1000 bytes.", nil},
		{"text/html", `{"model":"small"}`, "The Content-Type must be JSON or a multipart form, to find the model in the body.", nil},
		{"application/json; charset=utf-16", `{"model":"small"}`, "The Content-Type must have the charset utf-8, to find the model in the body.", nil},
		{"", `{"model":"small"}`, "The Content-Encoding must be identity, to find the model in the body.", http.Header{"Content-Encoding": {"gzip"}}},
		{"", `{"model":"small"}`, "The Content-Type must appear once, to determine how to read the body.", http.Header{"Content-Type": {"application/json", "text/plain"}}},
		{"multipart/form-data; boundary=b", `{"model":"small"}`, "The body must begin with the boundary of a form, as its Content-Type says.", nil},
		{"multipart/form-data; boundary=b", strings.Repeat(fmt.Sprintf(form, ""), 2) + "--b--", "The model must be in the form once.", nil},
		{"multipart/form-data; boundary=b", fmt.Sprintf(form, "Content-Transfer-Encoding: base64\r\n") + "--b--", "The model must be in the form as it is, without a file or an encoding.", nil},
	} {
		limiter, _ := zlimittest.New(t, zlimit.PerDay("usd", 1<<40))
		answer := respond(200, http.Header{}, io.NopCloser(strings.NewReader("{}")))
		transport, _ := newTransport(t, limiter, answer, llm.WithResponses(), llm.WithBodies(200, 1000), llm.WithPrices("usd", prices(t)), llm.WithModels(llm.Rule{Pattern: "small*"}))
		r := newRequest(t, chatPath, test.body)
		r.Header.Set("Content-Type", cmp.Or(test.kind, "application/json"))
		maps.Copy(r.Header, test.header)
		response, err := transport.RoundTrip(r)
		if err != nil {
			t.Errorf("%s: %v, want a response", test.body, err)
			continue
		}
		text, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		want := `"message":"Invalid request. ` + test.want + `"`
		if response.StatusCode != http.StatusBadRequest || !strings.Contains(string(text), want) {
			t.Errorf("%s: status %d, %s, want 400 with %s", test.body, response.StatusCode, text, want)
		}
	}
	limiter, _ := zlimittest.New(t, zlimit.PerDay("usd", 1<<40))
	transport, _ := newTransport(t, limiter, http.DefaultTransport, llm.WithResponses())
	response := check.Call(transport.RoundTrip(newRequest(t, "/v1/who-knows", "{}"))).Must(t, "RoundTrip()")
	text, _ := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if want := `Unknown call. The request POST /v1/who-knows is no call that this service knows.`; response.StatusCode != http.StatusForbidden || !strings.Contains(string(text), want) {
		t.Errorf("an unknown call: status %d, %s, want 403 with %s", response.StatusCode, text, want)
	}
}
