package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
)

// directory returns a directory with files.
func directory(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		check.Fatal(t, "os.WriteFile()", os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return dir
}

func noEnv(string) string { return "" }

const limits = "domain: d\ndescriptors:\n- {key: user, rate_limit: {unit: hour, requests_per_unit: 2}}\n"

const config = "grpc: 127.0.0.1:0\nhttp: 127.0.0.1:0\ndrain: {delay: 1ms, timeout: 5s}\nratelimit:\n  files: ['*.limits.yaml']\n"

// start serves a config until the test ends.
func start(t *testing.T, path string) (s *Server, end func() error) {
	t.Helper()
	c := check.Call(Load(path, noEnv)).Must(t, "Load()")
	s = check.Call(New(t.Context(), c, slog.New(slog.DiscardHandler))).Must(t, "New()")
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	ended := false
	end = func() error {
		if ended {
			return nil
		}
		ended = true
		cancel()
		return <-done
	}
	t.Cleanup(func() { check.Error(t, "end()", end()) })
	return s, end
}

func dial(t *testing.T, s *Server) *grpc.ClientConn {
	t.Helper()
	conn := check.Call(grpc.NewClient(s.GRPCAddr(), grpc.WithTransportCredentials(insecure.NewCredentials()))).Must(t, "grpc.NewClient()")
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func request(user string) *pb.RateLimitRequest {
	return &pb.RateLimitRequest{Domain: "d", Descriptors: []*common.RateLimitDescriptor{{Entries: []*common.RateLimitDescriptor_Entry{{Key: "user", Value: user}}}}}
}

// get returns the status and the body of a page.
func get(t *testing.T, s *Server, path string) (int, string) {
	t.Helper()
	answer := check.Call(http.Get("http://"+s.HTTPAddr()+path)).Must(t, "http.Get()")
	defer answer.Body.Close()
	body := check.Call(io.ReadAll(answer.Body)).Must(t, "io.ReadAll()")
	return answer.StatusCode, string(body)
}

// TestServe asks a server by gRPC and HTTP, changes its limits, and drains it.
func TestServe(t *testing.T) {
	dir := directory(t, map[string]string{"zlimitd.yaml": config, "a.limits.yaml": limits})
	path := filepath.Join(dir, "zlimitd.yaml")
	s, end := start(t, path)
	conn := dial(t, s)
	client, health := pb.NewRateLimitServiceClient(conn), healthpb.NewHealthClient(conn)
	for i, want := range []pb.RateLimitResponse_Code{1, 1, 2} {
		got, err := client.ShouldRateLimit(t.Context(), request("ann"))
		if err != nil || got.OverallCode != want {
			t.Fatalf("ShouldRateLimit %d = %v, %v, want %v", i, got, err, want)
		}
	}
	if got, err := health.Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil || got.Status != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("health = %v, %v", got, err)
	}
	for _, page := range []string{"/healthz", "/readyz"} {
		if code, body := get(t, s, page); code != 200 || body != "ok\n" {
			t.Errorf("GET %s = %d %q", page, code, body)
		}
	}
	_, metrics := get(t, s, "/metrics")
	for _, want := range []string{`zlimit_envoy_hits_total{domain="d",limit="d|user"`, `result="within"} 1`, `result="near"} 1`, `result="over"} 1`, "zlimit_requests_total"} {
		if !strings.Contains(metrics, want) {
			t.Errorf("GET /metrics has no %s:\n%s", want, metrics)
		}
	}

	check.Fatal(t, "os.WriteFile()", os.WriteFile(filepath.Join(dir, "a.limits.yaml"), []byte(strings.Replace(limits, "2}", "9}", 1)), 0o600))
	changed := check.Call(Load(path, noEnv)).Must(t, "Load()")
	check.Fatal(t, "Reload()", s.Reload(t.Context(), changed))
	if got, err := client.ShouldRateLimit(t.Context(), request("bob")); err != nil || got.Statuses[0].LimitRemaining != 8 {
		t.Errorf("ShouldRateLimit after the reload = %v, %v, want 8 left", got, err)
	}
	for name, change := range map[string]func(*Config){
		"store": func(c *Config) { c.Store = "sqlite:other.db" }, "dashboard": func(c *Config) { c.Dashboard = true }, "setup": func(c *Config) { c.Setup = true },
		"drain": func(c *Config) { c.Drain.Delay = time.Hour }, "callers": func(c *Config) { c.TLS.ClientCA = "ca.pem" },
	} {
		other := *changed
		if change(&other); s.Reload(t.Context(), &other) == nil {
			t.Errorf("Reload with another %s = nil, want an error", name)
		}
	}

	check.Error(t, "Run", end())
	if _, err := client.ShouldRateLimit(t.Context(), request("bob")); err == nil {
		t.Error("ShouldRateLimit after the end = nil, want an error")
	}
}

// TestReloadOfKeys settles leases across a reload: those of a key that is left, and of the random key of a server without keys. New leases are
// signed by the new key.
func TestReloadOfKeys(t *testing.T) {
	const inline = "signing_keys: [{id: a, file: a.key}]\n"
	files := map[string]string{"x.limits.yaml": limits, "a.key": strings.Repeat("a", 32), "b.key": strings.Repeat("b", 32)}
	for _, test := range []struct{ name, before, after, first, second string }{
		{"a rotation", inline, "signing_keys: [{id: b, file: b.key}, {id: a, file: a.key}]\n", "zl1.a.", "zl1.b."},
		{"no keys", "", "", "zl1.random.", "zl1.random."},
	} {
		t.Run(test.name, func(t *testing.T) {
			files["before.yaml"], files["after.yaml"] = config+test.before, config+test.after
			dir := directory(t, files)
			s, _ := start(t, filepath.Join(dir, "before.yaml"))
			limit := zlimit.Config{Limits: []zlimit.Limit{zlimit.PerDay("tokens", 1000)}}
			check.Fatal(t, "Limits.Set()", s.limiter.Limits.Set(t.Context(), zlimit.Level{Resource: "gpt"}, limit))
			post := func(path, body string) map[string]any { t.Helper(); return postOK(t, s, path, body) }
			acquire := func(prefix string) string {
				t.Helper()
				lease, _ := post("/v1/acquire", `{"entity":"alice","resource":"gpt","consume":{"tokens":10},"lease":"5m"}`)["lease"].(string)
				if !strings.HasPrefix(lease, prefix) {
					t.Errorf("the lease is %.12s…, want one that begins with %s", lease, prefix)
				}
				return lease
			}
			first := acquire(test.first)
			check.Fatal(t, "Reload()", s.Reload(t.Context(), check.Call(Load(filepath.Join(dir, "after.yaml"), noEnv)).Must(t, "Load()")))
			for _, lease := range []string{first, acquire(test.second)} {
				post("/v1/settle", fmt.Sprintf(`{"lease":%q,"actual":{"tokens":1}}`, lease))
			}
		})
	}
}

// TestDrain reports that the server is not ready, serves meanwhile, and lets a call end that runs.
func TestDrain(t *testing.T) {
	path := filepath.Join(directory(t, map[string]string{"zlimitd.yaml": strings.Replace(config, "1ms", "300ms", 1), "a.limits.yaml": limits}), "zlimitd.yaml")
	s, end := start(t, path)
	conn := dial(t, s)
	client, health := pb.NewRateLimitServiceClient(conn), healthpb.NewHealthClient(conn)
	watch := check.Call(health.Watch(t.Context(), &healthpb.HealthCheckRequest{})).Must(t, "Watch()")
	if got, err := watch.Recv(); err != nil || got.Status != healthpb.HealthCheckResponse_SERVING {
		t.Fatalf("Watch = %v, %v", got, err)
	}
	watched := make(chan string, 1)
	go func() {
		got, err := watch.Recv()
		asked, failure := client.ShouldRateLimit(context.Background(), request("ann"))
		answer, _ := http.Get("http://" + s.HTTPAddr() + "/readyz")
		code := 0
		if answer != nil {
			code = answer.StatusCode
			_ = answer.Body.Close()
		}
		watched <- fmt.Sprint(got.GetStatus(), err, " ", asked.GetOverallCode(), failure, " ", code)
	}()
	check.Error(t, "Run", end())
	if _, err := watch.Recv(); status.Code(err) != codes.Canceled { // the drain does not wait for who watches
		t.Errorf("the watch ends with %v, want canceled", err)
	}
	if got, want := <-watched, "NOT_SERVING <nil> OK <nil> 503"; got != want {
		t.Errorf("during the drain = %s, want %s", got, want)
	}
}

func TestLoad(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"stor: x", "line 1: field stor not found"},
		{"drain: {delay: 1s}\n---\ncallers: [{name: a}]", "z.yaml: line 2: there is a second document: it belongs in a file of its own"},
		{"store: 'memory:'\n---\n'", "z.yaml: yaml: line 3: found unexpected end of stream"},
		{"grpc: 0.0.0.0:8081", `grpc: must be an address of the loopback without callers and tls.client_ca, got "0.0.0.0:8081": anybody could use the limits`},
		{"http: ':8080'", `http: must be an address of the loopback without callers and tls.client_ca, got ":8080"`},
		{"http: 'localhost'", `http: must be HOST:PORT, got "localhost"`},
		{"http: 127.0.0.1:99999", `http: must have a port from 0 to 65535, got "127.0.0.1:99999"`},
		{"grpc: 127.0.0.1:-1", `grpc: must have a port from 0 to 65535, got "127.0.0.1:-1"`},
		{"grpc: 127.0.0.1:nothing", `grpc: must have a port from 0 to 65535, got "127.0.0.1:nothing"`},
		{"grpc: 127.0.0.1:8080", `http: must have another port than grpc, got "127.0.0.1:8080" beside "127.0.0.1:8080"`},
		{"store: foo:bar", `store: must be memory:, sqlite:PATH or dynamodb:TABLE, got "foo:bar"`},
		{"store: 'dynamodb:limits?regio=x'", `store: dynamodb: takes region, endpoint, profile, idle and timeout, not "regio", got "dynamodb:limits?regio=x"`},
		{"namespace: a#b\nsetup: true", `namespace: must not hold # or control characters, got "a#b"`},
		{"namespaces: [_]\nsetup: true", `namespace: is reserved, got "_"`},
		{"namespace: production", `setup: must be true for a store in memory, which has no namespace "production" yet`},
		{"tls: {certificate: none.pem, key: none.pem}", "z.yaml: tls: open "},
		{"tls: {certificate: z.yaml, key: z.yaml}", "z.yaml: tls: tls: failed to find any PEM data in certificate input"},
		{"tls: {certificate: c.pem}", "tls: must have certificate and key together, and both beside client_ca"},
		{"callers: [{name: a, certificate: b, roles: [acquire]}]", "signing_keys: must be given for callers"},
		{"drain: {delay: -1s}", "drain: delay and timeout must not be negative"},
		{"ratelimit: {files: [none.yaml]}", "ratelimit: files: no file matches"},
		{"ratelimit: {files: ['[']}", "ratelimit: files: syntax error in pattern"},
		{"ratelimit: {near_limit: 3}", "ratelimit: near_limit must be from 0 to 1, got 3"},
		{"ratelimit: {domains: {d: {windows: aligned, leases: 3s}}}", "field leases not found"},
	} {
		path := filepath.Join(directory(t, map[string]string{"z.yaml": test.text}), "z.yaml")
		if _, err := Load(path, noEnv); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("Load of %q = %v, want %q", test.text, err, test.want)
		}
	}
	c, err := Load("", func(name string) string {
		return map[string]string{"ZLIMITD_STORE": "sqlite:x.db", "ZLIMITD_GRPC": "[::1]:1"}[name]
	})
	if err != nil || c.Store != "sqlite:x.db" || c.GRPC != "[::1]:1" || c.HTTP != "127.0.0.1:8080" || c.Drain.Delay != 5*time.Second {
		t.Errorf("Load of the environment = %+v, %v", c, err)
	}
}

// TestOverlap finds hosts that cannot listen on one port both.
func TestOverlap(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want bool
	}{
		{"127.0.0.1", "127.0.0.1", true},
		{"127.0.0.1", "localhost", true},
		{"127.0.0.1", "::ffff:127.0.0.1", true},
		{"127.0.0.1", "127.0.0.2", false},
		{"127.0.0.1", "::1", false},
		{"0.0.0.0", "10.0.0.1", true},
		{"0.0.0.0", "::1", false},
		{"::", "10.0.0.1", true},
		{"", "::1", true},
		{"", "0.0.0.0", true},
		{"limits.example", "limits.example", true},
		{"limits.example", "other.example", false},
	} {
		if got, back := overlap(test.a, test.b), overlap(test.b, test.a); got != test.want || back != test.want {
			t.Errorf("overlap of %q and %q = %v, and %v the other way, want %v", test.a, test.b, got, back, test.want)
		}
	}
}

// TestGuard bounds the time of a call, and answers one that panics.
func TestGuard(t *testing.T) {
	s := &Server{logger: slog.New(slog.DiscardHandler)}
	got, err := s.guard(t.Context(), "in", &grpc.UnaryServerInfo{}, func(ctx context.Context, request any) (any, error) {
		if end, ok := ctx.Deadline(); !ok || time.Until(end) > maxCall {
			t.Errorf("the call ends at %v %v, want in %v", end, ok, maxCall)
		}
		return request, nil
	})
	if got != "in" || err != nil {
		t.Errorf("guard = %v, %v, want the answer", got, err)
	}
	if got, err := s.guard(t.Context(), "in", &grpc.UnaryServerInfo{}, func(context.Context, any) (any, error) { panic("broken") }); got != nil || status.Code(err) != codes.Internal {
		t.Errorf("guard of a call that panics = %v, %v, want internal", got, err)
	}
}

// TestWatches serves a bounded number of clients that watch the health.
func TestWatches(t *testing.T) {
	s, _ := start(t, filepath.Join(directory(t, map[string]string{"zlimitd.yaml": config, "a.limits.yaml": limits}), "zlimitd.yaml"))
	for range maxWatches - 1 {
		s.watches <- struct{}{}
	}
	health := healthpb.NewHealthClient(dial(t, s))
	for _, want := range []codes.Code{codes.OK, codes.ResourceExhausted} {
		watch, err := health.Watch(t.Context(), &healthpb.HealthCheckRequest{})
		if err == nil {
			_, err = watch.Recv()
		}
		if status.Code(err) != want {
			t.Errorf("Watch = %v, want %v", err, want)
		}
	}
}

// TestRarely asks the store once a second, and not for a client that is gone.
func TestRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked int
		ask := rarely(func(ctx context.Context) error {
			asked++
			return ctx.Err()
		})
		gone, leave := context.WithCancel(t.Context())
		leave()
		if err := ask(gone); err == nil {
			t.Error("the answer to a client that is gone = nil, want an error")
		}
		for range 100 {
			check.Fatal(t, "ask()", ask(t.Context()))
			time.Sleep(99 * time.Millisecond)
		}
		if asked != 1+10 {
			t.Errorf("100 questions in 9.9 seconds asked %d times, want 11", asked)
		}
	})
}

// TestFailedStart closes what it has opened.
func TestFailedStart(t *testing.T) {
	var log bytes.Buffer
	for _, change := range []func(*Config){
		func(c *Config) { c.Store = "nowhere:" },
		func(c *Config) { c.HTTP = "127.0.0.1:99999" },
		func(c *Config) { c.TLS.Certificate = "none.pem" },
	} {
		c := check.Call(Load("", noEnv)).Must(t, "Load()")
		c.GRPC = "127.0.0.1:0"
		change(c)
		if _, err := New(t.Context(), c, slog.New(slog.NewTextHandler(&log, nil))); err == nil {
			t.Errorf("New of %+v = nil, want an error", c)
		}
	}
}

// postOK posts a body to a server, and returns the reply, which must be a 200.
func postOK(t *testing.T, s *Server, path, body string) (reply map[string]any) {
	t.Helper()
	answer := check.Call(http.Post("http://"+s.HTTPAddr()+path, "application/json", strings.NewReader(body))).Must(t, "http.Post()")
	defer answer.Body.Close()
	if err := json.NewDecoder(answer.Body).Decode(&reply); err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%s = %d %v, %v", path, answer.StatusCode, reply, err)
	}
	return reply
}
