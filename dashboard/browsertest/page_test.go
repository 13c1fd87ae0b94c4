package browsertest

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/heapprofiler"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/zlimit/zlimit-go/dashboard"
	"github.com/zlimit/zlimit-go/dashboard/demo"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
)

// afternoon is when the company of the pictures is looked at.
var afternoon = time.Date(2026, time.November, 28, 14, 31, 55, 0, time.UTC)

// screens are all of them, with what to look at.
var screens = []struct{ name, path string }{
	{"now", "/"},
	{"usage", "/usage"},
	{"before", "/usage?month=2026-10&limit=tpm"},
	{"zone", "/usage?zone=America/New_York"},
	{"top", "/top"},
	{"entities", "/entities"},
	{"entity", "/entity?id=search&resource=gpt-5"},
	{"why", "/why?id=search&resource=gpt-5&at=2026-11-28T14:31"},
	{"limits", "/limits"},
	{"edit", "/limits/edit?entity=search&resource=gpt-5"},
	{"whatif", "/whatif"},
	{"audit", "/audit?since=30d"},
	{"failure", "/entity"},
}

// contrast returns the texts that are hard to read: below 4.5 to 1, or 3 to 1 for large ones.
const contrast = `(()=>{
const lum=c=>{const [r,g,b]=c.match(/[\d.]+/g).map(v=>{v/=255;return v<=.03928?v/12.92:((v+.055)/1.055)**2.4});return .2126*r+.7152*g+.0722*b};
const ground=e=>{for(;e;e=e.parentElement){const c=getComputedStyle(e).backgroundColor;if(!/, 0\)$/.test(c)&&c!='transparent')return c}return 'rgb(255,255,255)'};
const bad=[];let n=0;
for(const e of document.querySelectorAll('main *,header *')){
 if(![...e.childNodes].some(n=>n.nodeType==3&&n.data.trim())||!e.getClientRects().length||e.disabled||e.matches('option,.hidden'))continue;
 const style=getComputedStyle(e),svg=e.closest('svg');n++;
 const a=lum(svg?style.fill:style.color),b=lum(ground(e)),ratio=(Math.max(a,b)+.05)/(Math.min(a,b)+.05);
 if(ratio<(parseFloat(style.fontSize)>=24?3:4.5))bad.push(ratio.toFixed(2)+' '+e.textContent.trim().slice(0,30));
}
return n<10&&!document.querySelector('.narrow')?['only '+n+' texts']:bad})()`

// TestScreens looks at every screen in both themes and both widths: nothing in the console, no foreign request, no inline style, nothing
// wider than the window, and no text that is hard to read.
func TestScreens(t *testing.T) {
	s := open(t, demo.Options{Now: afternoon, Days: 59, Still: true}, nil)
	s.signIn(t)
	for _, screen := range screens {
		for _, theme := range []string{"light", "dark"} {
			for _, width := range []int64{1440, 390} {
				name := fmt.Sprintf("%s-%d-%s", screen.name, width, theme)
				s.look(t, screen.path, theme, width)
				if got := eval[float64](t, s, "document.documentElement.scrollWidth"); got > float64(width) {
					t.Errorf("%s is %v wide", name, got)
				}
				if n := eval[int](t, s, "document.querySelectorAll('[style],style,[onclick],[onload]').length"); n > 0 {
					t.Errorf("%s has %d inline styles or scripts", name, n)
				}
				if bad := eval[[]string](t, s, contrast); len(bad) > 0 {
					t.Errorf("%s is hard to read: %v", name, bad)
				}
				if h1 := eval[string](t, s, "document.querySelector('h1').textContent"); len(h1) < 10 {
					t.Errorf("%s has the headline %q, want a sentence", name, h1)
				}
				keep(t, s, name)
			}
		}
	}
	s.quiet(t, "status of 400") // of the screen of a failure
	pictures(t, s)
}

// TestLayout: tables stay in their cards, every tab and the way out are in sight, and no name is broken.
func TestLayout(t *testing.T) {
	s := open(t, demo.Options{Now: afternoon, Days: 59, Still: true}, nil)
	s.signIn(t)
	for _, width := range []int64{1280, 1250, 1120, 970, 720, 390} {
		for _, path := range []string{"/", "/usage", "/usage?entity=*&limit=rpm", "/top", "/entity?id=search&resource=gpt-5", "/why?id=search&resource=gpt-5&at=2026-11-28T14:31", "/audit?since=30d"} {
			s.look(t, path, "light", width)
			for what, script := range map[string]string{
				"tables beyond the padding of their cards": `[...document.querySelectorAll('.card table')].filter(t=>{const c=t.closest('.card');return t.getBoundingClientRect().right>c.getBoundingClientRect().right-parseFloat(getComputedStyle(c).paddingRight)+.5}).map(t=>t.closest('.card').id)`,
				"tabs or buttons out of sight":             `[...document.querySelectorAll('header nav a,header .out button')].filter(e=>{const r=e.getBoundingClientRect(),n=e.closest('nav');const right=Math.min(innerWidth,n?n.getBoundingClientRect().right:innerWidth);return !e.checkVisibility()||r.width<1||r.left<0||r.right>right+.5}).map(e=>e.textContent)`,
				"broken names":                             `[...document.querySelectorAll('h1 .whole')].filter(e=>e.getClientRects().length!=1).map(e=>e.textContent)`,
			} {
				if bad := eval[[]string](t, s, script); len(bad) > 0 {
					t.Errorf("%s at %d has %s: %v", path, width, what, bad)
				}
			}
		}
	}
	s.quiet(t)
}

// TestLive checks that the page shows a request without a reload, in the sentence and in the table, and survives a pause.
func TestLive(t *testing.T) {
	s := open(t, demo.Options{Now: afternoon, Still: true}, nil)
	s.signIn(t)
	s.look(t, "/", "light", 1440)
	begin := time.Now()
	refuse := func(entity string) {
		t.Helper()
		_, err := s.Limiter.Acquire(t.Context(), zlimit.Request{Entity: entity, Resource: demo.Resource, Consume: zlimit.Amounts{"rpm": 1}})
		check.Fatal(t, "Limiter.Acquire()", err)
		_, err = s.Limiter.Acquire(t.Context(), zlimit.Request{Entity: entity, Resource: demo.Resource, Consume: zlimit.Amounts{"rpm": 600}})
		var exceeded *zlimit.ExceededError
		if !errors.As(err, &exceeded) {
			t.Fatalf("Acquire() = %v, want a rejection", err)
		}
	}
	refuse("newcomer")
	s.until(t, "a new bucket", `[...document.querySelectorAll('#buckets tr')].some(r=>/newcomer/.test(r.textContent)&&/refuses/.test(r.textContent))`)
	t.Logf("a request was shown after %v", time.Since(begin).Round(time.Millisecond))
	s.do(t, chromedp.Click("#pause"))
	refuse("late")
	s.do(t, chromedp.Click("#pause"))
	s.until(t, "what happened in a pause", `/late/.test(document.querySelector('#buckets').textContent)`)
	s.quiet(t)
}

// TestServerGone checks that the screen says that what it shows is old.
func TestServerGone(t *testing.T) {
	s := open(t, demo.Options{Now: afternoon, Still: true}, nil)
	s.signIn(t)
	s.look(t, "/", "light", 1440)
	s.until(t, "a live screen", `document.getElementById('live').className=='live'`)
	s.server.CloseClientConnections()
	s.server.Close()
	s.until(t, "the age of stale figures", `document.getElementById('live').classList.contains('stale') && /no news for \d+ s/.test(document.getElementById('live').textContent)`)
}

// TestLimitsAreEdited changes a limit on the page, which then binds, and tries to save what is stale.
func TestLimitsAreEdited(t *testing.T) {
	s := open(t, demo.Options{Now: afternoon, Still: true}, nil)
	s.signIn(t)
	level := zlimit.Level{Entity: "support", Resource: demo.Resource}
	form := "/limits/edit?entity=support&resource=" + demo.Resource
	s.look(t, form, "light", 1440)
	s.do(t, chromedp.SetValue("textarea", "rpm=5/min\ntpm=400000/min"), chromedp.Click("button.main"), chromedp.WaitVisible("del"))
	keep(t, s, "preview-1440-light")
	if text := eval[string](t, s, "document.querySelector('main').innerText"); !strings.Contains(text, "rpm=600/min") || !strings.Contains(text, "goes") {
		t.Errorf("the preview is %s, want what goes and what changes", text)
	}
	config, err := s.Limiter.Limits.Get(t.Context(), level)
	if err != nil || len(config.Limits) != 4 {
		t.Fatalf("the preview saved %v, %v", config.Limits, err)
	}
	s.do(t, chromedp.Click("button.main"), chromedp.WaitVisible(".said"))
	_, err = s.Limiter.Acquire(t.Context(), zlimit.Request{Entity: "support", Resource: demo.Resource, Consume: zlimit.Amounts{"rpm": 6}})
	var exceeded *zlimit.ExceededError
	if !errors.As(err, &exceeded) {
		t.Errorf("Acquire() = %v, want a rejection by the limit of the page", err)
	}
	for event, err := range s.Limiter.Audit.Events(t.Context(), "support", zlimit.AuditQuery{Limit: 1, Reverse: true}) {
		if err != nil || event.Principal != "dana" {
			t.Errorf("the change is by %q, %v, want dana", event.Principal, err)
		}
	}
	for _, press := range []int{1, 2} { // before the preview, and after it
		s.look(t, form, "light", 1440)
		s.do(t, chromedp.SetValue("textarea", "rpm=7/min"))
		if press == 2 {
			s.do(t, chromedp.Click("button.main"), chromedp.WaitVisible("del"))
		}
		check.Fatal(t, "Limits.Patch()", s.Limiter.Limits.Patch(t.Context(), level, zlimit.PerMinute("rpm", int64(100*press))))
		s.do(t, chromedp.Click("button.main"), chromedp.WaitVisible(".said.no"))
		if text := eval[string](t, s, "document.querySelector('.said.no').textContent"); !strings.Contains(text, "changed meanwhile") {
			t.Errorf("a stale form says %q", text)
		}
		config, err = s.Limiter.Limits.Get(t.Context(), level)
		if err != nil || config.Limits[0].Capacity != int64(100*press) {
			t.Errorf("a stale form saved %v, %v", config.Limits, err)
		}
	}
	s.quiet(t, "status of 409")
}

// In TestNames, the name of an entity would be a script.
func TestNames(t *testing.T) {
	s := open(t, demo.Options{Now: afternoon, Still: true}, nil)
	s.signIn(t)
	text := `<img src=x onerror="document.title='broken'">&"'`
	name := zlimit.Name(text)
	if _, err := s.Limiter.Acquire(t.Context(), zlimit.Request{Entity: name, Resource: demo.Resource, Consume: zlimit.Amounts{"rpm": 599}}); err != nil {
		t.Fatalf("Limiter.Acquire() = %v", err)
	}
	for _, path := range []string{"/", "/top", "/usage?limit=rpm", "/entity?id=" + url.QueryEscape(name), "/entities?q=" + url.QueryEscape(text), "/whatif?entity=" + url.QueryEscape(text), "/audit?principal=" + url.QueryEscape(text)} {
		s.look(t, path, "light", 1440)
		if n := eval[int](t, s, "document.querySelectorAll('main img').length"); n > 0 {
			t.Errorf("%s has an image", path)
		}
		if title := eval[string](t, s, "document.title"); strings.HasPrefix(title, "broken") {
			t.Errorf("%s ran the script of a name", path)
		}
	}
	s.look(t, "/", "light", 1440)
	s.until(t, "the name as it is", `document.querySelector('#buckets').innerText.includes('<img src=x')`)
	s.quiet(t)
}

// TestViewer checks that a viewer has no button that changes anything.
func TestViewer(t *testing.T) {
	s := open(t, demo.Options{Now: afternoon, Still: true}, nil)
	s.look(t, "/entity?id=search&resource="+demo.Resource, "light", 1440)
	s.do(t, chromedp.SendKeys("input[name=key]", "wrong"), chromedp.Click(".narrow button"), chromedp.WaitVisible("[role=alert]"))
	s.do(t, chromedp.SendKeys("input[name=key]", "a viewer's key"), chromedp.Click(".narrow button"), chromedp.WaitVisible("#limits-of"))
	for _, screen := range screens {
		s.look(t, screen.path, "light", 1440)
		if n := eval[int](t, s, "document.querySelectorAll('main form[method=post],main textarea').length"); n > 0 {
			t.Errorf("a viewer has %d forms of changes on %s", n, screen.name)
		}
	}
	status := eval[int](t, s, `(()=>{const r=new XMLHttpRequest();r.open('POST','/entity/change',false);r.setRequestHeader('Content-Type','application/x-www-form-urlencoded');r.send('id=search&resource=gpt-5&do=disable&confirm=search');return r.status})()`)
	if status != 403 {
		t.Errorf("a viewer's change has status %d, want 403", status)
	}
	if _, err := s.Limiter.Acquire(t.Context(), zlimit.Request{Entity: "support", Resource: demo.Resource, Consume: zlimit.Amounts{"rpm": 1}}); err != nil {
		t.Errorf("Acquire() = %v after what a viewer tried", err)
	}
}

// TestKeyboard walks through a screen by keys alone, and confirms a change.
func TestKeyboard(t *testing.T) {
	s := open(t, demo.Options{Now: afternoon, Still: true}, nil)
	s.signIn(t)
	s.look(t, "/entity?id=support&resource="+demo.Resource, "light", 1440)
	s.do(t, chromedp.Click("#pause")) // so that no part is replaced below the focus
	s.do(t, chromedp.Evaluate[chromedp.Void](`document.activeElement.blur()`))
	want := eval[int](t, s, `[...document.querySelectorAll('a[href],button,summary,input:not([type=hidden]),select,textarea')].filter(e=>e.checkVisibility()&&!e.disabled&&!e.closest('details:not([open])>:not(summary)')).length`)
	reached, unseen := map[string]bool{}, []string{}
	for range 2 * want {
		s.do(t, chromedp.KeyEvent(kb.Tab))
		at := eval[string](t, s, `(()=>{const e=document.activeElement;if(e==document.body)return '';const all=[...document.querySelectorAll('*')];return all.indexOf(e)+' '+getComputedStyle(e).outlineStyle+' '+e.textContent.trim().slice(0,20)})()`)
		if at == "" {
			continue
		}
		reached[strings.Fields(at)[0]] = true
		if strings.Fields(at)[1] == "none" {
			unseen = append(unseen, at)
		}
	}
	if len(reached) < want {
		t.Errorf("Tab reached %d of %d", len(reached), want)
	}
	if len(unseen) > 0 {
		t.Errorf("no outline shows where the focus is: %v", unseen)
	}
	s.do(t, chromedp.Focus("details summary"), chromedp.KeyEvent(kb.Enter), chromedp.WaitVisible("details[open] input[name=confirm]"))
	if !eval[bool](t, s, "document.querySelector('details[open] button').disabled") {
		t.Error("the button works before the name is typed")
	}
	s.do(t, chromedp.Focus("details[open] input[name=confirm]"), chromedp.KeyEvent("support"), chromedp.KeyEvent(kb.Enter), chromedp.WaitVisible(".said"))
	_, err := s.Limiter.Acquire(t.Context(), zlimit.Request{Entity: "support", Resource: demo.Resource, Consume: zlimit.Amounts{"rpm": 1}})
	if !errors.Is(err, zlimit.ErrDisabled) {
		t.Errorf("Acquire() = %v, want that support is disabled", err)
	}
	s.quiet(t)
}

// TestManyBuckets shows 10,000 buckets. The page stays small, and many updates leave no memory behind.
func TestManyBuckets(t *testing.T) {
	s := open(t, demo.Options{Now: afternoon, Still: true, Buckets: 10_000}, func(o *dashboard.Options) { o.Every = 110 * time.Millisecond })
	s.signIn(t)
	s.look(t, "/", "light", 1440)
	s.until(t, "the first paint", "performance.getEntriesByType('paint').length>0")
	paint := eval[float64](t, s, "performance.getEntriesByType('paint')[0].startTime")
	size := eval[int](t, s, "document.documentElement.outerHTML.length")
	t.Logf("first paint after %.0f ms, %d bytes", paint, size)
	if size > 120_000 {
		t.Errorf("the page has %d bytes, want no more for 10,000 buckets than for 50", size)
	}
	heap := func() (float64, int) {
		t.Helper()
		if _, err := chromedp.Call(s.tab, heapprofiler.CollectGarbage, cdp.Empty{}); err != nil {
			t.Fatalf("chromedp.Call() = %v", err)
		}
		used, err := chromedp.Call(s.tab, runtime.GetHeapUsage, cdp.Empty{})
		check.Fatal(t, "chromedp.Call()", err)
		return used.UsedSize, eval[int](t, s, "document.querySelectorAll('*').length")
	}
	update := func(i int) {
		t.Helper()
		entity := fmt.Sprintf("busy-%03d", i)
		for range 2 { // the second one is refused, which makes it the worst
			_, _ = s.Limiter.Acquire(t.Context(), zlimit.Request{Entity: entity, Resource: demo.Resource, Consume: zlimit.Amounts{"rpm": 600}})
		}
		s.until(t, "an update", fmt.Sprintf("document.querySelector('#buckets').textContent.includes('%s')", entity))
	}
	for i := range 3 {
		update(i)
	}
	before, nodes := heap()
	for i := range 6 {
		update(3 + i)
	}
	after, nodesAfter := heap()
	t.Logf("after six updates the heap has %.0f bytes, and had %.0f", after, before)
	if after > before+1e6 || nodesAfter > nodes+300 {
		t.Errorf("the heap grew from %.0f to %.0f bytes, and the page from %d to %d elements", before, after, nodes, nodesAfter)
	}
}
