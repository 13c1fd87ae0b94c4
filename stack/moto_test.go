package stack_test

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	streamtypes "github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/zlimit/zlimit-go/aggregator"
	"github.com/zlimit/zlimit-go/internal/proof/cfn"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/stack"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/dynamo"
)

// startMoto starts an AWS in memory, and returns the configuration of its clients.
func startMoto(t *testing.T, dir string, transport *motoTransport) aws.Config {
	t.Helper()
	listener := check.Call((&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")).Must(t, "Listen()")
	address := listener.Addr().String()
	check.Fatal(t, "Close()", listener.Close())
	_, port, _ := net.SplitHostPort(address)
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "venv/bin/moto_server"), "-H", "127.0.0.1", "-p", port)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	check.Fatal(t, "Start()", cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it keeps nothing
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("the end of what moto says:\n%s", log.Bytes()[max(0, log.Len()-3000):])
		}
	})
	client := &http.Client{Transport: transport}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/moto-api/", http.NoBody)
		check.Fatal(t, "http.NewRequestWithContext()", err)
		reply, err := client.Do(request)
		if err == nil {
			_ = reply.Body.Close() // nothing was read
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("moto does not answer: %v", err)
		}
	}
	return aws.Config{
		Region: cfn.Region, BaseEndpoint: aws.String("http://" + address), HTTPClient: client,
		Credentials: credentials.NewStaticCredentialsProvider("id", "secret", ""),
	}
}

// A motoTransport makes templates such that moto understands them as CloudFormation does. Elements of lists whose condition
// does not hold go, since moto leaves nulls in their places. Every parameter is sent with its value, since moto takes those
// that keep theirs for changed ones.
type motoTransport struct {
	http.RoundTripper

	version string                       // that new stacks get; that of package zlimit without
	given   map[string]map[string]string // parameters by the names of stacks
}

// RoundTrip implements [http.RoundTripper].
func (m *motoTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body == nil || r.Header.Get("Content-Type") != "application/x-www-form-urlencoded" {
		return m.RoundTripper.RoundTrip(r)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, err
	}
	if text := form.Get("TemplateBody"); text != "" {
		if err := m.complete(form, text); err != nil {
			return nil, err
		}
		form.Set("TemplateBody", dropElements(text, "HasKey", "HasTracing", "Expires"))
		body = []byte(form.Encode())
	}
	sent := r.Clone(r.Context())
	sent.Body, sent.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return m.RoundTripper.RoundTrip(sent)
}

// complete gives every parameter of a form its value, and a new stack its version.
func (m *motoTransport) complete(form url.Values, text string) error {
	template, err := cfn.Parse(text)
	if err != nil {
		return err
	}
	name := form.Get("StackName")
	if m.given[name] == nil {
		m.given[name] = map[string]string{}
		for key, p := range template.Parameters {
			m.given[name][key] = fmt.Sprint(p.Default)
		}
	}
	given := m.given[name]
	for n := 1; ; n++ {
		member := fmt.Sprintf("Parameters.member.%d.", n)
		key := form.Get(member + "ParameterKey")
		if key == "" {
			break
		}
		if form.Has(member + "ParameterValue") {
			given[key] = form.Get(member + "ParameterValue")
		}
		form.Del(member + "ParameterKey")
		form.Del(member + "ParameterValue")
		form.Del(member + "UsePreviousValue")
	}
	for i, key := range slices.Sorted(maps.Keys(given)) {
		member := fmt.Sprintf("Parameters.member.%d.", i+1)
		form.Set(member+"ParameterKey", key)
		form.Set(member+"ParameterValue", given[key])
	}
	for i := 1; m.version != "" && form.Get("ChangeSetType") == "CREATE" && form.Has(fmt.Sprintf("Tags.member.%d.Key", i)); i++ {
		if form.Get(fmt.Sprintf("Tags.member.%d.Key", i)) == "zlimit:version" {
			form.Set(fmt.Sprintf("Tags.member.%d.Value", i), m.version)
		}
	}
	return nil
}

// dropElements takes out the elements of lists that depend on one of the conditions. They are lines that begin with - !If
// [CONDITION, and blocks that begin with - !If.
func dropElements(text string, conditions ...string) string {
	lines := strings.SplitAfter(text, "\n")
	var kept strings.Builder
	for i := 0; i < len(lines); i++ {
		indent, rest, found := strings.Cut(lines[i], "- !If")
		if !found || strings.TrimSpace(indent) != "" {
			kept.WriteString(lines[i])
			continue
		}
		condition, _, inline := strings.Cut(strings.TrimPrefix(rest, " ["), ",")
		if !inline {
			condition = strings.TrimPrefix(strings.TrimSpace(lines[i+1]), "- ")
		}
		if !slices.Contains(conditions, condition) {
			kept.WriteString(lines[i])
			continue
		}
		for !inline && i+1 < len(lines) && strings.HasPrefix(lines[i+1], indent+" ") {
			i++
		}
	}
	return kept.String()
}

// A motoLife is a test on moto.
type motoLife struct {
	*testing.T
	manager   *stack.Manager
	transport *motoTransport
	tables    *dynamodb.Client
	streams   *dynamodbstreams.Client
	queues    *sqs.Client
	buckets   *s3.Client
	function  *function
	code      *stack.Code
	plans     []*stack.Plan
}

// deploy deploys, and returns the deployment with the number of plans that it had.
func (l *motoLife) deploy(o stack.Options) (*stack.Deployment, int) {
	l.Helper()
	before := len(l.plans)
	d, err := l.manager.Deploy(l.Context(), o, stack.Hooks{Confirm: func(p *stack.Plan) (bool, error) {
		l.plans = append(l.plans, p)
		return true, nil
	}})
	if err != nil {
		l.Fatalf("Deploy(%v) = %v", o.Settings, err)
	}
	return d, len(l.plans) - before
}

// delete deletes a stack.
func (l *motoLife) delete(name string, data bool) *stack.Deletion {
	l.Helper()
	d, err := l.manager.Delete(l.Context(), name, data, func(*stack.Deletion) (bool, error) { return true, nil }, func(stack.Event) {})
	if err != nil {
		l.Fatalf("Delete(%s, %t) = %v", name, data, err)
	}
	if _, err := l.manager.Status(l.Context(), name, false); !errors.Is(err, stack.ErrNotFound) {
		l.Errorf("Status(%s) after its deletion = %v", name, err)
	}
	return d
}

// acquire takes from a limit in a table.
func (l *motoLife) acquire(table string) {
	l.Helper()
	limiter, err := zlimit.New(l.Context(), dynamo.New(l.tables, table))
	if err != nil {
		l.Fatalf("a limiter on the new table: %v", err)
	}
	if _, err := limiter.Acquire(l.Context(), zlimit.Request{
		Entity: "alice", Resource: "gpt-4", Consume: zlimit.Amounts{"rpm": 1}, Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 10)},
	}); err != nil {
		l.Errorf("Acquire() = %v", err)
	}
	check.Error(l, "Close()", limiter.Close())
}

// TestInfraLife goes through the life of stacks by the clients of AWS. A stack is deployed, left as it is, changed,
// used, looked at, listed, checked and upgraded. It is deleted without its data, and with it. Package cfn stands in for
// what moto leaves out, such as drift and rollback.
func TestInfraLife(t *testing.T) {
	dir := tools(t)
	base := &http.Transport{}
	t.Cleanup(base.CloseIdleConnections)
	l := &motoLife{T: t, transport: &motoTransport{RoundTripper: base, given: map[string]map[string]string{}}}
	cfg := startMoto(t, dir, l.transport)
	clients := stack.ClientsOf(cfg)
	clients.CloudWatch = cfn.Watch{Service: cfn.NewService()} // moto does not know the protocol of its client
	l.tables, l.streams, l.queues = dynamodb.NewFromConfig(cfg), dynamodbstreams.NewFromConfig(cfg), sqs.NewFromConfig(cfg)
	l.function = &function{Lambda: clients.Lambda}
	clients.Lambda = l.function
	l.manager = stack.New(clients, stack.WithPoll(20*time.Millisecond))
	l.buckets = s3.NewFromConfig(cfg, func(o *s3.Options) { o.UsePathStyle = true })
	var err error
	if l.code, err = stack.Pack(cfn.Executable()); err != nil {
		t.Fatalf("stack.Pack() = %v", err)
	}
	l.current()
	l.older()
}

// current is the life of a stack of this version.
func (l *motoLife) current() {
	ctx := l.Context()
	o := stack.Options{Name: "limits", Code: l.code, Tags: map[string]string{"team": "platform"}, Settings: map[string]string{
		"permissions-boundary": "bound", "roles": "true", "role-names": "app-{}",
	}}
	d, plans := l.deploy(o)
	if !d.Changed || plans != 1 || !l.plans[0].New { // moto has no outputs of stacks that change sets have made
		l.Errorf("deployment %+v, %d plans", d, plans)
	}
	if d, plans := l.deploy(o); d.Changed || plans != 0 {
		l.Errorf("deploying again = %+v, %d plans", d, plans)
	}
	if d, plans := l.deploy(stack.Options{Name: "limits", Settings: map[string]string{"memory": "1024"}}); !d.Changed || plans != 1 {
		l.Errorf("deploying a change = %+v, %d plans", d, plans)
	}
	l.acquire("limits")

	st, err := l.manager.Status(ctx, "limits", false)
	if err != nil || len(st.Failed) > 0 || st.Table == nil || st.Table.Status != "ACTIVE" || !st.Table.Stream || !st.Table.Protected || st.Stream == nil ||
		st.Stream.State != "Enabled" || st.Dead == nil || *st.Dead != 0 {
		l.Errorf("Status() = %+v, %v", st, err)
	}
	list, err := l.manager.List(ctx)
	if err != nil || len(list) != 1 || list[0].Name != "limits" || list[0].Version != zlimit.Version || list[0].Table != "limits" {
		l.Errorf("List() = %+v, %v", list, err)
	}
	if c, err := l.manager.Check(ctx, "limits"); err != nil || c.Verdict != stack.VerdictCompatible {
		l.Errorf("Check() = %+v, %v", c, err)
	}
	l.redrive("limits")
	l.delete("limits", false)
	out, err := l.tables.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: aws.String("limits")})
	if err != nil || aws.ToInt64(out.Table.ItemCount) == 0 {
		l.Errorf("the table was not kept: %v", err)
	}
}

// A function is the aggregator's in this process, since moto runs none without Docker.
type function struct {
	stack.Lambda

	handle func(context.Context, events.DynamoDBEvent) (events.DynamoDBEventResponse, error)
	calls  int
}

// Invoke implements [stack.Lambda].
func (f *function) Invoke(ctx context.Context, in *lambda.InvokeInput, _ ...func(*lambda.Options)) (*lambda.InvokeOutput, error) {
	f.calls++
	var event events.DynamoDBEvent
	if err := json.Unmarshal(in.Payload, &event); err != nil {
		return nil, err
	}
	answer, err := f.handle(ctx, event)
	if err != nil {
		return &lambda.InvokeOutput{FunctionError: aws.String("Unhandled"), Payload: []byte(err.Error())}, nil //nolint:nilerr // as Lambda answers
	}
	payload, err := json.Marshal(answer)
	return &lambda.InvokeOutput{Payload: payload}, err
}

// redrive puts a letter about all changes of a table into the queue of a stack, looks at it twice, and redrives it twice. The aggregator
// counts each change once. The table is another one than the stack's, of which moto drops the changes, since its mapping takes them.
func (l *motoLife) redrive(name string) {
	l.Helper()
	const table = "changed"
	limiter := check.Call(zlimit.New(l.Context(), dynamo.New(l.tables, table), zlimit.WithSetup())).Must(l, "zlimit.New()")
	l.acquire(table)
	ctx := l.Context()
	list := check.Call(l.streams.ListStreams(ctx, &dynamodbstreams.ListStreamsInput{TableName: aws.String(table)})).Must(l, "ListStreams()")
	arn := list.Streams[0].StreamArn
	described := check.Call(l.streams.DescribeStream(ctx, &dynamodbstreams.DescribeStreamInput{StreamArn: arn})).Must(l, "DescribeStream()")
	shard := described.StreamDescription.Shards[0]
	first := shard.SequenceNumberRange.StartingSequenceNumber
	at := check.Call(l.streams.GetShardIterator(ctx, &dynamodbstreams.GetShardIteratorInput{
		StreamArn: arn, ShardId: shard.ShardId, ShardIteratorType: streamtypes.ShardIteratorTypeAtSequenceNumber, SequenceNumber: first,
	})).Must(l, "GetShardIterator()")
	page := check.Call(l.streams.GetRecords(ctx, &dynamodbstreams.GetRecordsInput{ShardIterator: at.ShardIterator})).Must(l, "GetRecords()")
	last := aws.ToString(page.Records[len(page.Records)-1].Dynamodb.SequenceNumber)
	queues := check.Call(l.queues.ListQueues(ctx, &sqs.ListQueuesInput{})).Must(l, "ListQueues()")
	if len(queues.QueueUrls) != 1 {
		l.Fatalf("queues %v, want that of dead letters", queues.QueueUrls)
	}
	a := check.Call(aggregator.New(dynamo.New(l.tables, table))).Must(l, "aggregator.New()")
	l.function.handle = aggregator.Handler(a)
	send := func(last string) {
		l.Helper()
		body := strings.ReplaceAll(letter(*shard.ShardId, *first, last, len(page.Records)), tableARN+"/stream/1", *arn)
		_, err := l.queues.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: &queues.QueueUrls[0], MessageBody: &body})
		check.Fatal(l, "SendMessage()", err)
	}
	letters := func(redrive, discard bool, want string) {
		l.Helper()
		all, err := l.manager.DeadLetters(ctx, name, redrive, discard)
		if err != nil || len(all) != 1 || all[0].Outcome != want || all[0].Changes != len(page.Records) {
			l.Fatalf("DeadLetters(%t, %t) = %+v, %v, want that it %s", redrive, discard, all, err, want)
		}
	}
	for range 2 {
		send(last)
		letters(false, false, stack.LetterWaits)
		letters(false, false, stack.LetterWaits) // it is back immediately
		letters(true, false, stack.LetterRedriven)
		if all, err := l.manager.DeadLetters(ctx, name, true, false); err != nil || len(all) != 0 {
			l.Errorf("DeadLetters() after a redrive = %+v, %v", all, err)
		}
	}
	send(last + "0") // which the stream never reaches
	letters(true, false, stack.LetterUnreached)
	letters(true, true, stack.LetterDiscarded)
	if l.function.calls != 4 {
		l.Errorf("the function was called %d times, want 4", l.function.calls)
	}
	sum, err := limiter.Usage.Summary(ctx, zlimit.UsageQuery{Entity: "alice", Resource: "gpt-4", Window: zlimit.WindowHourly})
	check.Fatal(l, "Usage.Summary()", err)
	if u, _ := sum.Limit("rpm"); u.Total.Tokens() != 1 {
		l.Errorf("usage after the redrives = %+v, want one request", sum)
	}
	check.Fatal(l, "Close()", limiter.Close())
}

// older is the life of a stack of an older version, which is upgraded, and deleted with its data.
func (l *motoLife) older() {
	ctx := l.Context()
	l.transport.version = "0.0.1"
	l.deploy(stack.Options{Name: "older", Code: l.code})
	if c, err := l.manager.Check(ctx, "older"); err != nil || c.Verdict != stack.VerdictUpgradable || c.Deployed != "0.0.1" {
		l.Errorf("Check() of an older stack = %+v, %v", c, err)
	}
	other := check.Call(stack.Unpack(repacked(l.T, l.code.Zip))).Must(l, "stack.Unpack()")
	if d, plans := l.deploy(stack.Options{Name: "older", Code: other}); !d.Changed || plans != 1 {
		l.Errorf("upgrading = %+v, %d plans", d, plans)
	}
	l.acquire("older")
	d := l.delete("older", true)
	if d.Items == 0 || d.Table != "older" || !strings.HasPrefix(d.Bucket, "older-bucket-") {
		l.Errorf("Delete() = %+v", d)
	}
	if _, err := l.tables.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: aws.String("older")}); err == nil {
		l.Error("the table is still there")
	}
	if _, err := l.buckets.HeadBucket(ctx, &s3.HeadBucketInput{Bucket: &d.Bucket}); err == nil {
		l.Error("the bucket is still there")
	}
}

// repacked returns another zip of the same program.
func repacked(t *testing.T, content []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, f := range openZip(t, content).File {
		check.Fatal(t, "Copy()", w.Copy(f))
	}
	check.Fatal(t, "SetComment() and Close()", errors.Join(w.SetComment("another one"), w.Close()))
	return b.Bytes()
}

func openZip(t *testing.T, content []byte) *zip.Reader {
	t.Helper()
	return check.Call(zip.NewReader(bytes.NewReader(content), int64(len(content)))).Must(t, "zip.NewReader()")
}
