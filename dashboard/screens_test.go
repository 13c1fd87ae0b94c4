package dashboard_test

import (
	"context"
	"html"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
)

var tags = regexp.MustCompile(`<[^>]*>`)

// screen returns a screen as text, which must have what is wanted.
func (v *visitor) screen(t *testing.T, path string, want ...string) string {
	t.Helper()
	status, body := v.get(t, path)
	text := strings.Join(strings.Fields(html.UnescapeString(tags.ReplaceAllString(strings.ReplaceAll(body, "</", " </"), ""))), " ")
	for _, w := range want {
		if status != http.StatusOK || !strings.Contains(text, w) {
			t.Errorf("%s is %d, want %q in %s", path, status, w, text)
		}
	}
	return text
}

// use takes an amount for an entity, and waits until it is counted.
func (v *visitor) use(t *testing.T, entity, resource, limit string, n int64) {
	t.Helper()
	if _, err := v.limiter.Acquire(t.Context(), zlimit.Request{Entity: entity, Resource: resource, Consume: zlimit.Amounts{limit: n}}); err != nil {
		t.Fatalf("Acquire() = %v", err)
	}
	v.counted(t, entity, resource, limit, n)
}

// counted waits until an amount is counted.
func (v *visitor) counted(t *testing.T, entity, resource, limit string, n int64) {
	t.Helper()
	for counted := false; !counted; time.Sleep(2 * time.Millisecond) {
		for s, err := range v.limiter.Usage.Snapshots(t.Context(), zlimit.UsageQuery{Entity: entity, Resource: resource, Window: zlimit.WindowHourly}) {
			check.Fatal(t, "Usage.Snapshots()", err)
			counted = counted || s.Consumed[limit].Float64() >= float64(n)
		}
	}
}

// headline returns the sentence of a screen.
func (v *visitor) headline(t *testing.T, path string) string {
	t.Helper()
	_, body := v.get(t, path)
	h1 := regexp.MustCompile(`<h1>(.*)</h1>`).FindStringSubmatch(body)
	if len(h1) < 2 {
		t.Fatalf("%s has no headline", path)
	}
	return html.UnescapeString(tags.ReplaceAllString(h1[1], ""))
}

// TestUsageOfEveryone lists every entity without a parent, with what its children used, and leads to each of them.
func TestUsageOfEveryone(t *testing.T) {
	v := visitCounted(t)
	v.signIn(t, "viewer")
	ctx := t.Context()
	for _, team := range []string{"marketing", "sales"} {
		for _, e := range []zlimit.Entity{{ID: team}, {ID: team + "/ann", ParentID: team, Cascade: true}, {ID: team + "/ben", ParentID: team}} {
			if _, err := v.limiter.Entities.Create(ctx, e); err != nil {
				t.Fatalf("Entities.Create() = %v", err)
			}
		}
	}
	check.Fatal(t, "Limits.Set()", v.limiter.Limits.Set(ctx, zlimit.Level{Entity: "sales", Resource: "models"}, zlimit.Config{Limits: []zlimit.Limit{zlimit.Monthly("tpm", 100_000, "UTC")}}))
	check.Fatal(t, "Limits.Set()", v.limiter.Limits.Set(ctx, zlimit.Level{Resource: "models"}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("tpm", 10_000)}}))
	use := func(entity string, n int64) { t.Helper(); v.use(t, entity, "models", "tpm", n) }
	use("marketing/ann", 3000)
	use("marketing/ben", 500)
	use("sales/ann", 1000)
	use("alone", 200)
	all := v.screen(t, "/usage?resource=models&entity=*", "marketing", "sales", "alone", "4,700", "3,500", "1,000")
	if strings.Contains(all, "marketing/ann") {
		t.Errorf("the usage of everyone has %s, want the teams alone", all)
	}
	if got := v.headline(t, "/usage?resource=models"); !strings.Contains(got, "4,700") {
		t.Errorf("the headline is %q, want what everyone used", got)
	}
	_, body := v.get(t, "/usage?resource=models")
	for _, name := range []string{"marketing", "sales", "alone"} {
		link := regexp.MustCompile(`href="(/usage\?entity=` + name + `&[^"]*)"`).FindStringSubmatch(body)
		if len(link) < 2 || !strings.Contains(body, `<option value="`+name+`">`) {
			t.Errorf("nothing leads to the usage of %s", name)
			continue
		}
		text := v.screen(t, html.UnescapeString(link[1]), name)
		if name == "sales" && !strings.Contains(text, "of 100k") || !strings.Contains(text, "everyone") {
			t.Errorf("the usage of %s is %s, want its budget, and a way back", name, text)
		}
	}
	if status, file := v.get(t, "/usage.csv?resource=models&limit=tpm"); status != http.StatusOK || !strings.Contains(file, "marketing,3500") || !strings.Contains(file, "(total),4700") {
		t.Errorf("the file of everyone is %d %s", status, file)
	}
}

// TestUsageOfOneTeam shows its children at once: it is everyone.
func TestUsageOfOneTeam(t *testing.T) {
	v := visitCounted(t)
	for _, e := range []zlimit.Entity{{ID: "team"}, {ID: "ann", ParentID: "team", Cascade: true}} {
		if _, err := v.limiter.Entities.Create(t.Context(), e); err != nil {
			t.Fatalf("Entities.Create() = %v", err)
		}
	}
	v.use(t, "ann", "gpt", "rpm", 7)
	v.signIn(t, "viewer") // which looks at buckets
	v.screen(t, "/usage?resource=gpt&limit=rpm", "usage › gpt › team", "7 rpm so far", "ann no budget of its own 7")
}

// TestOneVerdict: an entity that is refused is so on every screen.
func TestOneVerdict(t *testing.T) {
	v := visit(t)
	v.signIn(t, "viewer")
	check.Fatal(t, "acquire()", v.acquire(t, "alice", 1))
	for range 3 {
		if err := v.acquire(t, "alice", 10); err == nil {
			t.Fatal("Acquire() = nil, want a rejection")
		}
	}
	v.screen(t, "/?resource=gpt", "1 entity is refused", "refuses")
	if got := v.headline(t, "/entity?id=alice&resource=gpt"); !strings.HasPrefix(got, "alice is refused by rpm") {
		t.Errorf("the headline of the entity is %q, want that it is refused", got)
	}
	v.screen(t, "/entity?id=alice&resource=gpt", "3 requests were refused")
	if got := v.headline(t, "/entity?id=bob&resource=gpt"); got != "bob has room for gpt" {
		t.Errorf("the headline of another entity is %q", got)
	}
}

// TestRefusedShare: the count and the share of refusals are of one resource.
func TestRefusedShare(t *testing.T) {
	v := visit(t)
	v.signIn(t, "viewer")
	limit := []zlimit.Limit{zlimit.PerMinute("rpm", 1)}
	for range 4 {
		_, _ = v.limiter.Acquire(t.Context(), zlimit.Request{Entity: "alice", Resource: "other", Limits: limit, Consume: zlimit.Amounts{"rpm": 1}})
	}
	for range 4 {
		check.Fatal(t, "acquire()", v.acquire(t, "alice", 1))
	}
	v.screen(t, "/?resource=gpt", "Refused a minute 0 0 % of the calls for this resource")
	v.screen(t, "/?resource=other", "Refused a minute 3 75 % of the calls for this resource")
}

// TestDisabledEntity shows the limits that hold for it otherwise.
func TestDisabledEntity(t *testing.T) {
	v := visit(t)
	v.signIn(t, "viewer")
	check.Fatal(t, "acquire()", v.acquire(t, "alice", 4))
	for _, entity := range []string{"alice", "bob"} {
		if _, err := v.limiter.Limits.Disable(t.Context(), zlimit.Level{Entity: entity, Resource: "gpt"}, nil); err != nil {
			t.Fatalf("Limits.Disable() = %v", err)
		}
		text := v.screen(t, "/entity?id="+entity+"&resource=gpt", entity+" is disabled", "10 a minute", "$5 a month")
		if strings.Contains(text, "No limit says anything") || strings.Contains(text, "has room") {
			t.Errorf("a disabled entity has %s", text)
		}
	}
}

// TestAuditIsTrue: the audit says of switches and resources what happened to them.
func TestAuditIsTrue(t *testing.T) {
	v := visit(t)
	v.signIn(t, "viewer")
	ctx := t.Context()
	check.Fatal(t, "Limits.Set()", v.limiter.Limits.Set(ctx, zlimit.Level{Entity: "key-1", Resource: "gpt"}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 10)}}))
	if _, err := v.limiter.Limits.Disable(ctx, zlimit.Level{Entity: "key-1"}, nil); err != nil {
		t.Fatalf("Limits.Disable() = %v", err)
	}
	if _, err := v.limiter.Limits.LeaveSwitch(ctx, zlimit.Level{Entity: "key-1"}, nil); err != nil {
		t.Fatalf("Limits.LeaveSwitch() = %v", err)
	}
	check.Fatal(t, "Limits.Set()", v.limiter.Limits.Set(ctx, zlimit.Level{Resource: "models"}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 10)}}))
	for _, r := range []zlimit.Resource{{ID: "gpt-4o", Within: "models"}, {ID: "gpt-4o"}} {
		check.Fatal(t, "Resources.Put()", v.limiter.Resources.Put(ctx, r))
	}
	for _, path := range []string{"/audit", "/entity?id=key-1&resource=gpt"} {
		text := v.screen(t, path, "has no switch of its own now")
		if strings.Contains(text, "no limits of its own") || strings.Contains(text, "stored again") {
			t.Errorf("%s says what did not happen: %s", path, text)
		}
	}
	v.screen(t, "/audit", "lies within models now", "lies no longer within models")
}

// TestWhatIfOfThisHour replays the use of the hour under way, and denies none.
func TestWhatIfOfThisHour(t *testing.T) {
	v := visitCounted(t)
	v.signIn(t, "viewer")
	path := "/whatif?resource=gpt&entity=alice&limit=" + url.QueryEscape("rpm=1/min")
	if got := v.headline(t, path); strings.Contains(got, "used none") {
		t.Errorf("without usage the headline is %q, which denies use", got)
	}
	v.use(t, "alice", "gpt", "rpm", 9)
	v.screen(t, path, "alice would have", "1 with use", "of 9, at least")
	under := func(limit string) string { return "/whatif?resource=gpt&entity=alice&limit=" + url.QueryEscape(limit) }
	v.screen(t, under(`rpm=1/h when "* * * * *" x10`), "room in every hour")
	v.screen(t, under("rpm=10/never"), "room in every hour")
	v.screen(t, under("rpm=10/session:5h"), "not against slots or sessions")
	v.screen(t, under("rpm=10 slots/30s"), "not against slots or sessions")
}

// TestWhenLimitsHold says the bound that other processes have.
func TestWhenLimitsHold(t *testing.T) {
	v := visit(t)
	v.signIn(t, "admin")
	_, body := v.get(t, "/limits/edit?resource=gpt")
	before := html.UnescapeString(regexp.MustCompile(`name="before" value="([^"]*)"`).FindStringSubmatch(body)[1])
	form := url.Values{"resource": {"gpt"}, "limits": {"rpm=20/min"}, "before": {before}}
	_, body = v.post(t, "/limits/preview", form)
	if !strings.Contains(body, "within 60 s") {
		t.Error("the preview does not say that limits hold everywhere within 60 s")
	}
	if _, body = v.post(t, "/limits/save", form); !strings.Contains(body, "others within 60 s") {
		t.Error("a saved form does not say that limits hold everywhere within 60 s")
	}
}

// TestManagedLevel: a level of a file of limits is kept by the file, whoever wrote it last.
func TestManagedLevel(t *testing.T) {
	v := visit(t)
	v.signIn(t, "viewer")
	at := zlimit.Level{Resource: "kept"}
	err := v.limiter.Managed.Run(t.Context(), func(ctx context.Context, r *zlimit.ManagedRun) error {
		found, err := v.limiter.Managed.Read(ctx, at)
		if err == nil {
			_, err = r.Replace(ctx, found[0], zlimit.Stored{Level: at, Config: zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 10)}}})
		}
		if err != nil {
			return err
		}
		return r.Record(ctx, zlimit.ManagedSet{Levels: []zlimit.Level{at}})
	})
	check.Fatal(t, "Managed.Run()", err)
	v.screen(t, "/limits", "kept by a file of limits")
	for _, n := range []int64{11, 10} { // there and back
		check.Fatal(t, "Limits.Patch()", v.limiter.Limits.Patch(t.Context(), at, zlimit.PerMinute("rpm", n)))
	}
	v.screen(t, "/limits", "kept by a file of limits")
}

// TestTwoPages of one host do not sign each other out.
func TestTwoPages(t *testing.T) {
	jar := check.Call(cookiejar.New(nil)).Must(t, "cookiejar.New()")
	one, two := visit(t), visit(t)
	one.Jar, two.Jar = jar, jar
	one.signIn(t, "admin")
	two.signIn(t, "viewer")
	if got := one.headline(t, "/limits"); got == "Who is there?" {
		t.Error("another port of the host has signed the visitor out")
	}
	two.post(t, "/signout", nil)
	if got := one.headline(t, "/limits"); got == "Who is there?" {
		t.Error("signing out at another port of the host signs out here")
	}
	if got := two.headline(t, "/limits"); got != "Who is there?" {
		t.Errorf("after signing out the headline is %q", got)
	}
}

// TestWhy: the screen of a time says what refused, what the limit was then, who had set it, and what it is now.
func TestWhy(t *testing.T) {
	handle := newStore(t)
	v := visitStore(t, handle)
	v.signIn(t, "viewer")
	v.screen(t, "/entity?id=alice&resource=gpt", "Why was it refused?")
	ctx := zlimit.ContextWithPrincipal(t.Context(), "ann")
	team := zlimit.Level{Entity: "team", Resource: "gpt"}
	for _, e := range []zlimit.Entity{{ID: "team"}, {ID: "alice", ParentID: "team", Cascade: true}} {
		if _, err := v.limiter.Entities.Create(ctx, e); err != nil {
			t.Fatalf("Entities.Create() = %v", err)
		}
	}
	check.Fatal(t, "Limits.Set()", v.limiter.Limits.Set(ctx, team, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 3)}}))
	before := time.Now().UTC()
	v.screen(t, "/why?id=alice&resource=gpt", "No refusal of alice for gpt is reported around", "No refusals of it are reported", "No usage is counted")

	reporting := check.Call(zlimit.New(ctx, handle, zlimit.WithRejectionReports(zlimit.RejectionReports{}))).Must(t, "zlimit.New()")
	for i := range 6 {
		_, err := reporting.Acquire(ctx, zlimit.Request{Entity: "alice", Resource: "gpt", Consume: zlimit.Amounts{"rpm": 1}})
		if (err == nil) != (i < 3) {
			t.Fatalf("Acquire() = %v in call %d, want rejections after three", err, i+1)
		}
	}
	check.Fatal(t, "Close()", reporting.Close())
	then := time.Now().UTC()
	ask := func(at time.Time) string {
		return "/why?id=alice&resource=gpt&at=" + url.QueryEscape(at.Format("2006-01-02T15:04:05.000"))
	}
	if got := v.headline(t, ask(then)); !strings.HasPrefix(got, "alice was refused at ") || !strings.HasSuffix(got, " by rpm of team") {
		t.Errorf("the headline is %q, want that alice was refused by rpm of team", got)
	}
	text := v.screen(t, ask(then), "refused 3 times in the minute", "The limit was ", "3 a minute", ", set by ann", ", as now.", "refused team 3 times by rpm", "asked the time in question", "changed team rpm = 3 a minute")
	if strings.Contains(text, "by other limits") {
		t.Errorf("one limit refused, and the screen says %s", text)
	}
	pause := func() { time.Sleep(20 * time.Millisecond) }
	pause()
	check.Fatal(t, "Limits.Patch()", v.limiter.Limits.Patch(zlimit.ContextWithPrincipal(ctx, "ben"), team, zlimit.PerMinute("rpm", 20)))
	minute := then.Format("2006-01-02T15:04")
	v.screen(t, ask(then), "The limit was ", "3 a minute ", "rpm 3 → 20 a minute by ben")
	v.screen(t, "/why?id=alice&resource=gpt&at="+minute, "alice was refused at "+minute[len("2006-01-02T"):]+" by rpm")

	for _, at := range []string{minute[len("2006-01-02T"):], strings.Replace(minute, "T", "%20", 1), then.Format("2006-01-02T15:04:05Z")} {
		if got := v.headline(t, "/why?id=alice&resource=gpt&at="+at); !strings.HasPrefix(got, "alice was refused at ") {
			t.Errorf("at %s the headline is %q, want that alice was refused", at, got)
		}
	}

	pause()
	if _, err := v.limiter.Limits.Disable(ctx, zlimit.Level{Entity: "alice"}, nil); err != nil {
		t.Fatalf("Limits.Disable() = %v", err)
	}
	pause()
	off := time.Now().UTC()
	pause()
	if _, err := v.limiter.Limits.LeaveSwitch(ctx, zlimit.Level{Entity: "alice"}, nil); err != nil {
		t.Fatalf("Limits.LeaveSwitch() = %v", err)
	}
	v.screen(t, ask(off), "alice was disabled for gpt at ", "The switch was at its default level , set by ann at ")
	v.screen(t, ask(then), "alice was refused at ")
	if got := v.headline(t, ask(before.Add(-9*time.Minute))); !strings.Contains(got, "The nearest was at") || !strings.HasSuffix(got, ", by rpm of team") {
		t.Errorf("the headline of an earlier time is %q, want the nearest refusal", got)
	}
	if got := v.headline(t, ask(before.Add(-2*time.Hour))); !strings.HasPrefix(got, "No limits of alice for gpt were stored at ") {
		t.Errorf("the headline of a time without limits is %q", got)
	}
	if status, _ := v.get(t, "/why?id=alice&resource=gpt&at="+before.Add(time.Hour).Format("15:04")); status != http.StatusOK {
		t.Errorf("a clock time that is still to come today is %d, want that of yesterday", status)
	}
	for _, path := range []string{"/why", "/why?id=alice&at=noon", "/why?id=alice&at=2100-01-01T00:00", "/why?id=alice&at=0001-01-01T00:00", "/why?id=alice&within=2h"} {
		if status, _ := v.get(t, path); status != http.StatusBadRequest {
			t.Errorf("%s is %d, want 400", path, status)
		}
	}
}

// TestAllResources adds up what entities used of every resource. A request that counts at two of them, or at a parent, is one.
func TestAllResources(t *testing.T) {
	v := visitCounted(t)
	v.signIn(t, "viewer")
	ctx := t.Context()
	minute := []zlimit.Limit{zlimit.PerMinute("tpm", 100_000)}
	for _, of := range [][2]string{{"all", ""}, {"chat", "all"}, {"search", ""}} {
		check.Fatal(t, "Limits.Set()", v.limiter.Limits.Set(ctx, zlimit.Level{Resource: of[0]}, zlimit.Config{Limits: minute, Within: of[1]}))
	}
	for _, e := range []zlimit.Entity{{ID: "team"}, {ID: "ann", ParentID: "team", Cascade: true}, {ID: "ben", ParentID: "team", Cascade: true}} {
		if _, err := v.limiter.Entities.Create(ctx, e); err != nil {
			t.Fatalf("Entities.Create() = %v", err)
		}
	}
	v.use(t, "ann", "chat", "tpm", 300)
	v.use(t, "ben", "search", "tpm", 40)
	v.use(t, "alone", "all", "tpm", 5)
	v.counted(t, "team", "all", "tpm", 300)
	v.counted(t, "team", "search", "tpm", 40)
	v.screen(t, "/usage?resource=*&limit=tpm&entity=*", "usage › all resources", "345 tpm of all resources", "team budgets are of one resource 340", "alone budgets are of one resource 5")
	v.screen(t, "/usage?resource=*&limit=tpm&entity=team", "340 tpm of all resources", "ann budgets are of one resource 300", "ben budgets are of one resource 40")
	v.screen(t, "/top?resource=*&limit=tpm", "all resources all chat gpt search", "ann used most of all resources: 87 % of tpm", "ben 12 %", "alone 1.4 %")
	v.screen(t, "/top?resource=chat&limit=tpm", "ann used most of chat: 100 % of tpm")
	if status, file := v.get(t, "/usage.csv?resource=*&limit=tpm"); status != http.StatusOK || !strings.Contains(file, "UTC,(all),tpm,team,340") || !strings.Contains(file, "(total),345") {
		t.Errorf("the file of all resources is %d %s", status, file)
	}
	if status, _ := v.get(t, "/?resource=*"); status != http.StatusBadRequest {
		t.Errorf("buckets of all resources are %d, want 400: each is of one", status)
	}
}

// TestRaisedBudget raises a budget in use: until the next period, the screens have the amount with which this one began.
func TestRaisedBudget(t *testing.T) {
	v := visitCounted(t)
	v.signIn(t, "viewer")
	set := func(dollars int64) {
		t.Helper()
		config := zlimit.Config{Limits: []zlimit.Limit{zlimit.USD("usd", dollars, zlimit.PerMonth)}}
		check.Fatal(t, "Limits.Set()", v.limiter.Limits.Set(t.Context(), zlimit.Level{Entity: "raised", Resource: "pay"}, config))
		time.Sleep(5 * time.Millisecond) // changes have different times
	}
	set(200)
	v.use(t, "raised", "pay", "usd", 150_000_000_000)
	set(1000)
	for range 2 { // before a request brings the bucket in line, and after it
		v.screen(t, "/entity?id=raised&resource=pay", "of $200", "raised to $1,000, which holds from")
		if text := v.headline(t, "/usage?resource=pay&limit=usd&entity=raised"); !strings.Contains(text, "of $200") {
			t.Errorf("the headline of its usage is %q, want the budget of this month", text)
		}
		if text := v.headline(t, "/usage?resource=pay&limit=usd"); !strings.Contains(text, "of $200 in 1 budget") {
			t.Errorf("the headline of the usage is %q, want the budget of this month", text)
		}
		v.use(t, "raised", "pay", "usd", 1_000_000_000)
	}
}
