package aggregator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/compare"
	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
	"github.com/zlimit/zlimit-go/internal/store"
)

// record is the JSON of a record of the stream, as Lambda passes it.
func record(c store.Change) map[string]any {
	image := func(item expr.Item) map[string]any {
		m := map[string]any{}
		for _, a := range item {
			m[a.Name] = typed(a.Value)
		}
		return m
	}
	r := map[string]any{
		"eventSource": "aws:dynamodb", "eventVersion": "1.1", "awsRegion": "us-east-1",
		"eventID": "1", "eventName": "MODIFY", "eventSourceARN": "arn:aws:dynamodb:us-east-1:123456789012:table/limits/stream/2026-03-01T12:00:00.000",
	}
	change := map[string]any{
		"ApproximateCreationDateTime": c.At.Unix(), "StreamViewType": "NEW_AND_OLD_IMAGES", "SizeBytes": 1,
		"Keys":           map[string]any{"PK": map[string]any{"S": c.Key.PK}, "SK": map[string]any{"S": c.Key.SK}},
		"SequenceNumber": strings.TrimLeft(string(c.Sequence), "0"),
	}
	if c.Old != nil {
		change["OldImage"] = image(c.Old)
	}
	if c.New != nil {
		change["NewImage"] = image(c.New)
	}
	if c.Expired {
		r["userIdentity"] = map[string]any{"type": "Service", "principalId": "dynamodb.amazonaws.com"}
	}
	switch {
	case c.Old == nil:
		r["eventName"] = "INSERT"
	case c.New == nil:
		r["eventName"] = "REMOVE"
	}
	r["dynamodb"] = change
	return r
}

// typed is the JSON of a value, with its type.
func typed(v expr.Value) map[string]any {
	switch v.Kind() {
	case expr.KindN:
		return map[string]any{"N": v.Number()}
	case expr.KindBool:
		return map[string]any{"BOOL": v.True()}
	case expr.KindNull:
		return map[string]any{"NULL": true}
	case expr.KindSS:
		return map[string]any{"SS": plain(v)}
	case expr.KindL:
		list := []any{}
		for _, e := range v.Elements() {
			list = append(list, typed(e.Value))
		}
		return map[string]any{"L": list}
	case expr.KindM:
		m := map[string]any{}
		for _, e := range v.Elements() {
			m[e.Name] = typed(e.Value)
		}
		return map[string]any{"M": m}
	default:
		return map[string]any{"S": v.Text()}
	}
}

// eventOf is the JSON of an event.
func eventOf(tb testing.TB, changes ...store.Change) []byte {
	tb.Helper()
	records := []any{}
	for _, c := range changes {
		records = append(records, record(c))
	}
	return check.Call(json.Marshal(map[string]any{"Records": records})).Must(tb, "json.Marshal()")
}

func TestDecodeRecord(t *testing.T) {
	want := store.Change{
		Key: store.Key{PK: "p", SK: "s"}, Sequence: sequence(4711), Stream: "2026-03-01T12:00:00.000", At: noon, Expired: true,
		Old: expr.Item{
			{Name: "s", Value: expr.S("text")},
			{Name: "n", Value: expr.Decimal(-12_500, 3)},
			{Name: "b", Value: expr.Bool(true)},
			{Name: "x", Value: expr.Null()},
			{Name: "ss", Value: expr.Strings("a", "b")},
			{Name: "l", Value: expr.List(expr.N(1), expr.Map(expr.Item{{Name: "deep", Value: expr.N(2)}}))},
		},
	}
	var event events.DynamoDBEvent
	check.Fatal(t, "json.Unmarshal()", json.Unmarshal(eventOf(t, want), &event))
	r := &event.Records[0]
	r.Change.OldImage["bytes"] = events.NewBinaryAttribute([]byte("x"))
	r.Change.OldImage["numbers"] = events.NewNumberSetAttribute([]string{"1"})
	got, err := decodeRecord(r)
	if err != nil || !got.Old.Equal(want.Old) || got.New != nil {
		t.Fatalf("decodeRecord() = %v, %v; want %v", got, err, want)
	}
	got.Old, want.Old = nil, nil
	compare.Equal(t, "decodeRecord()", want, got)
	r.UserIdentity.Type = "User"
	if got, _ := decodeRecord(r); got.Expired {
		t.Error("decodeRecord() takes a deletion by a user for an expiry")
	}
	r.Change.NewImage = map[string]events.DynamoDBAttributeValue{
		"l": events.NewListAttribute([]events.DynamoDBAttributeValue{events.NewNumberAttribute("one")}),
	}
	if _, err := decodeRecord(r); !errors.Is(err, expr.ErrNumber) {
		t.Errorf("decodeRecord() = %v, want %v", err, expr.ErrNumber)
	}
}

// TestHandler leaves out what cannot be read, and counts the rest.
func TestHandler(t *testing.T) {
	a := newAggregator(t, newMemory(t))
	var event events.DynamoDBEvent
	check.Fatal(t, "json.Unmarshal()", json.Unmarshal(eventOf(t, busy(3)...), &event))
	event.Records[1].Change.NewImage["b_rpm_tc"] = events.NewNumberAttribute("one")
	response, err := Handler(a)(t.Context(), event)
	if err != nil || len(response.BatchItemFailures) != 0 {
		t.Errorf("Handler() = %v, %v", response, err)
	}
	compare.Equal(t, "snapshots", figuresOf(figures{"rpm": "2", "tpm": "5", "total_events": "2"}), snapshotsOf(t, a, "e"))
}

// runtime is Lambda's runtime API: https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html.
type runtime struct {
	calls   chan call
	answers chan answer
	table   string // whose stream calls are of
}

// A call is an invocation of the function.
type call struct {
	event []byte
	time  time.Duration // until its deadline
}

// An answer is what the function says of a call.
type answer struct {
	kind string // response or error
	body string
	late bool
}

// serve serves the runtime API for one function.
func (r *runtime) serve(t *testing.T) string {
	var mu sync.Mutex
	deadlines := map[string]time.Time{}
	n := 0
	mux := http.NewServeMux()
	mux.HandleFunc("GET /2018-06-01/runtime/invocation/next", func(w http.ResponseWriter, req *http.Request) {
		select {
		case c := <-r.calls:
			mu.Lock()
			defer mu.Unlock()
			n++
			id := strconv.Itoa(n)
			deadlines[id] = time.Now().Add(c.time)
			w.Header().Set("Lambda-Runtime-Aws-Request-Id", id)
			w.Header().Set("Lambda-Runtime-Deadline-Ms", strconv.FormatInt(deadlines[id].UnixMilli(), 10))
			w.Header().Set("Lambda-Runtime-Invoked-Function-Arn", "arn:aws:lambda:us-east-1:123456789012:function:aggregator")
			if _, err := w.Write(c.event); err != nil {
				t.Errorf("Write() = %v", err)
			}
		case <-req.Context().Done():
		}
	})
	mux.HandleFunc("POST /2018-06-01/runtime/invocation/{id}/{kind}", func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		check.Error(t, "io.ReadAll()", err)
		mu.Lock()
		late := time.Now().After(deadlines[req.PathValue("id")])
		mu.Unlock()
		w.WriteHeader(http.StatusAccepted)
		r.answers <- answer{req.PathValue("kind"), string(body), late}
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// invoke calls the function.
func (r *runtime) invoke(c call) answer {
	c.event = bytes.ReplaceAll(c.event, []byte(":table/limits/"), []byte(":table/"+r.table+"/"))
	r.calls <- c
	return <-r.answers
}

// failures returns the changes that a response names.
func (a answer) failures(t *testing.T) []string {
	t.Helper()
	var response struct {
		BatchItemFailures []struct{ ItemIdentifier string } `json:"batchItemFailures"`
	}
	if err := json.Unmarshal([]byte(a.body), &response); err != nil || a.kind != "response" || response.BatchItemFailures == nil {
		t.Fatalf("answer = %+v, %v; want a response with batchItemFailures", a, err)
	}
	failures := []string{}
	for _, f := range response.BatchItemFailures {
		failures = append(failures, f.ItemIdentifier)
	}
	return failures
}

// bootstrap builds the program of the function.
func bootstrap(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "bootstrap")
	if out, err := exec.Command("go", "build", "-ldflags=-s -w", "-o", program, "github.com/zlimit/zlimit-go/cmd/zlimit").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return program
}

// TestLambda runs the program of the function as Lambda does, against an engine.
func TestLambda(t *testing.T) {
	s, table, _ := newTable(t)
	engine := enginetest.Start(t)
	faults := enginetest.NewFaults(engine.Transport())
	target := check.Call(url.Parse(engine.Endpoint())).Must(t, "url.Parse()")
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:      func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:    faults,
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	})
	t.Cleanup(proxy.Close)
	r := &runtime{make(chan call), make(chan answer), table}
	var stderr bytes.Buffer
	cmd := exec.Command(bootstrap(t))
	cmd.Stderr = &stderr
	cmd.Env = append(os.Environ(), "AWS_LAMBDA_RUNTIME_API="+r.serve(t), "ZLIMIT_TABLE="+table, "AWS_REGION=us-east-1",
		"AWS_ENDPOINT_URL_DYNAMODB="+proxy.URL, "AWS_ACCESS_KEY_ID=id", "AWS_SECRET_ACCESS_KEY=secret", "ZLIMIT_RETENTION_MONTHLY=100h")
	check.Fatal(t, "Start()", cmd.Start())
	t.Cleanup(func() {
		check.Error(t, "Process.Kill()", cmd.Process.Kill())
		_ = cmd.Wait() // killed
		if t.Failed() {
			t.Logf("the program says:\n%s", stderr.String())
		}
	})
	a := newAggregator(t, s)
	changes := busy(10)
	other := shard(0)
	other.Entity = "other"
	of := store.Change{Key: keyOf(other), Sequence: sequence(100), At: noon, New: item(other, map[string]int64{"rpm": 1000})}
	mixed := []store.Change{changes[4], of, changes[5]}
	hit := func(text string) func(enginetest.Call) bool {
		return func(c enginetest.Call) bool { return strings.Contains(string(c.Body), text) }
	}

	answered := r.invoke(call{eventOf(t, changes[:4]...), time.Minute})
	if got := answered.failures(t); len(got) != 0 {
		t.Errorf("failures of a batch that works = %q", got)
	}
	faults.Inject(enginetest.Fault{Kind: enginetest.AccessDenied, Operation: "UpdateItem", When: hit("ENTITY#other")})
	answered = r.invoke(call{eventOf(t, mixed...), time.Minute})
	compare.Equal(t, "failures where one entity cannot be written", []string{"100"}, answered.failures(t))
	faults.Clear()
	answered = r.invoke(call{eventOf(t, mixed[1:]...), time.Minute})
	if got := answered.failures(t); len(got) != 0 {
		t.Errorf("failures when it comes again = %q", got)
	}
	faults.Inject(enginetest.Fault{Kind: enginetest.Hang, Operation: "UpdateItem"})
	answered = r.invoke(call{eventOf(t, changes[6:]...), 2 * time.Second})
	if diff := cmp.Diff([]string{"7"}, answered.failures(t)); diff != "" || answered.late {
		t.Errorf("failures when the table hangs, late %t (-want +got):\n%s", answered.late, diff)
	}
	faults.Clear()
	if answered = r.invoke(call{[]byte(`{"Records": "none"}`), time.Minute}); answered.kind != "error" {
		t.Errorf("answer to what is no event = %+v, want an error", answered)
	}
	answered = r.invoke(call{eventOf(t, changes...), time.Minute})
	if got := answered.failures(t); len(got) != 0 {
		t.Errorf("failures of all changes = %q", got)
	}
	compare.Equal(t, "snapshots", figuresOf(figures{"rpm": "10", "tpm": "25", "total_events": "10"}), snapshotsOf(t, a, "e"))
	compare.Equal(t, "snapshots of the other entity", figuresOf(figures{"rpm": "1", "total_events": "1"}), snapshotsOf(t, a, "other"))
}

// TestInvalidEnvironment ends the program when it is not configured.
func TestInvalidEnvironment(t *testing.T) {
	for name, c := range map[string]struct {
		env  map[string]string
		want string
	}{
		"no table":                   {nil, "ZLIMIT_TABLE is not set"},
		"a retention that is none":   {map[string]string{"ZLIMIT_TABLE": "t", "ZLIMIT_RETENTION_DAILY": "long"}, "ZLIMIT_RETENTION_DAILY: "},
		"a retention too short":      {map[string]string{"ZLIMIT_TABLE": "t", "ZLIMIT_RETENTION_HOURLY": "1h"}, "at least 48h"},
		"an archive that is no S3":   {map[string]string{"ZLIMIT_TABLE": "t", "ZLIMIT_ARCHIVE": "/tmp"}, "s3://BUCKET/PREFIX"},
		"an archive without a place": {map[string]string{"ZLIMIT_TABLE": "t", "ZLIMIT_ARCHIVE": "s3:///x"}, "s3://BUCKET/PREFIX"},
	} {
		err := Serve(context.Background(), func(key string) string { return c.env[key] }, slog.New(slog.DiscardHandler))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: Serve() = %v, want %q in it", name, err, c.want)
		}
	}
}

// TestEventsOfOthers calls the function with events of other sources. They are an error, and count nothing.
func TestEventsOfOthers(t *testing.T) {
	for want, alter := range map[string]func(all []map[string]any) any{
		"has no records": func([]map[string]any) any { return map[string]any{"hello": "world"} },
		"record 1 of 1: it is of aws:sqs": func([]map[string]any) any {
			return map[string]any{"Records": []any{map[string]any{"eventSource": "aws:sqs", "body": "x"}}}
		},
		"not of one of table limits": func(all []map[string]any) any {
			all[2]["eventSourceARN"] = "arn:aws:dynamodb:us-east-1:123456789012:table/limits2/stream/1"
			return nil
		},
		"record 3 of 3: a change of kind MODIFY has no old new image": func(all []map[string]any) any {
			change := all[2]["dynamodb"].(map[string]any)
			delete(change, "OldImage")
			delete(change, "NewImage")
			return nil
		},
		"MODIFY has no old image": func(all []map[string]any) any { delete(all[2]["dynamodb"].(map[string]any), "OldImage"); return nil },
		"the view of the stream is NEW_IMAGE": func(all []map[string]any) any {
			all[2]["dynamodb"].(map[string]any)["StreamViewType"] = "NEW_IMAGE"
			return nil
		},
	} {
		log := &bytes.Buffer{}
		a := newAggregator(t, newMemory(t), ofTable("limits"), WithLogger(slog.New(slog.NewJSONHandler(log, nil))))
		var all []map[string]any
		for _, c := range busy(3) {
			all = append(all, record(c))
		}
		var event any = map[string]any{"Records": all}
		if other := alter(all); other != nil {
			event = other
		}
		text := check.Call(json.Marshal(event)).Must(t, "json.Marshal()")
		var decoded events.DynamoDBEvent
		check.Fatal(t, "json.Unmarshal()", json.Unmarshal(text, &decoded))
		if _, err := Handler(a)(t.Context(), decoded); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: Handler() = %v", want, err)
		}
		if !strings.Contains(log.String(), `"level":"ERROR"`) || len(snapshotsOf(t, a, "e")) > 0 {
			t.Errorf("%s: logged %q, and usage %v", want, log, snapshotsOf(t, a, "e"))
		}
	}
}
