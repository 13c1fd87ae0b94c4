package server

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
)

// browser returns a client with cookies.
func browser(t *testing.T) *http.Client {
	t.Helper()
	jar := check.Call(cookiejar.New(nil)).Must(t, "cookiejar.New()")
	return &http.Client{Jar: jar}
}

// look returns the status and the body of a page.
func look(t *testing.T, c *http.Client, address string, form url.Values) (int, string) {
	t.Helper()
	method, body := http.MethodGet, io.Reader(http.NoBody)
	if form != nil {
		method, body = http.MethodPost, strings.NewReader(form.Encode())
	}
	r := check.Call(http.NewRequestWithContext(t.Context(), method, address, body)).Must(t, "http.NewRequestWithContext()")
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	reply := check.Call(c.Do(r)).Must(t, "Do()")
	defer func() { _ = reply.Body.Close() }()
	text := check.Call(io.ReadAll(reply.Body)).Must(t, "io.ReadAll()")
	return reply.StatusCode, string(text)
}

// TestDashboardOfCallers lets callers with the role read in, and no others. A caller that a reload removes is out.
func TestDashboardOfCallers(t *testing.T) {
	keys, hashes := map[string]string{}, map[string]string{}
	for _, name := range []string{"ann", "vera", "gate", "team"} {
		keys[name] = "the key of " + name
		hashes[name] = fmt.Sprintf("%x", sha256.Sum256([]byte(keys[name])))
	}
	callers := func(names ...string) string {
		text := config + "dashboard: true\nsigning_keys: [{id: a, file: a.key}]\ncallers:\n"
		more := map[string]string{"ann": "roles: [read, admin]", "vera": "roles: [read]", "gate": "roles: [acquire]", "team": "roles: [read], entities: ['team/*']"}
		for _, name := range names {
			text += "- {name: " + name + ", key_sha256: " + hashes[name] + ", " + more[name] + "}\n"
		}
		return text
	}
	dir := directory(t, map[string]string{
		"config.yaml": callers("ann", "vera", "gate", "team"), "later.yaml": callers("vera"), "x.limits.yaml": limits, "a.key": strings.Repeat("k", 32),
	})
	s, _ := start(t, filepath.Join(dir, "config.yaml"))
	base := "http://" + s.HTTPAddr()
	signIn := func(name string) (*http.Client, int) {
		c := browser(t)
		status, _ := look(t, c, base+"/signin", url.Values{"key": {keys[name]}})
		return c, status
	}
	for name, want := range map[string]int{"gate": http.StatusForbidden, "team": http.StatusForbidden, "nobody": http.StatusForbidden} {
		if _, status := signIn(name); status != want {
			t.Errorf("%s has status %d, want %d", name, status, want)
		}
	}
	ann, _ := signIn("ann")
	vera, _ := signIn("vera")
	if _, body := look(t, ann, base+"/limits/edit?resource=x", nil); !strings.Contains(body, "<textarea") {
		t.Error("an administrator has no form")
	}
	if status, body := look(t, vera, base+"/limits/edit?resource=x", nil); status != http.StatusOK || strings.Contains(body, "<textarea") {
		t.Errorf("a viewer has status %d, want a screen without a form", status)
	}
	c, err := Load(filepath.Join(dir, "later.yaml"), noEnv)
	if err == nil {
		err = s.Reload(t.Context(), c)
	}
	check.Fatal(t, "Load() and Reload()", err)
	if _, body := look(t, ann, base+"/limits", nil); !strings.Contains(body, "Who is there?") {
		t.Error("a caller that a reload removed is still signed in")
	}
	if _, body := look(t, vera, base+"/limits", nil); strings.Contains(body, "Who is there?") {
		t.Error("another caller is out, too")
	}
}

// TestNoDashboard checks that there is no page unless the config says so.
func TestNoDashboard(t *testing.T) {
	dir := directory(t, map[string]string{"config.yaml": config, "x.limits.yaml": limits})
	s, _ := start(t, filepath.Join(dir, "config.yaml"))
	if status, _ := look(t, browser(t), "http://"+s.HTTPAddr()+"/", nil); status != http.StatusNotFound {
		t.Errorf("the page has status %d, want 404", status)
	}
}

// TestDashboardAlone runs the page by itself: its link works, and it listens on the loopback alone.
func TestDashboardAlone(t *testing.T) {
	c := check.Call(Load("", noEnv)).Must(t, "Load()")
	var log bytes.Buffer
	ctx, cancel := context.WithCancel(t.Context())
	link, ended := make(chan string, 1), make(chan error, 1)
	d := &Dashboard{Config: c, Address: "127.0.0.1:0", Ready: func(l string) { link <- l }, Logger: slog.New(slog.NewTextHandler(&log, nil))}
	go func() { ended <- d.Run(ctx) }()
	if status, body := look(t, browser(t), <-link, nil); status != http.StatusOK || !strings.Contains(body, "<h1>Nothing is limited yet") {
		t.Errorf("the link has status %d", status)
	}
	cancel()
	check.Error(t, "Run()", <-ended)
	for _, address := range []string{"0.0.0.0:0", ":0", "example.com:80", "x"} {
		if err := (&Dashboard{Config: c, Address: address}).Run(t.Context()); err == nil || !strings.Contains(err.Error(), "loopback") {
			t.Errorf("Run() on %s = %v, want that it is no loopback", address, err)
		}
	}
}

// open signs in to a server without callers, which logs a link.
func open(t *testing.T, c *Config) (s *Server, admin *http.Client) {
	t.Helper()
	var log bytes.Buffer
	s = check.Call(New(t.Context(), c, slog.New(slog.NewTextHandler(&log, nil)))).Must(t, "New()")
	link := regexp.MustCompile(`http://\S+/signin\?token=\w+`).FindString(log.String())
	s.logger = slog.New(slog.DiscardHandler)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		check.Error(t, "Run()", <-done)
	})
	admin = browser(t)
	if status, _ := look(t, admin, link, nil); status != http.StatusOK {
		t.Fatalf("the link %q has status %d", link, status)
	}
	return s, admin
}

// TestHeldEndsWithSettlement: what calls hold ends when a token is settled, over HTTP and by gateways. A charge without a lease holds
// nothing.
func TestHeldEndsWithSettlement(t *testing.T) {
	dir := directory(t, map[string]string{
		"config.yaml": strings.Replace(config, "ratelimit:\n", "dashboard: true\nratelimit:\n  domains: {d: {lease: 10m}}\n", 1), "x.limits.yaml": strings.Replace(limits, "2}", "2000}", 1),
	})
	c := check.Call(Load(filepath.Join(dir, "config.yaml"), noEnv)).Must(t, "Load()")
	s, admin := open(t, c)
	if err := s.limiter.Limits.Set(t.Context(), zlimit.Level{Resource: "gpt"}, zlimit.Config{
		Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 100), zlimit.PerMinute("tpm", 100_000), zlimit.Slots("slots", 5)},
	}); err != nil {
		t.Fatalf("Limits.Set() = %v", err)
	}
	call := func(path, body string) map[string]any { t.Helper(); return postOK(t, s, path, body) }
	held := func(want string) {
		t.Helper()
		_, body := look(t, admin, "http://"+s.HTTPAddr()+"/usage?resource=gpt&limit=tpm", nil)
		if got := regexp.MustCompile(`Held by calls under way</dt><dd[^>]*>(\S+)`).FindStringSubmatch(body); len(got) < 2 || got[1] != want {
			t.Errorf("the page says that %v is held, want %s", got, want)
		}
	}
	acquire := func(more string) string {
		t.Helper()
		text, _ := call("/v1/acquire", `{"entity":"alice","resource":"gpt","consume":{"rpm":1,"tpm":1000`+more+`}`)["lease"].(string)
		return text
	}
	acquire("}")
	held("0")
	var leases []string
	for _, more := range []string{`},"lease":"5m"`, `},"lease":"5m"`, `,"slots":1},"lease":"5m"`} {
		leases = append(leases, acquire(more))
	}
	held("3,000")
	call("/v1/settle", fmt.Sprintf(`{"lease":%q,"actual":{"tpm":800}}`, leases[0]))
	held("2,000")
	call("/v1/rollback", fmt.Sprintf(`{"lease":%q}`, leases[1]))
	held("1,000")
	call("/v1/settle", fmt.Sprintf(`{"lease":%q,"actual":{"tpm":1000}}`, leases[2]))
	held("0")

	conn := dial(t, s)
	ask := request("ann")
	ask.Descriptors[0].HitsAddend = wrapperspb.UInt64(30)
	answer := check.Call(pb.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), ask)).Must(t, "ShouldRateLimit()")
	names := s.limiter.Resources.List(t.Context())
	count := func() (n int) {
		for of, err := range names {
			check.Fatal(t, "Resources.List()", err)
			n += len(s.held.Of(c.Namespace, of.ID))
		}
		return n
	}
	if n := count(); n != 1 {
		t.Errorf("%d leases of gateways are open, want 1", n)
	}
	lease := answer.DynamicMetadata.GetFields()["lease"].GetStringValue()
	settle := request("ann")
	settle.Descriptors = []*common.RateLimitDescriptor{{Entries: []*common.RateLimitDescriptor_Entry{{Key: "lease", Value: lease}}, HitsAddend: wrapperspb.UInt64(20)}}
	if _, err := pb.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), settle); err != nil {
		t.Fatalf("ShouldRateLimit() = %v", err)
	}
	if n := count(); n != 0 {
		t.Errorf("%d leases of gateways are open after a settlement, want none", n)
	}
}
