package browsertest

import (
	"context"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/zlimit/zlimit-go/dashboard"
	"github.com/zlimit/zlimit-go/dashboard/demo"
	"github.com/zlimit/zlimit-go/internal/proof/check"
)

// envBrowser names the binary of a Chromium.
const envBrowser = "ZLIMIT_BROWSER"

// A site is a page that someone is signed in to, in a tab of its own.
type site struct {
	*demo.Demo

	server *httptest.Server
	url    string
	tab    context.Context //nolint:containedctx // a tab of chromedp is a context

	mu      sync.Mutex
	console []string
	foreign []string
}

// patience bounds what a browser may take on a busy machine.
const patience = time.Minute

// open starts a demo, its page, and a browser. The test is skipped without a browser.
func open(t *testing.T, company demo.Options, change func(*dashboard.Options)) *site {
	t.Helper()
	binary := os.Getenv(envBrowser)
	if binary == "" {
		t.Skipf("%s names no browser, such as chromium-headless-shell", envBrowser)
	}
	d, err := demo.Start(t.Context(), company)
	check.Fatal(t, "demo.Start()", err)
	t.Cleanup(func() {
		check.Error(t, "Close()", d.Close())
	})
	options := dashboard.Options{
		Limiter: d.Limiter, Recent: d.Recent, Namespace: "production", Store: "memory:", Token: "secret", TokenUser: "dana", Now: d.Now, Leases: d.Leases,
		SignIn: func(_ context.Context, key string) (dashboard.User, error) {
			if key != "a viewer's key" {
				return dashboard.User{}, dashboard.ErrSignIn
			}
			return dashboard.User{Name: "vera"}, nil
		},
	}
	if change != nil {
		change(&options)
	}
	handler, err := dashboard.New(options)
	check.Fatal(t, "dashboard.New()", err)
	server := httptest.NewServer(handler)
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	s := &site{Demo: d, server: server, url: server.URL}
	s.start(t, binary)
	return s
}

func (s *site) start(t *testing.T, binary string) {
	t.Helper()
	allocator, stop := chromedp.NewExecAllocator(context.Background(), append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(binary), chromedp.NoSandbox)...)
	t.Cleanup(stop)
	bounded, expire := context.WithTimeout(allocator, 3*patience)
	t.Cleanup(expire)
	tab, end := chromedp.NewContext(bounded)
	t.Cleanup(end)
	s.tab = tab
	if err := chromedp.Listen(tab, func(event any) {
		s.mu.Lock()
		defer s.mu.Unlock()
		switch e := event.(type) {
		case *runtime.EventConsoleAPICalled:
			s.console = append(s.console, "a call of the console")
		case *runtime.EventExceptionThrown:
			s.console = append(s.console, e.ExceptionDetails.Text)
		case *cdplog.EventEntryAdded:
			s.console = append(s.console, e.Entry.Text+" "+e.Entry.URL)
		case *network.EventRequestWillBeSent:
			if !strings.HasPrefix(e.Request.URL, s.url) {
				s.foreign = append(s.foreign, e.Request.URL)
			}
		}
	}); err != nil {
		t.Fatalf("chromedp.Listen() = %v", err)
	}
}

// signIn uses the link that works once.
func (s *site) signIn(t *testing.T) {
	t.Helper()
	s.do(t, chromedp.Navigate(s.url+"/signin?token=secret"))
}

func (s *site) do(t *testing.T, steps ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	check.Fatal(t, "chromedp.Do()", chromedp.Do(s.tab, steps...))
}

// look shows a screen in a theme and a width.
func (s *site) look(t *testing.T, path, theme string, width int64) {
	t.Helper()
	if _, err := chromedp.Call(s.tab, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}},
	}); err != nil {
		t.Fatalf("chromedp.Call() = %v", err)
	}
	s.do(t, chromedp.EmulateViewport(width, 900), chromedp.Navigate(s.url+path))
}

// eval returns what an expression of JavaScript is in a tab.
func eval[T any](t *testing.T, s *site, expression string) T {
	t.Helper()
	value, err := chromedp.Run(s.tab, chromedp.Evaluate[T](expression))
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	return value
}

// until waits for an expression to be true.
func (s *site) until(t *testing.T, what, expression string) {
	t.Helper()
	for end := time.Now().Add(patience); !eval[bool](t, s, expression); {
		if time.Now().After(end) {
			t.Fatalf("%s: the screen never showed it; it has %.2000s", what, eval[string](t, s, "document.body.innerText"))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// quiet fails if the console has something, or if a request went elsewhere. Replies in want may be there.
func (s *site) quiet(t *testing.T, want ...string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, line := range s.console {
		expected := false
		for _, w := range want {
			expected = expected || strings.Contains(line, w)
		}
		if !expected {
			t.Errorf("the console has %s", line)
		}
	}
	for _, url := range s.foreign {
		t.Errorf("the page asked for %s", url)
	}
	s.console, s.foreign = nil, nil
}
