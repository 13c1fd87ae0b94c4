package stack_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/cfn"
	"github.com/aws/aws-lambda-go/events"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
	"github.com/zlimit/zlimit-go/internal/proof/soak"
	"github.com/zlimit/zlimit-go/stack"
	"github.com/zlimit/zlimit-go/zlimit"
)

// functionArch is the architecture of the function that tests run: that of this machine, for which everything is compiled already, and in
// the long form that of a release.
var functionArch = soak.Pick(runtime.GOARCH, "arm64")

// buildFunction builds the command for Linux on functionArch, and returns the program.
func buildFunction(t *testing.T) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "zlimit")
	args := soak.Pick(nil, []string{"-trimpath"})
	args = append([]string{"build", "-ldflags=-s -w", "-tags", "lambda.norpc", "-o", path}, args...)
	cmd := exec.CommandContext(t.Context(), "go", append(args, "../cmd/zlimit")...)
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+functionArch)
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	return check.Call(os.ReadFile(path)).Must(t, "os.ReadFile()")
}

// A lambdaService is the Runtime API of Lambda, which hands events to one function and takes its answers.
type lambdaService struct {
	*httptest.Server
	events  chan string
	answers chan string // the path of each behind "/", and what was posted there
}

func newLambdaService(t *testing.T) *lambdaService {
	t.Helper()
	l := &lambdaService{events: make(chan string, 1), answers: make(chan string, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	n := 0
	l.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path, ok := strings.CutPrefix(r.URL.Path, "/2018-06-01/runtime/")
		switch {
		case !ok:
			http.NotFound(w, r)
		case path == "invocation/next":
			select {
			case event := <-l.events:
				n++
				w.Header().Set("Lambda-Runtime-Aws-Request-Id", fmt.Sprint("request-", n))
				w.Header().Set("Lambda-Runtime-Deadline-Ms", fmt.Sprint(time.Now().Add(time.Minute).UnixMilli()))
				_, _ = io.WriteString(w, event) // the function says what it has got
			case <-ctx.Done():
			case <-r.Context().Done():
			}
		default:
			body, err := io.ReadAll(r.Body)
			check.Error(t, "io.ReadAll()", err)
			w.WriteHeader(http.StatusAccepted)
			l.answers <- path[strings.LastIndex(path, "/")+1:] + " " + string(body)
		}
	}))
	t.Cleanup(func() {
		cancel()
		l.CloseClientConnections()
		l.Close()
	})
	return l
}

// call hands an event to the function, and returns its answer.
func (l *lambdaService) call(t *testing.T, event any) string {
	t.Helper()
	text := check.Call(json.Marshal(event)).Must(t, "json.Marshal()")
	l.events <- string(text)
	select {
	case answer := <-l.answers:
		return answer
	case <-time.After(2 * time.Minute):
		t.Fatal("the function does not answer within two minutes")
		return ""
	}
}

// functionCommand returns the command that runs a function, under an emulator where the machine is another one.
func functionCommand(ctx context.Context, dir, bootstrap string) *exec.Cmd {
	if runtime.GOOS+"/"+runtime.GOARCH == "linux/"+functionArch {
		return exec.CommandContext(ctx, bootstrap)
	}
	return exec.CommandContext(ctx, filepath.Join(dir, "qemu-aarch64"), "-0", bootstrap, bootstrap)
}

// start starts the program of a function as Lambda does.
func (l *lambdaService) start(t *testing.T, dir, bootstrap, handler, table, endpoint string) {
	t.Helper()
	cmd := functionCommand(t.Context(), dir, bootstrap)
	cmd.Env = []string{
		"AWS_LAMBDA_RUNTIME_API=" + strings.TrimPrefix(l.URL, "http://"), "_HANDLER=" + handler, "ZLIMIT_TABLE=" + table,
		"AWS_REGION=eu-central-1", "AWS_ACCESS_KEY_ID=id", "AWS_SECRET_ACCESS_KEY=secret", "AWS_ENDPOINT_URL_DYNAMODB=" + endpoint,
	}
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	check.Fatal(t, "start the function", cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it goes on forever
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("the function says:\n%s", log.String())
		}
	})
}

// TestInfraBootstrap builds the function, and plays the part of Lambda. The function sums up a change, and serves
// Custom::ZlimitLimits, whose answer goes to a URL. The long form builds it twice, with the same bytes.
func TestInfraBootstrap(t *testing.T) {
	dir := tools(t)
	program := buildFunction(t)
	code := check.Call(stack.Pack(program)).Must(t, "stack.Pack()")
	if soak.Runs() {
		program = buildFunction(t)
	}
	again, err := stack.Pack(program)
	if err != nil || again.Key() != code.Key() {
		t.Errorf("a second build = %v, the keys are %s and %s", err, code.Key(), again.Key())
	}
	t.Logf("%d bytes of zip", len(code.Zip))
	bootstrap := filepath.Join(t.TempDir(), "bootstrap")
	unzip(t, code.Zip, bootstrap)

	engine := enginetest.Start(t)
	w := newTestbed(t)
	t.Run("aggregator", func(t *testing.T) {
		l := newLambdaService(t)
		l.start(t, dir, bootstrap, "bootstrap", w.table, engine.Endpoint())
		testAggregatorOn(t, l, w)
	})
	t.Run("limits", func(t *testing.T) {
		l := newLambdaService(t)
		l.start(t, dir, bootstrap, "limits", w.table, engine.Endpoint())
		testProvisionerOn(t, l, w)
	})
	t.Run("no table", func(t *testing.T) {
		cmd := functionCommand(t.Context(), dir, bootstrap)
		cmd.Env = []string{"_HANDLER=limits", "AWS_LAMBDA_RUNTIME_API=127.0.0.1:1"}
		if output, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(output), "ZLIMIT_TABLE is not set") {
			t.Errorf("a function without a table: %v, %s", err, output)
		}
	})
}

// unzip writes the program of a function to a file.
func unzip(t *testing.T, content []byte, path string) {
	t.Helper()
	r := openZip(t, content)
	f := check.Call(r.Open("bootstrap")).Must(t, "Open()")
	program, err := io.ReadAll(f)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.WriteFile(path, program, 0o755)
	}
	check.Fatal(t, "io.ReadAll()", err)
}

func testAggregatorOn(t *testing.T, l *lambdaService, w *testbed) {
	_, err := w.admin.Acquire(t.Context(), zlimit.Request{Entity: "loner", Resource: "gpt-4", Consume: zlimit.Amounts{"rpm": 600}})
	check.Fatal(w, "Acquire()", err)
	image := w.image(w.namespace+"/BUCKET#loner#gpt-4#0", "#STATE")
	event := events.DynamoDBEvent{Records: []events.DynamoDBEventRecord{{EventSourceArn: strings.Replace(tableARN, "table/limits", "table/"+w.table, 1) + "/stream/2026", Change: events.DynamoDBStreamRecord{
		ApproximateCreationDateTime: events.SecondsEpochTime{Time: w.now()},
		Keys:                        map[string]events.DynamoDBAttributeValue{"PK": image["PK"], "SK": image["SK"]},
		NewImage:                    image, SequenceNumber: "1",
	}}}}
	for range 2 { // changes may come twice
		if answer := l.call(t, event); answer != `response {"batchItemFailures":[]}` {
			t.Errorf("the aggregator answers %s", answer)
		}
	}
	day := w.now().Truncate(24 * time.Hour)
	sum, err := w.admin.Usage.Summary(t.Context(), zlimit.UsageQuery{Entity: "loner", Resource: "gpt-4", Window: zlimit.WindowDaily, From: day, To: day.AddDate(0, 0, 1)})
	check.Fatal(w, "Usage.Summary()", err)
	if len(sum.Limits) == 0 || sum.Limits[0].Name != "rpm" || sum.Limits[0].Total.String() != "600" {
		t.Errorf("usage = %+v", sum)
	}
}

func testProvisionerOn(t *testing.T, l *lambdaService, w *testbed) {
	answers := make(chan cfn.Response, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var a cfn.Response
		if err := json.NewDecoder(r.Body).Decode(&a); err != nil || r.Method != http.MethodPut {
			t.Errorf("the answer comes by %s, %v", r.Method, err)
		}
		answers <- a
	}))
	defer server.Close()
	for _, step := range []struct {
		kind   cfn.RequestType
		rate   string
		status cfn.StatusType
		stored int64
	}{
		{cfn.RequestCreate, "500/min", cfn.StatusSuccess, 500},
		{cfn.RequestUpdate, "five", cfn.StatusFailed, 500},
		{cfn.RequestUpdate, "700/min", cfn.StatusSuccess, 700},
		{cfn.RequestDelete, "700/min", cfn.StatusSuccess, 700},
	} {
		answer := l.call(t, cfn.Event{
			RequestType: step.kind, RequestID: "1", ResponseURL: server.URL + "/answer", StackID: "arn:aws:cloudformation:eu-central-1:123456789012:stack/app/1",
			LogicalResourceID: "Limits", PhysicalResourceID: map[bool]string{false: w.table + "/default"}[step.kind == cfn.RequestCreate],
			ResourceProperties: map[string]any{"Limits": map[string]any{"resources": map[string]any{"gpt-5": map[string]any{"limits": map[string]any{"rpm": step.rate}}}}},
		})
		if !strings.HasPrefix(answer, "response ") {
			t.Fatalf("%s: the function answers %s", step.kind, answer)
		}
		if a := <-answers; a.Status != step.status || a.PhysicalResourceID != w.table+"/default" || (a.Reason == "") != (a.Status == cfn.StatusSuccess) {
			t.Errorf("%s with %s: CloudFormation gets %+v", step.kind, step.rate, a)
		}
		if stored, err := w.admin.Limits.Get(t.Context(), zlimit.Level{Resource: "gpt-5"}); err != nil || len(stored.Limits) != 1 || stored.Limits[0].Capacity != step.stored {
			t.Errorf("%s with %s: stored are %v, %v", step.kind, step.rate, stored, err)
		}
	}
}
