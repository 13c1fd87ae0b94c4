package server

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zlimit/zlimit-go/server/internal/auth"
)

// browser returns a client with cookies.
func browser(t *testing.T) *http.Client {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &http.Client{Jar: jar}
}

// look returns the status and the body of a page.
func look(t *testing.T, c *http.Client, address string, form url.Values) (int, string) {
	t.Helper()
	method, body := http.MethodGet, io.Reader(http.NoBody)
	if form != nil {
		method, body = http.MethodPost, strings.NewReader(form.Encode())
	}
	r, err := http.NewRequestWithContext(t.Context(), method, address, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	reply, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reply.Body.Close() }()
	text, err := io.ReadAll(reply.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply.StatusCode, string(text)
}

// TestDashboardOfCallers lets callers with the role read in, and no others. A caller that a reload removes is out.
func TestDashboardOfCallers(t *testing.T) {
	keys, hashes := map[string]string{}, map[string]string{}
	for _, name := range []string{"ann", "vera", "gate", "team"} {
		keys[name], hashes[name] = auth.NewKey()
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
	if err != nil {
		t.Fatal(err)
	}
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
	c, err := Load("", noEnv)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	ctx, cancel := context.WithCancel(t.Context())
	link, ended := make(chan string, 1), make(chan error, 1)
	d := &Dashboard{Config: c, Address: "127.0.0.1:0", Ready: func(l string) { link <- l }, Logger: slog.New(slog.NewTextHandler(&log, nil))}
	go func() { ended <- d.Run(ctx) }()
	if status, body := look(t, browser(t), <-link, nil); status != http.StatusOK || !strings.Contains(body, "<h1>Nothing is limited yet") {
		t.Errorf("the link has status %d", status)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Run() = %v", err)
	}
	for _, address := range []string{"0.0.0.0:0", ":0", "example.com:80", "x"} {
		if err := (&Dashboard{Config: c, Address: address}).Run(t.Context()); err == nil || !strings.Contains(err.Error(), "loopback") {
			t.Errorf("Run() on %s = %v, want that it is no loopback", address, err)
		}
	}
}
