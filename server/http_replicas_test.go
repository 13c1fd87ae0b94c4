package server

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/client"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
	"github.com/zlimit/zlimit-go/zlimit"
)

// replicaConfig is the variable by which the program of the tests is a replica, which is then killed.
const replicaConfig = "ZLIMITD_TEST_REPLICA"

func TestMain(m *testing.M) {
	path := os.Getenv(replicaConfig)
	if path == "" {
		enginetest.Main(m)
		return
	}
	c, err := Load(path, noEnv)
	if err == nil {
		var s *Server
		if s, err = New(context.Background(), c, slog.New(slog.DiscardHandler)); err == nil {
			fmt.Println(s.HTTPAddr())
			err = s.Run(context.Background())
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// onEngine returns the path of a config of replicas on a new table, and a limiter of it.
func onEngine(t *testing.T) (path string, limiter *zlimit.RateLimiter) {
	t.Helper()
	engine := enginetest.Start(t)
	for name, value := range map[string]string{"AWS_ENDPOINT_URL_DYNAMODB": engine.Endpoint(), "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"} {
		t.Setenv(name, value)
	}
	store := "dynamodb:" + engine.Table(t) + "?region=eu-central-1"
	limiter = check.Call(zlimit.Open(t.Context(), store, zlimit.WithSetup())).Must(t, "zlimit.Open()")
	t.Cleanup(func() { _ = limiter.Close() })
	path = filepath.Join(directory(t, map[string]string{
		"zlimitd.yaml": "store: " + store + "\nsigning_keys: [{id: k1, file: key}]\n" + config, "a.limits.yaml": limits, "key": strings.Repeat("k", 32),
	}), "zlimitd.yaml")
	return path, limiter
}

// TestHTTPReplicas asks four replicas on one table at the same time. They admit exactly what the limit allows.
func TestHTTPReplicas(t *testing.T) {
	path, limiter := onEngine(t)
	check.Fatal(t, "Limits.Set()", limiter.Limits.Set(t.Context(), zlimit.Level{Resource: "jobs"}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMonth("jobs", 100)}}))
	const replicas, calls = 4, 2000
	transport := &http.Transport{MaxConnsPerHost: 100, MaxIdleConnsPerHost: 100}
	defer transport.CloseIdleConnections()
	var clients [replicas]*client.Client
	for i := range clients {
		s, _ := start(t, path)
		clients[i] = &client.Client{URL: "http://" + s.HTTPAddr(), HTTP: &http.Client{Transport: transport}, Tries: 5}
	}
	var admitted, rejected atomic.Int64
	var group sync.WaitGroup
	for i := range calls {
		group.Go(func() {
			_, err := clients[i%replicas].Acquire(t.Context(), client.AcquireRequest{Entity: "ann", Resource: "jobs", Consume: map[string]int64{"jobs": 1}})
			var problem *client.Problem
			switch {
			case err == nil:
				admitted.Add(1)
			case errors.As(err, &problem) && problem.Status == http.StatusTooManyRequests:
				rejected.Add(1)
			default:
				t.Errorf("call %d = %v", i, err)
			}
		})
	}
	group.Wait()
	if admitted.Load() != 100 || rejected.Load() != calls-100 {
		t.Errorf("%d calls were admitted, and %d rejected, want 100 and %d", admitted.Load(), rejected.Load(), calls-100)
	}
}

// A replica is a process.
type replica struct {
	cmd    *exec.Cmd
	client *client.Client
}

func startReplica(t *testing.T, path string) *replica {
	t.Helper()
	program := check.Call(os.Executable()).Must(t, "os.Executable()")
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Env = append(os.Environ(), replicaConfig+"="+path)
	var failure bytes.Buffer
	cmd.Stderr = &failure
	output := check.Call(cmd.StdoutPipe()).Must(t, "StdoutPipe()")
	check.Fatal(t, "Start()", cmd.Start())
	r := &replica{cmd: cmd}
	t.Cleanup(r.kill)
	lines := bufio.NewScanner(output)
	if !lines.Scan() {
		t.Fatalf("the replica does not start: %s", failure.String())
	}
	r.client = &client.Client{URL: "http://" + lines.Text(), HTTP: &http.Client{Transport: &http.Transport{}, Timeout: 10 * time.Second}, Tries: 1}
	return r
}

// kill ends the process immediately, whatever it does.
func (r *replica) kill() {
	_ = r.cmd.Process.Kill()
	_, _ = r.cmd.Process.Wait()
}

// anywhere calls a function with one replica after another until it gets an answer that is final.
func anywhere[T any](t *testing.T, replicas []*replica, call func(*client.Client) (T, error)) (T, error) {
	first := rand.IntN(len(replicas))
	for i := 0; ; i++ {
		reply, err := call(replicas[(first+i)%len(replicas)].client)
		var problem *client.Problem
		if err == nil || errors.As(err, &problem) && problem.Status < 500 || i > 100 || t.Context().Err() != nil {
			return reply, err
		}
	}
}

// TestKilledReplica kills a replica while others and itself acquire and settle. Each lease is settled twice at the same time, with other
// amounts. One of them holds: nothing is returned that was not taken. A settlement of which the killed replica had written the record, and
// not the bucket, leaves the estimate charged.
func TestKilledReplica(t *testing.T) {
	path, limiter := onEngine(t)
	const all, estimate, workers, rounds = 1_000_000, 100, 12, 12
	check.Fatal(t, "Limits.Set()", limiter.Limits.Set(t.Context(), zlimit.Level{Resource: "tokens"}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMonth("tokens", all)}}))
	replicas := []*replica{startReplica(t, path), startReplica(t, path), startReplica(t, path)}
	var settled, done atomic.Int64
	var group sync.WaitGroup
	for w := range workers {
		group.Go(func() {
			entity := "entity-" + strconv.Itoa(w%4)
			for round := range rounds {
				if w == 0 && round == rounds/3 {
					replicas[0].kill()
				}
				request := client.AcquireRequest{Entity: entity, Resource: "tokens", Consume: map[string]int64{"tokens": estimate}, Lease: "10m"}
				key := fmt.Sprintf("job %d %d", w, round)
				acquired, err := anywhere(t, replicas, func(c *client.Client) (*client.Acquired, error) { return c.AcquireOnce(t.Context(), key, request) })
				if err != nil {
					t.Errorf("%s: acquire = %v", key, err)
					return
				}
				amounts := [2]int64{rand.Int64N(estimate), rand.Int64N(2 * estimate)}
				var held [2]int64
				var both sync.WaitGroup
				for i, amount := range amounts {
					both.Go(func() {
						_, err := anywhere(t, replicas, func(c *client.Client) (*client.Settled, error) {
							return c.Settle(t.Context(), client.SettleRequest{Lease: acquired.Lease, Settlement: client.Settlement{Actual: map[string]int64{"tokens": amount}}})
						})
						held[i] = amount
						var problem *client.Problem
						if errors.As(err, &problem) && problem.Code == "settled" {
							held[i] = problem.Amounts["tokens"]
						} else if err != nil {
							t.Errorf("%s: settle = %v", key, err)
						}
					})
				}
				both.Wait()
				if held[0] != held[1] {
					t.Errorf("%s: settled as %d and as %d, want one of them", key, held[0], held[1])
				}
				settled.Add(held[0])
				done.Add(1)
			}
		})
	}
	group.Wait()
	var used int64
	for i := range 4 {
		statuses, err := limiter.Available(t.Context(), zlimit.AvailableQuery{Entity: "entity-" + strconv.Itoa(i), Resource: "tokens"})
		check.Fatal(t, "Available()", err)
		used += all - statuses[0].Available
	}
	if leaked := used - settled.Load(); leaked < 0 || leaked > 2*workers*estimate || done.Load() != workers*rounds {
		t.Errorf("after %d of %d leases %d tokens are used and %d settled, want as many, or up to %d more", done.Load(), workers*rounds, used, settled.Load(), 2*workers*estimate)
	} else {
		t.Logf("%d leases, %d tokens settled, %d leaked", done.Load(), settled.Load(), leaked)
	}
}
