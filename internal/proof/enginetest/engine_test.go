package enginetest

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/compare"
)

// envOrphan makes the test binary start an engine and wait to be killed.
const envOrphan = "ZLIMIT_ENGINETEST_ORPHAN"

func TestMain(m *testing.M) {
	if os.Getenv(envOrphan) != "" {
		orphan()
	}
	goleak.VerifyTestMain(With(m))
}

// createTable makes a table with the key "id".
func createTable(tb testing.TB, client *dynamodb.Client, table string) {
	tb.Helper()
	check.Call(client.CreateTable(tb.Context(), &dynamodb.CreateTableInput{
		TableName:            &table,
		BillingMode:          types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("id"), AttributeType: types.ScalarAttributeTypeS}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("id"), KeyType: types.KeyTypeHash}},
	})).Must(tb, "CreateTable()")
}

// item is a stored item with a counter.
func item(id string, n int) map[string]types.AttributeValue {
	return map[string]types.AttributeValue{
		"id": &types.AttributeValueMemberS{Value: id},
		"n":  &types.AttributeValueMemberN{Value: strconv.Itoa(n)},
	}
}

// ownProcess skips a test that is about engines which this process starts.
func ownProcess(t *testing.T) {
	t.Helper()
	if os.Getenv(envEndpoint) != "" {
		t.Skipf("%s is set: no engine is started here", envEndpoint)
	}
}

func TestEngineStoresItems(t *testing.T) {
	engine := Start(t)
	client, table := engine.Client(), engine.Table(t)
	createTable(t, client, table)
	want := item("a", 7)
	if _, err := client.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &table, Item: want}); err != nil {
		t.Fatalf("PutItem() = %v", err)
	}
	got := check.Call(client.GetItem(t.Context(), &dynamodb.GetItemInput{
		TableName: &table,
		Key:       map[string]types.AttributeValue{"id": want["id"]},
	})).Must(t, "GetItem()")
	ignore := cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".noSmithyDocumentSerde" }, cmp.Ignore())
	compare.Equal(t, "GetItem after PutItem", want, got.Item, ignore)
}

func TestStartSharesOneEngine(t *testing.T) {
	if a, b := Start(t), Start(t); a != b {
		t.Errorf("Start twice = engines on %s and %s, want one", a.Endpoint(), b.Endpoint())
	}
}

func TestTablesGoWithTheirTests(t *testing.T) {
	client := Start(t).Client()
	var table string
	t.Run("owner", func(t *testing.T) {
		table = Start(t).Table(t)
		createTable(t, client, table)
	})
	_, err := client.DescribeTable(t.Context(), &dynamodb.DescribeTableInput{TableName: &table})
	if missing := (*types.ResourceNotFoundException)(nil); !errors.As(err, &missing) {
		t.Errorf("DescribeTable after the test = %v, want ResourceNotFoundException", err)
	}
}

func TestFreshEndsItsProcess(t *testing.T) {
	ownProcess(t)
	var engine *Engine
	t.Run("owner", func(t *testing.T) {
		engine = Fresh(t)
		if shared := Start(t); shared.Endpoint() == engine.Endpoint() {
			t.Errorf("Fresh = the shared engine on %s, want an own one", shared.Endpoint())
		}
		tables := check.Call(engine.Client().ListTables(t.Context(), &dynamodb.ListTablesInput{})).Must(t, "ListTables()")
		if len(tables.TableNames) != 0 {
			t.Errorf("tables of a fresh engine = %v, want none", tables.TableNames)
		}
	})
	if engine == nil {
		t.SkipNow()
	}
	if engine.process.cmd.ProcessState == nil {
		t.Error("the process was not reaped")
	}
	awaitSilence(t, engine.Endpoint())
}

func TestEngineEndsWithAKilledTestProcess(t *testing.T) {
	ownProcess(t)
	Start(t) // Skips if there is no engine.
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envOrphan+"=1")
	cmd.Stderr = os.Stderr
	out := check.Call(cmd.StdoutPipe()).Must(t, "StdoutPipe()")
	check.Fatal(t, "Start()", cmd.Start())
	endpoint, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Errorf("the orphan's endpoint = %q, %v", endpoint, err)
	}
	check.Error(t, "Process.Kill()", cmd.Process.Kill())
	if err := cmd.Wait(); err == nil {
		t.Error("Wait of a killed process = nil, want its signal")
	}
	awaitSilence(t, strings.TrimSpace(endpoint))
}

// orphan starts an engine, prints its endpoint and waits for the end.
func orphan() {
	engine, err := launch()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(engine.Endpoint())
	time.Sleep(time.Minute)
	os.Exit(1)
}

// awaitSilence fails the test unless an endpoint soon stops listening.
func awaitSilence(t *testing.T, endpoint string) {
	t.Helper()
	target := check.Call(url.Parse(endpoint)).Must(t, "url.Parse()")
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		conn, err := net.Dial("tcp", target.Host)
		if err != nil {
			return
		}
		check.Error(t, "Close()", conn.Close())
	}
	t.Errorf("the engine on %s still listens", endpoint)
}

func TestTakenPortIsNoEngine(t *testing.T) {
	ownProcess(t)
	Start(t) // Skips if there is no engine.
	binary := check.Call(locate()).Must(t, "locate()")
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer other.Close()
	p := check.Call(spawn(binary, other.Listener.Addr().(*net.TCPAddr).Port)).Must(t, "spawn()")
	if err := p.awaitReady(); !errors.Is(err, errDied) {
		t.Errorf("awaitReady on another server's port = %v, want %v", err, errDied)
	}
	check.Error(t, "stop", p.stop())
}

func TestFailedStartShowsTheOutput(t *testing.T) {
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("no sh here")
	}
	binary := filepath.Join(t.TempDir(), "broken")
	script := "#!/bin/sh\necho no such disk >&2\nexit 3\n"
	check.Fatal(t, "os.WriteFile()", os.WriteFile(binary, []byte(script), 0o755))
	_, err := start(binary)
	if !errors.Is(err, errDied) || !strings.Contains(err.Error(), "no such disk") {
		t.Errorf("start of a broken engine = %v, want %v with its output", err, errDied)
	}
}

func TestEndpointFromTheEnvironmentIsUsed(t *testing.T) {
	t.Setenv(envEndpoint, "http://127.0.0.1:8000/")
	t.Setenv(envBinary, "/nowhere/dynoxide")
	engine := Fresh(t)
	if got, want := engine.Endpoint(), "http://127.0.0.1:8000"; got != want {
		t.Errorf("Endpoint = %q, want %q", got, want)
	}
}

func TestNoEngine(t *testing.T) {
	t.Setenv(envBinary, noEngine)
	if _, err := locate(); !errors.Is(err, errNotInstalled) {
		t.Errorf("locate = %v, want %v", err, errNotInstalled)
	}
}

func TestNamedBinaryMustExist(t *testing.T) {
	t.Setenv(envBinary, "/nowhere/dynoxide")
	_, err := locate()
	if err == nil || errors.Is(err, errNotInstalled) || !strings.Contains(err.Error(), envBinary) {
		t.Errorf("locate = %v, want an error about %s", err, envBinary)
	}
}

// verdict is a testing.TB that records how a test ended.
type verdict struct {
	testing.TB
	failed, skipped string
}

func (v *verdict) Helper() {}

func (v *verdict) Fatalf(format string, args ...any) {
	v.failed = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func (v *verdict) Skipf(format string, args ...any) {
	v.skipped = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func TestMissingEngineSkipsUnlessRequired(t *testing.T) {
	root := t.TempDir()
	check.Fatal(t, "os.WriteFile()", os.WriteFile(filepath.Join(root, "go.mod"), []byte("module empty\n"), 0o644))
	t.Chdir(root)
	t.Setenv(envEndpoint, "")
	t.Setenv(envBinary, "")
	for require, wantSkip := range map[string]bool{"": true, "0": true, "1": false} {
		t.Setenv(envRequire, require)
		v := &verdict{TB: t}
		done := make(chan struct{})
		go func() {
			defer close(done)
			Fresh(v)
		}()
		<-done
		said := v.failed
		if wantSkip {
			said = v.skipped
		}
		if !strings.Contains(said, "make engine") || (v.skipped != "") != wantSkip {
			t.Errorf("Fresh with %s=%q: failed %q, skipped %q, want skip %v", envRequire, require, v.failed, v.skipped, wantSkip)
		}
	}
}

func TestTableNamesAreAllowedAndUnique(t *testing.T) {
	allowed := regexp.MustCompile(`^[a-zA-Z0-9_.-]{3,255}$`)
	seen := map[string]bool{}
	for n, test := range []string{"", "Test/a_case/with#signs", "Benchmark-2", "Té", strings.Repeat("long/", 100), ""} {
		name := tableName(test, int64(n))
		if !allowed.MatchString(name) || seen[name] {
			t.Errorf("tableName(%q, %d) = %q, want a new name like %v", test, n, name, allowed)
		}
		seen[name] = true
	}
}

func BenchmarkFreshStart(b *testing.B) {
	for b.Loop() {
		engine, err := launch()
		if err != nil {
			giveUp(b, err)
		}
		check.Fatal(b, "stop()", engine.stop())
	}
}
