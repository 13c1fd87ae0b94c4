package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
)

// envoyBinary returns the Envoy of make infra.
func envoyBinary(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("ZLIMIT_ENVOY"); path != "" {
		return path
	}
	dir := os.Getenv("ZLIMIT_INFRA")
	if dir == "" {
		t.Skip("needs the tools of make infra, or the path of an envoy in ZLIMIT_ENVOY")
	}
	found, err := filepath.Glob(filepath.Join(dir, "venv", "lib", "python3*", "site-packages", "envoy", "_bin", "envoy"))
	if err != nil || len(found) != 1 {
		t.Fatalf("envoy below %s: %v, %v", dir, found, err)
	}
	return found[0]
}

// A mesh is an Envoy between clients and an upstream, beside a server.
type mesh struct {
	url      string
	upstream string // its port
	server   *Server
	limiter  *zlimit.RateLimiter
	client   *http.Client
	arrived  sync.Map     // id of a call to a channel, which is closed when the upstream has the call
	calls    atomic.Int64 // that the upstream has got
}

const meshLimits = `
domain: shop
descriptors:
- {key: user, rate_limit: {unit: year, requests_per_unit: 3, name: per user}}
- {key: all, value: "yes", rate_limit: {unit: year, requests_per_unit: 5}}
- {key: slow, value: "yes", rate_limit: {unit: year, requests_per_unit: 5}}
- {key: shadow, value: "yes", shadow_mode: true, rate_limit: {unit: year, requests_per_unit: 1}}
`

const meshTokens = "domain: llm\ndescriptors:\n- {key: user, rate_limit: {unit: year, requests_per_unit: 1000}}\n"

// newMesh starts an Envoy, until the test ends.
func newMesh(t *testing.T) *mesh {
	t.Helper()
	binary := envoyBinary(t)
	files := directory(t, map[string]string{
		"zlimitd.yaml":     config + "  domains: {llm: {lease: 1m}}\n",
		"shop.limits.yaml": meshLimits, "llm.limits.yaml": meshTokens,
	})
	c := check.Call(Load(filepath.Join(files, "zlimitd.yaml"), noEnv)).Must(t, "Load()")
	slow := zlimit.WithObserver(func(_ context.Context, e zlimit.Event) { // after the decision
		if e.Kind == zlimit.EventDecision && strings.Contains(e.Resource, "slow") {
			time.Sleep(time.Second)
		}
	})
	m := runMesh(t, c, nil, slow)
	text := check.Call(os.ReadFile("testdata/envoy.yaml")).Must(t, "os.ReadFile()")
	m.url = startEnvoy(t, binary, strings.NewReplacer(
		"ZLIMITD", portOf(m.server.GRPCAddr()), "UPSTREAM", m.upstream, "DEAD", freePort(t)).Replace(string(text)))
	return m
}

// runMesh starts a server and an upstream, until the test ends. Without a handler, the upstream is that of a mesh.
func runMesh(t *testing.T, c *Config, handler http.HandlerFunc, opts ...zlimit.Option) *mesh {
	t.Helper()
	m := &mesh{client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 32}, Timeout: 20 * time.Second}}
	if handler == nil {
		handler = m.serve
	}
	upstream := httptest.NewServer(handler)
	t.Cleanup(upstream.Close)
	m.upstream = portOf(upstream.Listener.Addr().String())
	c.Drain.Delay = time.Millisecond
	var err error
	if m.server, err = New(t.Context(), c, slog.New(slog.DiscardHandler), opts...); err != nil {
		t.Fatalf("New() = %v", err)
	}
	m.limiter = m.server.limiter
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.server.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return m
}

func portOf(address string) string {
	_, port, _ := net.SplitHostPort(address)
	return port
}

// freePort returns a port on which nothing listens.
func freePort(t *testing.T) string {
	t.Helper()
	l := check.Call(net.Listen("tcp", "127.0.0.1:0")).Must(t, "net.Listen()")
	defer l.Close()
	return portOf(l.Addr().String())
}

// startEnvoy starts an Envoy, and returns the URL of its listener.
func startEnvoy(t *testing.T, binary, text string) string {
	t.Helper()
	dir := directory(t, map[string]string{"envoy.yaml": text})
	admin := filepath.Join(dir, "admin")
	var log bytes.Buffer
	cmd := exec.Command(binary, "-c", filepath.Join(dir, "envoy.yaml"), "--admin-address-path", admin, "--concurrency", "1", "--use-dynamic-base-id", "-l", "warning")
	cmd.Stderr = &log
	check.Fatal(t, "Start()", cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	for range 600 {
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("envoy ended: %v\n%s", err, log.Bytes())
		case <-time.After(50 * time.Millisecond):
		}
		address, err := os.ReadFile(admin)
		if err != nil || len(address) == 0 {
			continue
		}
		answer, err := http.Get("http://" + string(address) + "/listeners?format=json")
		if err != nil {
			continue
		}
		var listeners struct {
			Statuses []struct {
				Address struct {
					Socket struct {
						Port int `json:"port_value"`
					} `json:"socket_address"`
				} `json:"local_address"`
			} `json:"listener_statuses"`
		}
		err = json.NewDecoder(answer.Body).Decode(&listeners)
		_ = answer.Body.Close()
		if err == nil && len(listeners.Statuses) == 1 {
			return "http://127.0.0.1:" + strconv.Itoa(listeners.Statuses[0].Address.Socket.Port)
		}
	}
	t.Fatal("envoy did not start")
	return ""
}

// serve is the upstream. It says what a call costs by a header, and leaves calls open whose client is to go.
func (m *mesh) serve(w http.ResponseWriter, r *http.Request) {
	m.calls.Add(1)
	if arrived, ok := m.arrived.Load(r.Header.Get("X-Id")); ok {
		close(arrived.(chan struct{}))
		<-r.Context().Done()
		return
	}
	if cost := r.Header.Get("X-Costs"); cost != "" {
		w.Header().Set("X-Cost", cost)
	}
	_, _ = io.WriteString(w, "ok")
}

// get calls a path, and returns the status, 0 for a client that went.
func (m *mesh) get(ctx context.Context, path string, headers ...string) (int, http.Header) {
	r, _ := http.NewRequestWithContext(ctx, http.MethodGet, m.url+path, nil)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, "=")
		r.Header.Set(name, value)
	}
	answer, err := m.client.Do(r)
	if err != nil {
		return 0, nil
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, answer.Body)
	return answer.StatusCode, answer.Header
}

// leave calls a path, and goes when the upstream has the call. It returns the status of a call that was answered.
func (m *mesh) leave(t *testing.T, path string, headers ...string) int {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	id, arrived := strconv.FormatUint(rand.Uint64(), 36), make(chan struct{})
	m.arrived.Store(id, arrived)
	go func() {
		select {
		case <-arrived:
			cancel()
		case <-ctx.Done():
		}
	}()
	code, _ := m.get(ctx, path, append(headers, "x-id="+id)...)
	return code
}

// left returns what an entity has left of a limit.
func (m *mesh) left(t *testing.T, entity, resource string) int64 {
	t.Helper()
	statuses, err := m.limiter.Available(t.Context(), zlimit.AvailableQuery{Entity: entity, Resource: resource})
	check.Fatal(t, "Available()", err)
	return statuses[0].Available
}

// settles waits until an entity has that much left: settlements come after answers.
func (m *mesh) settles(t *testing.T, entity, resource string, want int64) {
	t.Helper()
	var got int64
	for range 200 {
		if got = m.left(t, entity, resource); got == want {
			return
		}
		time.Sleep(25 * time.Millisecond)
	}
	t.Errorf("%s of %s has %d left, want %d", entity, resource, got, want)
}

func (m *mesh) codes(t *testing.T, n int, path string, headers ...string) string {
	var codes []string
	for range n {
		code, _ := m.get(t.Context(), path, headers...)
		codes = append(codes, strconv.Itoa(code))
	}
	return strings.Join(codes, " ")
}

// TestEnvoy holds what the pages say of a stock Envoy against a real one.
func TestEnvoy(t *testing.T) {
	m := newMesh(t)
	const user, tokens = "shop|user", "llm|user"
	check := func(what string, got, want any) {
		t.Helper()
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s = %v, want %v", what, got, want)
		}
	}
	check("a limit", m.codes(t, 4, "/", "x-user=limit"), "200 200 200 429")
	_, headers := m.get(t.Context(), "/", "x-user=limit")
	check("the limit in headers", headers.Get("X-Ratelimit-Limit"), `3, 3;w=31536000;name="per user"`)
	check("the rest in headers", headers.Get("X-Ratelimit-Remaining"), "0")
	check("all or none", m.codes(t, 4, "/two", "x-user=both"), "200 200 200 429")
	check("what a refused call has taken of the other limit", m.left(t, "all", "shop|all=yes"), 2)
	check("shadow", m.codes(t, 3, "/shadow"), "200 200 200")
	check("questions of zero hits", m.codes(t, 9, "/zero", "x-user=zero"), strings.TrimSuffix(strings.Repeat("200 ", 9), " "))
	check("left after questions", m.left(t, "zero", user), 3)
	check("a question of an exhausted limit", m.codes(t, 1, "/zero", "x-user=limit"), "429")
	check("an addend of a route, of which Envoy says nothing", m.codes(t, 1, "/ignored", "x-user=ignored"), "200")
	check("left after it", m.left(t, "ignored", user), 2)
	before := m.calls.Load()
	check("a missing header, without a question to the server", m.codes(t, 5, "/"), "200 200 200 200 200")
	check("calls that came through", m.calls.Load()-before, 5)

	check("an estimate, and the actual amount in a header of the answer", m.codes(t, 1, "/lease", "x-user=ok", "x-estimate=300", "x-costs=120"), "200")
	m.settles(t, "ok", tokens, 880)
	check("an actual amount above the estimate", m.codes(t, 1, "/lease", "x-user=more", "x-estimate=300", "x-costs=1700"), "200")
	m.settles(t, "more", tokens, -700)
	check("without an actual amount the estimate stands", m.codes(t, 1, "/lease", "x-user=unknown", "x-estimate=300"), "200")
	check("a dead upstream", m.codes(t, 1, "/dead", "x-user=dead", "x-estimate=300", "x-actual=0"), "503")
	m.settles(t, "dead", tokens, 1000)
	check("a client that goes", m.leave(t, "/lease", "x-user=gone", "x-estimate=300", "x-actual=70"), 0)
	m.settles(t, "gone", tokens, 930)
	check("a refused call", m.codes(t, 2, "/lease", "x-user=refused", "x-estimate=1001", "x-actual=1"), "429 429")
	check("a huge estimate, which Envoy drops", m.codes(t, 1, "/lease", "x-user=huge", "x-estimate=2000000000", "x-actual=1"), "200")
	check("a slow server", m.codes(t, 1, "/slow"), "200")
	m.settles(t, "all", "shop|slow=yes", 4) // it was charged all the same
	m.settles(t, "unknown", tokens, 700)
	m.settles(t, "refused", tokens, 1000)
	m.settles(t, "huge", tokens, 1000)
}

// TestEnvoyConserves sends streams of random fate. What is charged in the end is what the admitted ones have cost.
func TestEnvoyConserves(t *testing.T) {
	m := newMesh(t)
	const streams, workers, users = 1000, 16, 12
	var actual [users]atomic.Int64
	var refused, gone, dead atomic.Int64
	var group sync.WaitGroup
	jobs := make(chan int)
	for range workers {
		group.Go(func() {
			for i := range jobs {
				random := rand.New(rand.NewPCG(1, uint64(i)))
				user, estimate, cost := random.IntN(users), 1+random.IntN(60), random.IntN(40)
				headers := []string{"x-user=u" + strconv.Itoa(user), "x-estimate=" + strconv.Itoa(estimate), "x-actual=" + strconv.Itoa(cost)}
				var code, want int
				switch fate := random.IntN(10); {
				case fate < 2:
					code = m.leave(t, "/lease", headers...)
					gone.Add(1)
				case fate < 4:
					want = http.StatusServiceUnavailable
					code, _ = m.get(t.Context(), "/dead", headers...)
					dead.Add(1)
				default:
					want = http.StatusOK
					code, _ = m.get(t.Context(), "/lease", append(headers, "x-costs="+strconv.Itoa(cost))...)
				}
				switch code {
				case want:
					actual[user].Add(int64(cost))
				case http.StatusTooManyRequests:
					refused.Add(1)
				default:
					t.Errorf("stream %d = %d, want %d or 429", i, code, want)
				}
			}
		})
	}
	for i := range streams {
		jobs <- i
	}
	close(jobs)
	group.Wait()
	for user := range users {
		m.settles(t, "u"+strconv.Itoa(user), "llm|user", 1000-actual[user].Load())
	}
	t.Logf("%d streams: %d refused, %d clients went, %d upstreams were dead", streams, refused.Load(), gone.Load(), dead.Load())
	if refused.Load() < 50 {
		t.Errorf("%d streams were refused, want the limits to be reached", refused.Load())
	}
}
