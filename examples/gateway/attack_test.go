package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/zlimit/zlimit-go/zlimit"
)

// TestAttacks sends requests made of pieces that might slip through: odd paths, doubled members, models in several
// places, headers of accounts. What reaches the provider is a call that is listed, of a model that the key is for, as the
// provider reads the request. It is charged to the resource of that model.
func TestAttacks(t *testing.T) {
	requests := 2000
	if testing.Short() {
		requests = 500
	}
	random := rand.New(rand.NewPCG(1, 2))
	seen := &upstream{}
	server := httptest.NewServer(seen)
	defer server.Close()
	w := openGateway(t, server.URL)
	seen.providers = w.providers
	reached := 0
	for i := range requests {
		seen.calls = nil
		attack := randomAttack(random)
		to, err := url.ParseRequestURI(attack.path)
		if err != nil {
			continue // no client sends it
		}
		before := w.consumed(t)
		r, err := http.NewRequestWithContext(t.Context(), attack.method, w.url, strings.NewReader(attack.body))
		if err != nil {
			t.Fatalf("http.NewRequestWithContext() = %v", err)
		}
		to.Scheme, to.Host = r.URL.Scheme, r.URL.Host
		r.URL = to
		r.Header.Set("Authorization", "Bearer batch-key")
		r.Header.Set(attack.header, "attacker")
		for name, value := range map[string]string{"Content-Type": attack.kind, "Content-Encoding": attack.encoding} {
			if value != "" {
				r.Header.Set(name, value)
			}
		}
		if response, err := w.client.Do(r); err == nil {
			_, _ = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
		}
		w.wait(t)
		if len(seen.calls) == 0 {
			continue
		}
		reached++
		call := seen.calls[0]
		if len(seen.calls) > 1 || call.problem != "" {
			t.Fatalf("attack %d, %+v, reaches the provider as %+v", i, attack, seen.calls)
		}
		if charged := w.charged(t, before); !slices.Equal(charged, []string{call.resource}) {
			t.Fatalf("attack %d, %+v, runs %q and is charged to %v, want %s", i, attack, call.model, charged, call.resource)
		}
	}
	if reached < requests/40 || reached > requests/2 {
		t.Errorf("%d of %d attacks reach the provider: the test does not ask what it should", reached, requests)
	}
	t.Logf("%d of %d attacks are calls, and each is charged", reached, requests)
}

// An attack is a request of a tenant whose key is for small models.
type attack struct{ method, path, header, kind, encoding, body string }

func pick(random *rand.Rand, from ...string) string { return from[random.IntN(len(from))] }

func randomAttack(random *rand.Rand) attack {
	a := attack{
		method: pick(random, "POST", "POST", "POST", "POST", "POST", "POST", "POST", "POST", "GET", "PUT"),
		header: pick(random, "X-Other", "Openai-Organization", "X-Goog-User-Project", "X-Forwarded-Host", "X-Http-Method-Override", "X-Goog-Fieldmask", "X-Original-Url", "Forwarded", "Cookie"),
		kind:   pick(random, "", "application/json", "application/json", "application/json", "application/json; charset=utf-8"),
	}
	if random.IntN(8) == 0 {
		a.kind = pick(random, "application/x-www-form-urlencoded", "multipart/form-data; boundary=b", "multipart/mixed; boundary=b", "application/json; charset=utf-7",
			"application/json, multipart/form-data; boundary=b", "application/x-protobuf", "text/plain", "Application/JSON", "application/json;;")
	}
	if random.IntN(12) == 0 {
		a.encoding = pick(random, "gzip", "br", "identity", "identity, deflate", "utf-16")
	}
	gemini := "/gemini/v1beta/models/" + randomModel(random) + pick(random, ":generateContent", ":streamGenerateContent", ":batchGenerateContent", ":countTokens", "")
	bedrock := "/bedrock/model/" + pick(random, "us.anthropic.", "", "amazon.") + randomModel(random) + pick(random, "-v1:0", "", ":1", ":0:48k") + pick(random, "/converse", "/invoke", "/converse-stream", "/count-tokens", "/async-invoke")
	a.path = pick(random, bedrock, "/openai/v1/chat/completions", "/openai/v1/chat/completions", "/openai/v1/responses", "/anthropic/v1/messages", gemini, gemini,
		"/openai/v1/batches", "/openai/v1/files", "/openai/v1/models", "/anthropic/v1/messages/batches", "/anthropic/v1/organizations")
	if random.IntN(5) == 0 {
		at := 1 + random.IntN(len(a.path)-1)
		a.path = a.path[:at] + pick(random, "/", "//", "/..", "/./", "%2F", "%2f..%2f", "%252F", "%00", ";", ":", "?key=other&", "?model=gpt-4o", "?fields=candidates", "?$httpMethod=GET&alt=proto", "?%24fields=x", "x") + a.path[at:]
	}
	var members []string
	if random.IntN(2) == 0 {
		members = append(members, `"model":"gpt-5-mini"`)
	}
	for range random.IntN(4) {
		members = append(members, pick(random,
			`"model":"`+randomModel(random)+`"`, `"model":"`+randomModel(random)+`"`, `"MODEL":"gpt-4o"`, `"\u006dodel":"`+randomModel(random)+`"`, `"model":["gpt-4o"]`, `"model":null`,
			`"extra_body":{"model":"gpt-4o"}`, `"max_tokens":9`, `"max_tokens":-1`, `"stream":true`, `"stream_options":{"model":"gpt-4o"}`, `"n":1000000`,
			`"messages":[{"content":"\"model\":\"gpt-4o\""}]`, strings.Repeat(" ", random.IntN(3)<<20)+`"x":1`, `"x":1/*`, `"y":1*/`, "\"x\":1//\n", `"x":`+strings.Repeat("[", random.IntN(600))+strings.Repeat("]", 300),
			`"x":`+strings.Repeat(`{"model":`, random.IntN(300))+`"gpt-4o"`+strings.Repeat("}", 150), `"+AG0-odel":"gpt-4o"`, `"x":"&model=gpt-4o&"`, `"model\u0000":"gpt-4o"`, "\"mod\xc1\xa5l\":\"gpt-4o\""))
	}
	a.body = "{" + strings.Join(members, ",") + "}"
	if random.IntN(10) == 0 {
		a.body = pick(random, "", "[]", a.body+a.body, "["+a.body+"]", a.body[:len(a.body)/2], "\ufeff"+a.body, a.body+"x", `"`+a.body, "model=gpt-4o",
			"--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\n"+randomModel(random)+"\r\n--b--\r\n", a.body+"&model=gpt-4o", " \n"+a.body+strings.Repeat(" ", 1<<20))
	}
	return a
}

func randomModel(random *rand.Rand) string {
	return pick(random, "gpt-5-mini", "gpt-5-mini", "gpt-4o", "gpt-5", "claude-haiku-4-5", "claude-haiku-4-5", "claude-opus-4-5", "gemini-2.5-flash", "gemini-2.5-flash", "gemini-2.5-pro", "", "*", "gpt-*-mini*")
}

// An upstream is what a provider makes of the requests that reach it: the last member of a name counts.
type upstream struct {
	mu        sync.Mutex
	providers []provider
	calls     []upstreamCall
}

type upstreamCall struct{ model, resource, problem string }

func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	c := upstreamCall{}
	members := map[string]any{}
	if err := json.Unmarshal(bytes.TrimPrefix(body, []byte("\ufeff")), &members); err != nil { // some read over the mark
		c.problem = "the body is no object"
	}
	c.model, _ = members["model"].(string)
	for name, value := range members { // some ignore upper and lower case
		if name != "model" && strings.EqualFold(name, "model") {
			c.model = fmt.Sprint(value)
		}
	}
	p := u.providerOf(r)
	switch {
	case p == nil:
		c.problem = "the path is not listed: " + r.URL.String()
	case p.name == "bedrock":
		c.problem = ""
		c.model = strings.Split(r.URL.Path, "/")[2]
	case p.name == "gemini":
		c.problem = "" // the path alone says what is run
		c.model, _, _ = strings.Cut(r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:], ":")
		if strings.HasSuffix(r.URL.Path, ":countTokens") {
			c.problem = "" // free
		}
	}
	if p != nil {
		c.resource = resourceOf(p.rules, c.model)
	}
	for _, k := range demoKeys {
		if k.Team == "acme-batch" && !k.allows(c.model) && c.problem == "" && !strings.HasSuffix(r.URL.Path, ":countTokens") {
			c.problem = "the key is not for " + c.model
		}
	}
	kind := r.Header.Get("Content-Type")
	if p != nil && p.name != "gemini" && p.name != "bedrock" && (r.Header.Get("Content-Encoding") != "" && r.Header.Get("Content-Encoding") != "identity" ||
		strings.ContainsAny(kind, ",7") || kind != "" && !strings.Contains(strings.ToLower(kind), "json") && kind != "text/plain") {
		c.problem = "the body may be read as another: " + kind + ", " + r.Header.Get("Content-Encoding")
	}
	if q := r.URL.Query(); len(q) > 1 || len(q) == 1 && !q.Has("alt") {
		c.problem = "parameters are passed on: " + r.URL.RawQuery
	}
	for name, values := range r.Header {
		if slices.Contains(values, "attacker") {
			c.problem = "the tenant's " + name + " is passed on"
		}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if !strings.HasSuffix(r.URL.Path, ":countTokens") || c.problem != "" {
		u.calls = append(u.calls, c)
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"usage":{"prompt_tokens":1,"completion_tokens":1,"input_tokens":1,"output_tokens":1},"usageMetadata":{"promptTokenCount":1,"candidatesTokenCount":1}}`)
}

// providerOf returns the provider whose listed calls have the path.
func (u *upstream) providerOf(r *http.Request) *provider {
	for i := range u.providers {
		p := &u.providers[i]
		for _, call := range p.calls {
			if before, after, ok := strings.Cut(call, "{call}"); ok {
				rest, found := strings.CutPrefix(r.URL.EscapedPath(), before)
				rest, ends := strings.CutSuffix(rest, after)
				model, _, _ := strings.Cut(rest, ":")
				if found && ends && !strings.ContainsAny(rest, "/%") && slices.Contains(p.verbs, strings.TrimPrefix(rest, model)) {
					return p
				}
			} else if r.URL.EscapedPath() == call {
				return p
			}
		}
	}
	return nil
}

// openGateway returns a gateway whose providers are one upstream, with limits that no call reaches.
func openGateway(t testing.TB, base string) *testbed {
	t.Helper()
	w := &testbed{}
	meters, metrics, err := newMetrics()
	if err != nil {
		t.Fatalf("newMetrics() = %v", err)
	}
	limiter, err := open(t.Context(), "memory:")
	if err != nil {
		t.Fatalf("open() = %v", err)
	}
	for _, entity := range []string{account, "acme-batch", "acme-search"} {
		for resource, limits := range limitsOf(zlimit.PerSecond("requests", 1e9), zlimit.PerSecond("tokens", 1e12)) {
			if err := limiter.Limits.Set(t.Context(), zlimit.Level{Entity: entity, Resource: resource}, zlimit.Config{Limits: limits}); err != nil {
				t.Fatalf("Limits.Set() = %v", err)
			}
		}
	}
	ring, err := newKeyring(demoKeys)
	if err != nil {
		t.Fatalf("newKeyring() = %v", err)
	}
	w.providers = providers(func(string) string { return "provider-key" })
	for i := range w.providers {
		w.providers[i].base = base
	}
	if w.gateway, err = newGateway(limiter, ring, w.providers, meters, metrics, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatalf("newGateway() = %v", err)
	}
	front := httptest.NewTLSServer(w.gateway) // an SDK sends bearer tokens nowhere else
	w.limiter, w.url, w.client = limiter, front.URL, front.Client()
	w.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	t.Cleanup(func() {
		front.Close()
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
		if err := limiter.Close(); err != nil {
			t.Errorf("Close() = %v", err)
		}
	})
	return w
}

// consumed returns the tokens that the attacker has consumed, by resource.
func (w *testbed) consumed(t *testing.T) map[string]zlimit.Quantity {
	t.Helper()
	consumed := map[string]zlimit.Quantity{}
	for b, err := range w.limiter.Entities.Buckets(t.Context(), "acme-batch") {
		if err != nil {
			t.Fatalf("Entities.Buckets() = %v", err)
		}
		if tokens, ok := b.Consumed["tokens"]; ok {
			consumed[b.Resource] = tokens
		}
	}
	return consumed
}

// charged returns the resources of which more was consumed than before.
func (w *testbed) charged(t *testing.T, before map[string]zlimit.Quantity) (resources []string) {
	t.Helper()
	for resource, n := range w.consumed(t) {
		if n > before[resource] {
			resources = append(resources, resource)
		}
	}
	return resources
}
