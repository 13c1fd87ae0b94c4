package customresource_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/cfn"

	"github.com/zlimit/zlimit-go/internal/deploy/customresource"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
	_ "github.com/zlimit/zlimit-go/zlimit/sqlite"
)

// A testbed is a store with the namespace default, and a CloudFormation that gets answers.
type testbed struct {
	*testing.T
	function customresource.Function
	open     func(opts ...zlimit.Option) (*zlimit.RateLimiter, error)
	url      string
	status   int            // of the reply to an answer
	answers  []cfn.Response // in the order in which they came
}

func newTestbed(t *testing.T) *testbed {
	t.Helper()
	w := &testbed{T: t, status: http.StatusOK}
	dsn := "sqlite:" + filepath.Join(t.TempDir(), "limits.db")
	w.open = func(opts ...zlimit.Option) (*zlimit.RateLimiter, error) {
		return zlimit.Open(t.Context(), dsn, opts...)
	}
	l := w.limiter("default", zlimit.WithSetup())
	check.Fatal(t, "Close()", l.Close())
	w.function = customresource.Function{
		Table: "limits", Logger: slog.New(slog.DiscardHandler),
		Open: func(ctx context.Context, opts ...zlimit.Option) (*zlimit.RateLimiter, error) {
			return zlimit.Open(ctx, dsn, opts...)
		},
	}
	server := httptest.NewServer(http.HandlerFunc(func(reply http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var answer cfn.Response
		if err == nil {
			err = json.Unmarshal(body, &answer)
		}
		if err != nil || r.Method != http.MethodPut || r.Header.Get("Content-Type") != "" || len(body) > 4096 {
			t.Errorf("the answer is %s %s, %v", r.Method, body, err)
		}
		reply.WriteHeader(w.status)
		if w.status == http.StatusOK {
			w.answers = append(w.answers, answer)
		}
	}))
	t.Cleanup(server.Close)
	w.url = server.URL + "/answer?signature=1"
	return w
}

func (w *testbed) limiter(namespace string, opts ...zlimit.Option) *zlimit.RateLimiter {
	w.Helper()
	return check.Call(w.open(append(opts, zlimit.WithNamespace(namespace))...)).Must(w, "open()")
}

const stackID = "arn:aws:cloudformation:eu-central-1:123456789012:stack/app/0a1b"

// send calls the function with an event as CloudFormation sends it, and returns its answer.
func (w *testbed) send(ctx context.Context, kind cfn.RequestType, id string, properties map[string]any) cfn.Response {
	w.Helper()
	text := check.Call(json.Marshal(cfn.Event{
		RequestType: kind, RequestID: "request-1", ResponseURL: w.url, ResourceType: "Custom::ZlimitLimits", PhysicalResourceID: id,
		LogicalResourceID: "Limits", StackID: stackID, ResourceProperties: properties,
	})).Must(w, "json.Marshal()")
	var event cfn.Event
	check.Fatal(w, "json.Unmarshal()", json.Unmarshal(text, &event))
	before := len(w.answers)
	if _, err := w.function.Handler()(ctx, event); err != nil {
		w.Fatalf("%s: %v", kind, err)
	}
	if len(w.answers) != before+1 {
		w.Fatalf("%s: %d answers", kind, len(w.answers)-before)
	}
	a := w.answers[before]
	if a.RequestID != "request-1" || a.StackID != stackID || a.LogicalResourceID != "Limits" || a.PhysicalResourceID == "" {
		w.Errorf("%s: the answer is for %+v", kind, a)
	}
	return a
}

// expect sends an event that succeeds.
func (w *testbed) expect(kind cfn.RequestType, id string, properties map[string]any) cfn.Response {
	w.Helper()
	a := w.send(w.Context(), kind, id, properties)
	if a.Status != cfn.StatusSuccess || a.Reason != "" {
		w.Errorf("%s: the answer is %+v", kind, a)
	}
	return a
}

// limits returns what is stored for a resource in a namespace, "" for nothing.
func (w *testbed) limits(namespace, resource string) string {
	w.Helper()
	l := w.limiter(namespace)
	stored, err := l.Limits.Get(w.Context(), zlimit.Level{Resource: resource})
	check.Fatal(w, "Close()", errors.Join(err, l.Close()))
	var texts []string
	for _, limit := range stored.Limits {
		texts = append(texts, fmt.Sprintf("%s=%d", limit.Name, limit.Capacity))
	}
	return strings.Join(texts, " ")
}

// policy returns what is stored for a resource to happen in an outage.
func (w *testbed) policy(namespace, resource string) zlimit.FailurePolicy {
	w.Helper()
	l := w.limiter(namespace)
	stored, err := l.Limits.Get(w.Context(), zlimit.Level{Resource: resource})
	check.Fatal(w, "Close()", errors.Join(err, l.Close()))
	return stored.OnUnavailable
}

// of returns the properties of a resource with one limit, as CloudFormation passes them.
func of(capacity string, more ...string) map[string]any {
	p := map[string]any{"ServiceToken": "arn:aws:lambda:…", "Limits": map[string]any{
		"resources": map[string]any{"gpt-4o": map[string]any{"limits": map[string]any{"rpm": map[string]any{"rate": capacity + "/min", "burst": capacity}}, "on_unavailable": "allow"}},
		"system":    map[string]any{"limits": map[string]any{"rpm": "10/min"}, "audit_retention_days": "30"},
	}}
	for i := 0; i < len(more); i += 2 {
		if more[i] == "namespace" {
			p["Limits"].(map[string]any)["namespace"] = more[i+1]
			continue
		}
		p[more[i]] = more[i+1]
	}
	return p
}

// TestLife creates, changes and deletes a resource: its physical ID stays, and its limits stay when it goes.
func TestLife(t *testing.T) {
	w := newTestbed(t)
	a := w.expect(cfn.RequestCreate, "", of("500"))
	if a.PhysicalResourceID != "limits/default" || fmt.Sprint(a.Data) != "map[Changes:2 Levels:2 Namespace:default]" || w.limits("default", "gpt-4o") != "rpm=500" {
		t.Errorf("created: %+v, %s", a, w.limits("default", "gpt-4o"))
	}
	if got := w.policy("default", "gpt-4o"); got != zlimit.PolicyAllow {
		t.Errorf("created: in an outage the resource %v, want %v", got, zlimit.PolicyAllow)
	}
	if again := w.expect(cfn.RequestCreate, "", of("500")); again.PhysicalResourceID != a.PhysicalResourceID || fmt.Sprint(again.Data["Changes"]) != "0" {
		t.Errorf("created again: %+v", again)
	}
	text := map[string]any{"Limits": "resources: { gpt-4o: { limits: { rpm: 700/min } } }"}
	if b := w.expect(cfn.RequestUpdate, a.PhysicalResourceID, text); b.PhysicalResourceID != a.PhysicalResourceID || w.limits("default", "gpt-4o") != "rpm=700" {
		t.Errorf("updated: %+v, %s", b, w.limits("default", "gpt-4o"))
	}
	if got := w.policy("default", "gpt-4o"); got != zlimit.PolicyInherit {
		t.Errorf("updated: in an outage the resource %v, want %v", got, zlimit.PolicyInherit)
	}
	if d := w.expect(cfn.RequestDelete, a.PhysicalResourceID, text); d.PhysicalResourceID != a.PhysicalResourceID || w.limits("default", "gpt-4o") != "rpm=700" {
		t.Errorf("deleted: %+v, and the limits are %q", d, w.limits("default", "gpt-4o"))
	}
	text["OnDelete"] = "remove"
	w.expect(cfn.RequestDelete, a.PhysicalResourceID, text)
	w.expect(cfn.RequestDelete, a.PhysicalResourceID, text) // it may come twice
	if got := w.limits("default", "gpt-4o"); got != "" {
		t.Errorf("deleted with its limits, which are %q", got)
	}
}

// TestNamespaces moves a resource to another namespace, which has another physical ID: CloudFormation then deletes the old one.
func TestNamespaces(t *testing.T) {
	w := newTestbed(t)
	old := w.expect(cfn.RequestCreate, "", of("500", "OnDelete", "remove"))
	refused := w.send(t.Context(), cfn.RequestUpdate, old.PhysicalResourceID, of("500", "namespace", "staging"))
	if refused.Status != cfn.StatusFailed || !strings.Contains(refused.Reason, `namespace "staging" is not registered; CreateNamespace`) || refused.PhysicalResourceID != old.PhysicalResourceID {
		t.Errorf("an update to a namespace that is none: %+v", refused)
	}
	now := w.expect(cfn.RequestUpdate, old.PhysicalResourceID, of("500", "namespace", "staging", "CreateNamespace", "true"))
	w.expect(cfn.RequestDelete, old.PhysicalResourceID, of("500", "OnDelete", "remove"))
	if now.PhysicalResourceID != "limits/staging" || w.limits("staging", "gpt-4o") != "rpm=500" || w.limits("default", "gpt-4o") != "" {
		t.Errorf("moved: %+v, %q and %q", now, w.limits("staging", "gpt-4o"), w.limits("default", "gpt-4o"))
	}
	w.expect(cfn.RequestDelete, "limits/nowhere", of("1", "OnDelete", "remove"))
	if a := w.send(t.Context(), cfn.RequestDelete, "others/default", of("1", "OnDelete", "remove")); a.Status != cfn.StatusFailed || !strings.Contains(a.Reason, "not of table limits") {
		t.Errorf("deleting the resource of another table: %+v", a)
	}
}

// TestFailures answers FAILED with all that is wrong. A creation that has changed nothing removes nothing when it is undone.
func TestFailures(t *testing.T) {
	w := newTestbed(t)
	w.expect(cfn.RequestCreate, "", of("500"))
	for name, bad := range map[string]struct {
		properties map[string]any
		want       []string
	}{
		"no limits": {map[string]any{}, []string{"property Limits is missing"}},
		"all at once": {
			map[string]any{"Limits": map[string]any{"resources": map[string]any{"a b": map[string]any{"limits": map[string]any{"rpm": "5"}}}}, "OnDelete": "drop", "CreateNamespace": "yes", "Colour": "red"},
			[]string{"property Colour: there is no such", `CreateNamespace is "yes"`, `OnDelete is "drop"`, "Limits: resource a b", `"5": must be CAPACITY`},
		},
		"a text with a line": {map[string]any{"Limits": "system:\n  limits: { rpm: 5 }\n"}, []string{"Limits.Limits:2:18: system: limit rpm"}},
		"a list":             {map[string]any{"Limits": []any{"a"}}, []string{"must be a mapping, or a text"}},
		"no such namespace":  {of("1", "namespace", "nowhere"), []string{`namespace "nowhere" is not registered`}},
		"much": {map[string]any{"Limits": map[string]any{"resources": func() map[string]any {
			all := map[string]any{}
			for i := range 1000 {
				all[fmt.Sprint("é ", i)] = map[string]any{}
			}
			return all
		}()}}, []string{" …"}},
	} {
		a := w.send(t.Context(), cfn.RequestCreate, "", bad.properties)
		if a.Status != cfn.StatusFailed {
			t.Errorf("%s: %+v", name, a)
		}
		for _, want := range bad.want {
			if !strings.Contains(a.Reason, want) {
				t.Errorf("%s: the reason is %q, want %q in it", name, a.Reason, want)
			}
		}
		bad.properties["OnDelete"] = "remove"
		w.expect(cfn.RequestDelete, a.PhysicalResourceID, bad.properties)
	}
	if got := w.limits("default", "gpt-4o"); got != "rpm=500" {
		t.Errorf("failures left limits %q", got)
	}
	if a := w.send(t.Context(), "Move", "limits/default", of("1")); a.Status != cfn.StatusFailed || !strings.Contains(a.Reason, `"Move" is none of`) {
		t.Errorf("a request of another type: %+v", a)
	}
	if a := w.send(t.Context(), cfn.RequestDelete, "limits/default", of("1", "OnDelete", "drop")); a.Status != cfn.StatusFailed {
		t.Errorf("deleting with a bad OnDelete: %+v", a)
	}
}

// In TestTakeOver, there is a second resource for a namespace. It is refused until it says that it takes the levels over. After
// that, deleting the first one removes nothing.
func TestTakeOver(t *testing.T) {
	w := newTestbed(t)
	first := w.expect(cfn.RequestCreate, "", of("500"))
	other := strings.Replace(stackID, ":stack/app/", ":stack/other/", 1)
	send := func(kind cfn.RequestType, id string, properties map[string]any) (string, error) {
		id, _, err := w.function.Handle(t.Context(), cfn.Event{RequestType: kind, StackID: other, LogicalResourceID: "Limits", PhysicalResourceID: id, ResourceProperties: properties})
		return id, err
	}
	id, err := send(cfn.RequestCreate, "", of("9"))
	if err == nil || !strings.Contains(err.Error(), "managed by cloudformation:app/Limits, and not by cloudformation:other/Limits") || !strings.Contains(err.Error(), "TakeOver: true") {
		t.Errorf("a second resource: %v, want who manages the namespace", err)
	}
	if _, err := send(cfn.RequestDelete, id, of("9", "OnDelete", "remove")); err != nil || w.limits("default", "gpt-4o") != "rpm=500" {
		t.Errorf("rolled back: %v, and limits %q", err, w.limits("default", "gpt-4o"))
	}
	if _, err := send(cfn.RequestCreate, "", of("9", "TakeOver", "true")); err != nil || w.limits("default", "gpt-4o") != "rpm=9" {
		t.Errorf("taking over: %v, and limits %q", err, w.limits("default", "gpt-4o"))
	}
	w.expect(cfn.RequestDelete, first.PhysicalResourceID, of("500", "OnDelete", "remove"))
	if got := w.limits("default", "gpt-4o"); got != "rpm=9" {
		t.Errorf("deleting the resource of before left limits %q, want those of the new manager", got)
	}
}

// TestLocked waits while another program applies, and says who does when the time ends.
func TestLocked(t *testing.T) {
	w := newTestbed(t)
	l := w.limiter("default", zlimit.WithPrincipal("alice"))
	began, free, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- l.Managed.Run(context.Background(), func(context.Context, *zlimit.ManagedRun) error {
			close(began)
			<-free
			return nil
		})
	}()
	<-began
	var a cfn.Response
	for patience := 200 * time.Millisecond; patience < time.Minute && !strings.Contains(a.Reason, "by alice since"); patience *= 5 { // a busy machine may not come to ask
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		a = w.send(ctx, cfn.RequestCreate, "", of("500"))
		cancel()
	}
	if a.Status != cfn.StatusFailed || !strings.Contains(a.Reason, "by alice since") || w.limits("default", "gpt-4o") != "" {
		t.Errorf("while another program applies: %+v", a)
	}
	w.expect(cfn.RequestDelete, a.PhysicalResourceID, of("500", "OnDelete", "remove")) // in spite of the lock, as there is nothing to remove
	time.AfterFunc(300*time.Millisecond, func() { close(free) })
	w.expect(cfn.RequestCreate, "", of("500"))
	check.Error(t, "Close()", errors.Join(<-ended, l.Close()))
}

// TestUnanswered is called again when its answer is not taken.
func TestUnanswered(t *testing.T) {
	w := newTestbed(t)
	w.status = http.StatusServiceUnavailable
	event := cfn.Event{RequestType: cfn.RequestCreate, RequestID: "1", ResponseURL: w.url, StackID: stackID, LogicalResourceID: "Limits", ResourceProperties: of("500")}
	if _, err := w.function.Handler()(t.Context(), event); err == nil {
		t.Error("Handler() = nil though the answer was not taken")
	}
	w.status = http.StatusOK
	w.expect(cfn.RequestCreate, "", of("500"))
}

// TestPrincipal names the stack and the resource in audit events.
func TestPrincipal(t *testing.T) {
	w := newTestbed(t)
	w.expect(cfn.RequestCreate, "", of("500"))
	l := w.limiter("default")
	for event, err := range l.Audit.Events(t.Context(), zlimit.AuditResource("gpt-4o"), zlimit.AuditQuery{}) {
		if err != nil || event.Principal != "cloudformation:app/Limits" {
			t.Errorf("event %+v, %v", event, err)
		}
	}
	check.Error(t, "Close()", l.Close())
}
