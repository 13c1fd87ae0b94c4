package dashboard_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/aggregator"
	"github.com/zlimit/zlimit-go/dashboard"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/store/memory"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/recent"
)

// A visitor is a browser without scripts.
type visitor struct {
	http.Client

	base    string
	limiter *zlimit.RateLimiter
}

// visit returns a visitor of a page over a limiter in memory, who is not signed in.
func visit(t *testing.T) *visitor {
	t.Helper()
	return visitStore(t, newStore(t))
}

func newStore(t *testing.T) zlimit.Store {
	t.Helper()
	s, err := memory.New(layout.Table)
	if err == nil {
		err = s.Setup(t.Context())
	}
	check.Fatal(t, "memory.New() and Setup()", err)
	return store.NewHandle(s, true)
}

// visitCounted is visit with an aggregator, which counts usage.
func visitCounted(t *testing.T) *visitor {
	t.Helper()
	handle := newStore(t)
	a, err := aggregator.New(handle, aggregator.WithPoll(5*time.Millisecond), aggregator.WithoutTending())
	check.Fatal(t, "aggregator.New()", err)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil && ctx.Err() == nil {
			t.Errorf("Run() = %v", err)
		}
	})
	for len(a.Status().Partitions) == 0 {
		time.Sleep(time.Millisecond)
	}
	return visitStore(t, handle)
}

func visitStore(t *testing.T, of zlimit.Store) *visitor {
	t.Helper()
	return visitAt(t, of, time.Now)
}

// visitAt is visitStore with a clock.
func visitAt(t *testing.T, of zlimit.Store, now func() time.Time) *visitor {
	t.Helper()
	seen := recent.New(nil)
	l := check.Call(zlimit.New(t.Context(), of, zlimit.WithObserver(seen.Observe), zlimit.WithClock(now))).Must(t, "zlimit.New()")
	t.Cleanup(func() { _ = l.Close() })
	err := l.Limits.Set(t.Context(), zlimit.Level{Resource: "gpt"}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 10), zlimit.USD("usd", 5, zlimit.PerMonth)}})
	check.Fatal(t, "Limits.Set()", err)
	h := check.Call(dashboard.New(dashboard.Options{
		Limiter: l, Recent: seen, Token: "once", TokenUser: "dana", Now: now,
		SignIn: func(_ context.Context, key string) (dashboard.User, error) {
			switch key {
			case "admin":
				return dashboard.User{Name: "ann", Admin: true}, nil
			case "viewer":
				return dashboard.User{Name: "vera"}, nil
			default:
				return dashboard.User{}, dashboard.ErrSignIn
			}
		},
	})).Must(t, "dashboard.New()")
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	jar := check.Call(cookiejar.New(nil)).Must(t, "cookiejar.New()")
	return &visitor{http.Client{Jar: jar}, server.URL, l}
}

// get returns the status and the body of a path.
func (v *visitor) get(t *testing.T, path string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, v.base+path, http.NoBody)
	check.Fatal(t, "http.NewRequestWithContext()", err)
	return v.send(t, request)
}

// post sends a form, as a browser does from the page itself, or with other headers.
func (v *visitor) post(t *testing.T, path string, form url.Values, headers ...string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, v.base+path, strings.NewReader(form.Encode()))
	check.Fatal(t, "http.NewRequestWithContext()", err)
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	return v.send(t, request)
}

func (v *visitor) send(t *testing.T, request *http.Request) (int, string) {
	t.Helper()
	reply := check.Call(v.Do(request)).Must(t, "Do()")
	defer func() { _ = reply.Body.Close() }()
	body := check.Call(io.ReadAll(reply.Body)).Must(t, "io.ReadAll()")
	if csp := reply.Header.Get("Content-Security-Policy"); !strings.HasPrefix(csp, "default-src 'self'") || strings.Contains(csp, "unsafe") {
		t.Errorf("%s has the policy %q", request.URL.Path, csp)
	}
	return reply.StatusCode, string(body)
}

func (v *visitor) signIn(t *testing.T, key string) {
	t.Helper()
	if status, body := v.post(t, "/signin", url.Values{"key": {key}}); status != http.StatusOK {
		t.Fatalf("sign in: %d %s", status, body)
	}
}

// acquire takes a number of requests for an entity.
func (v *visitor) acquire(t *testing.T, entity string, n int64) error {
	t.Helper()
	_, err := v.limiter.Acquire(t.Context(), zlimit.Request{Entity: entity, Resource: "gpt", Consume: zlimit.Amounts{"rpm": n}})
	return err
}

var paths = []string{"/", "/usage", "/usage.csv", "/top", "/entities", "/entity?id=alice", "/limits", "/limits/edit", "/whatif", "/audit", "/events?screen=now", "/nothing"}

// TestNobody: a visitor who is not signed in sees nothing without signing in.
func TestNobody(t *testing.T) {
	v := visit(t)
	v.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	for _, path := range paths {
		if status, body := v.get(t, path); status != http.StatusSeeOther && status != http.StatusUnauthorized || strings.Contains(body, "gpt") {
			t.Errorf("%s: %d, want to be sent to sign in", path, status)
		}
	}
	for _, path := range []string{"/entity/change", "/limits/preview", "/limits/save"} {
		if status, _ := v.post(t, path, nil); status != http.StatusUnauthorized {
			t.Errorf("%s: %d, want 401", path, status)
		}
	}
	if status, _ := v.post(t, "/signin", url.Values{"key": {"wrong"}}); status != http.StatusForbidden {
		t.Errorf("a wrong key has status %d, want 403", status)
	}
}

// TestToken signs in once, and its cookie is for the page alone.
func TestToken(t *testing.T) {
	v := visit(t)
	v.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	if status, _ := v.get(t, "/signin?token=twice"); status != http.StatusForbidden {
		t.Errorf("another token has status %d, want 403", status)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, v.base+"/signin?token=once&to=//elsewhere.example", http.NoBody)
	check.Fatal(t, "http.NewRequestWithContext()", err)
	reply := check.Call(v.Do(request)).Must(t, "Do()")
	_ = reply.Body.Close()
	c := reply.Cookies()
	if len(c) != 1 || !c[0].HttpOnly || c[0].SameSite != http.SameSiteStrictMode || reply.Header.Get("Location") != "/" {
		t.Fatalf("the token sets %v and leads to %q", c, reply.Header.Get("Location"))
	}
	if status, _ := v.get(t, "/"); status != http.StatusOK {
		t.Errorf("signed in: %d, want 200", status)
	}
	other := &visitor{base: v.base}
	if status, _ := other.get(t, "/signin?token=once"); status != http.StatusForbidden {
		t.Errorf("the token works twice: %d", status)
	}
	v.post(t, "/signout", nil)
	if status, _ := v.get(t, "/"); status != http.StatusSeeOther {
		t.Errorf("signed out: %d, want to be sent to sign in", status)
	}
}

// TestCrossSite refuses forms of other sites, even with the cookie.
func TestCrossSite(t *testing.T) {
	v := visit(t)
	v.signIn(t, "admin")
	form := url.Values{"id": {"alice"}, "resource": {"gpt"}, "do": {"disable"}, "confirm": {"alice"}}
	for _, headers := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "https://elsewhere.example"}} {
		if status, _ := v.post(t, "/entity/change", form, headers...); status != http.StatusForbidden {
			t.Errorf("%v: %d, want 403", headers, status)
		}
	}
	if err := v.acquire(t, "alice", 1); err != nil {
		t.Errorf("Acquire() = %v, want that nothing was changed", err)
	}
}

// TestViewerChangesNothing checks that a viewer is refused each change.
func TestViewerChangesNothing(t *testing.T) {
	v := visit(t)
	check.Fatal(t, "acquire()", v.acquire(t, "alice", 1))
	v.signIn(t, "viewer")
	for _, path := range paths[:len(paths)-2] {
		if status, body := v.get(t, path); status != http.StatusOK || strings.Contains(body, `action="/entity/change"`) || strings.Contains(body, `action="/limits/`) && !strings.Contains(body, `method="get" action="/limits/edit"`) {
			t.Errorf("%s: %d, want a screen without buttons", path, status)
		}
	}
	for _, path := range []string{"/entity/change", "/limits/preview", "/limits/save"} {
		if status, _ := v.post(t, path, url.Values{"id": {"alice"}, "resource": {"gpt"}, "do": {"disable"}, "confirm": {"alice"}}); status != http.StatusForbidden {
			t.Errorf("%s: %d, want 403", path, status)
		}
	}
}

// TestChanges makes each dangerous change, which needs the name typed, and is recorded under who made it.
func TestChanges(t *testing.T) {
	v := visit(t)
	v.signIn(t, "admin")
	change := func(do, confirm string, more ...string) (int, string) {
		t.Helper()
		form := url.Values{"id": {"alice"}, "resource": {"gpt"}, "do": {do}, "confirm": {confirm}, "operation": {"op-" + do}}
		for i := 0; i < len(more); i += 2 {
			form.Set(more[i], more[i+1])
		}
		return v.post(t, "/entity/change", form, "Sec-Fetch-Site", "same-origin")
	}
	for _, do := range []string{"disable", "bypass", "enable", "reset", "topup"} {
		if status, body := change(do, "alic", "limit", "rpm", "amount", "5"); status != http.StatusBadRequest || !strings.Contains(body, "Nothing was changed") {
			t.Errorf("%s without its confirmation: %d", do, status)
		}
	}
	check.Fatal(t, "acquire()", v.acquire(t, "alice", 10))
	for _, step := range []struct {
		do   string
		more []string
		want string
		n    int64 // admitted afterwards
	}{
		{"topup", []string{"limit", "rpm", "amount", "4"}, "Topped up", 4},
		{"topup", []string{"limit", "rpm", "amount", "4"}, "Topped up", 0}, // the same form again
		{"reset", nil, "Its limits are full", 10},
		{"bypass", nil, "and not limited", 50},
		{"enable", nil, "Limits hold again", 0},
		{"disable", nil, "Requests are rejected", 0},
	} {
		status, body := change(step.do, "alice", step.more...)
		if status != http.StatusOK || !strings.Contains(body, step.want) {
			t.Fatalf("%s: %d, want %q in %.3000s", step.do, status, step.want, body)
		}
		if step.n > 0 {
			if err := v.acquire(t, "alice", step.n); err != nil {
				t.Errorf("after %s: Acquire(%d) = %v", step.do, step.n, err)
			}
		}
		if err := v.acquire(t, "alice", 3); err == nil && step.do != "bypass" { // two may flow in on a slow machine
			t.Errorf("after %s more is admitted than it gave", step.do)
		}
	}
	for _, bad := range [][]string{{"amount", "-4"}, {"amount", "many"}, {"amount", "4", "limit", "none"}, {"amount", "4", "limit", "rpm", "hours", "x"}} {
		if status, body := change("topup", "alice", append([]string{"limit", "rpm"}, bad...)...); status != http.StatusBadRequest {
			t.Errorf("topup of %v: %d %.500s", bad, status, body)
		}
	}
	if status, _ := change("delete", "alice"); status != http.StatusBadRequest {
		t.Errorf("delete: %d, want 400", status)
	}
	for e, err := range v.limiter.Audit.Events(t.Context(), "alice", zlimit.AuditQuery{}) {
		if err != nil || e.Principal != "ann" {
			t.Errorf("%s is by %q, %v, want ann", e.Action, e.Principal, err)
		}
	}
}

// TestBadInput names the field, and asks the store nothing.
func TestBadInput(t *testing.T) {
	v := visit(t)
	v.signIn(t, "admin")
	for path, want := range map[string]string{
		"/usage?resource=gpt&zone=Mars": "zone must be", "/usage?resource=gpt&zone=Local": "zone must be", "/usage?resource=gpt&month=2999-01": "month must be", "/usage?resource=gpt&month=x": "month must be",
		"/audit?since=1y": "since must be", "/entity": "id is missing", "/top?resource=gpt&since=x": "since must be",
	} {
		if status, body := v.get(t, path); status != http.StatusBadRequest || !strings.Contains(body, want) {
			t.Errorf("%s: %d, want 400 with %q", path, status, want)
		}
	}
	if status, _ := v.get(t, "/events?screen=none"); status != http.StatusBadRequest {
		t.Errorf("a stream of no screen: %d, want 400", status)
	}
	if status, body := v.get(t, "/nothing"); status != http.StatusNotFound || !strings.Contains(body, "no such page") {
		t.Errorf("no page: %d", status)
	}
	for text, want := range map[string]string{"rpm": "line 1", "rpm=1/min\nrpm=2/min": "line 2: rpm occurs twice", "rpm=-1/min": "line 1"} {
		if status, body := v.post(t, "/limits/preview", url.Values{"resource": {"gpt"}, "limits": {text}}); status != http.StatusBadRequest || !strings.Contains(body, want) || !strings.Contains(body, "Nothing was saved") {
			t.Errorf("limits %q: %d, want 400 with %q", text, status, want)
		}
	}
	form := url.Values{"resource": {"gpt"}, "limits": {strings.Repeat("x", 70_000)}}
	if status, _ := v.post(t, "/limits/preview", form); status != http.StatusBadRequest {
		t.Errorf("a form of 70 KB: %d, want 400", status)
	}
}

// TestStream sends what changed, and ends with the session.
func TestStream(t *testing.T) {
	v := visit(t)
	check.Fatal(t, "acquire()", v.acquire(t, "alice", 1))
	v.signIn(t, "viewer")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, v.base+"/events?screen=now", http.NoBody)
	check.Fatal(t, "http.NewRequestWithContext()", err)
	reply := check.Call(v.Do(request)).Must(t, "Do()")
	defer func() { _ = reply.Body.Close() }()
	if kind := reply.Header.Get("Content-Type"); kind != "text/event-stream" {
		t.Fatalf("the stream is of %q", kind)
	}
	read := make([]byte, 64<<10)
	text := ""
	for !strings.Contains(text, "event: at\n") {
		n := check.Call(reply.Body.Read(read)).Must(t, "Body.Read()")
		text += string(read[:n])
	}
	if !strings.HasPrefix(text, "event: main\ndata: ") || !strings.Contains(text, "alice") {
		t.Errorf("the stream begins with %.200s", text)
	}
	v.post(t, "/signout", nil)
	lines, late := bufio.NewScanner(reply.Body), 0
	lines.Buffer(nil, 1<<20)
	for lines.Scan() && late <= 2 { // one event may have been on its way
		if lines.Text() == "event: at" {
			late++
		}
	}
	if late > 2 || lines.Err() != nil {
		t.Errorf("the stream of a session that ended goes on with %d events, %v, want its end", late, lines.Err())
	}
}

// TestCSV disarms what a spreadsheet would take for a formula.
func TestCSV(t *testing.T) {
	if got := dashboard.Disarmed("=1+1"); got != "'=1+1" {
		t.Errorf("Disarmed() = %q", got)
	}
	v := visit(t)
	v.signIn(t, "viewer")
	if status, body := v.get(t, "/usage.csv?resource=gpt"); status != http.StatusOK || !strings.HasPrefix(body, "day,zone,resource,limit,entity,amount\n") {
		t.Errorf("the file is %d %q", status, body)
	}
}
