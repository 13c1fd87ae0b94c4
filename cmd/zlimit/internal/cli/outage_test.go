package cli

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/cloudformation"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/internal/proof/cfn"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
	"github.com/zlimit/zlimit-go/internal/tool/wait"
	"github.com/zlimit/zlimit-go/stack"
)

// In TestTopLivesThroughAnOutage, the table is away between looks, or from before the first one. Each time top says so, with the age of
// the figures, and goes on once the table is back. The last look decides about the exit code.
func TestTopLivesThroughAnOutage(t *testing.T) {
	engine := enginetest.Start(t)
	target := check.Call(url.Parse(engine.Endpoint())).Must(t, "url.Parse()")
	var away atomic.Bool
	proxy := httputil.NewSingleHostReverseProxy(target)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if away.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	dsn := "dynamodb:" + engine.Table(t) + "?region=" + enginetest.Region + "&endpoint=" + server.URL
	env := func(name string) string {
		return map[string]string{"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}[name]
	}
	zlimit := func(args ...string) {
		t.Helper()
		var out bytes.Buffer
		if code := Main(t.Context(), append(args, "--store", dsn), strings.NewReader(""), &out, &out, env); code != shell.ExitOK {
			t.Fatalf("zlimit %v: code %d, %s", args, code, &out)
		}
	}
	zlimit("setup")
	zlimit("limits", "set", "--resource", "gpt", "--limit", "rpm=100/d")
	zlimit("acquire", "acme", "gpt", "--consume", "rpm=1")

	for _, test := range []struct {
		name   string
		awayAt []bool // at each look
		code   int
		want   []string // lines that follow one another, by what is in them
	}{
		{
			"between looks",
			[]bool{false, true, true, false},
			shell.ExitOK,
			[]string{"1 bucket", "acme", "this look failed, and the figures are 10s old: ", "this look failed, and the figures are 20s old: ", "1 bucket", "acme"},
		},
		{"at the last look", []bool{false, true}, shell.ExitFailure, []string{"1 bucket", "acme", "the figures are 10s old: "}},
		{"from before the first look", []bool{true, false}, shell.ExitOK, []string{"there are no figures yet: ", "1 bucket", "acme"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			looks, now := 1, time.Date(2026, 2, 20, 12, 0, 0, 0, time.UTC)
			away.Store(test.awayAt[0])
			sh := &shell.Shell{Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr, Env: env, Now: func() time.Time { return now }}
			sh.Sleep = func(ctx context.Context, d time.Duration) error {
				now = now.Add(d)
				if looks < len(test.awayAt) {
					was := away.Swap(test.awayAt[looks])
					looks++
					if was && !away.Load() {
						return wait.For(ctx, 3*time.Second) // of real time, in which the limiter finds the table back
					}
				}
				return ctx.Err()
			}
			args := []string{"top", "gpt", "--interval", "10s", "--store", dsn, "--count", string(rune('0' + len(test.awayAt)))}
			code := Run(t.Context(), sh, args)
			rest := stdout.String()
			for _, want := range test.want {
				_, after, ok := strings.Cut(rest, want)
				if !ok {
					t.Fatalf("top prints\n%s%s\nwant %q after the others of %q", &stdout, &stderr, want, test.want)
				}
				rest = after
			}
			if code != test.code {
				t.Errorf("exit code %d, want %d\n%s%s", code, test.code, &stdout, &stderr)
			}
		})
	}
}

// A lostCloud is a CloudFormation that may be away.
type lostCloud struct {
	stack.CloudFormation
	away *atomic.Bool
}

func (c lostCloud) DescribeStacks(
	ctx context.Context, in *cloudformation.DescribeStacksInput, opts ...func(*cloudformation.Options),
) (*cloudformation.DescribeStacksOutput, error) {
	if c.away.Load() {
		return nil, errors.New("connection refused")
	}
	return c.CloudFormation.DescribeStacks(ctx, in, opts...)
}

// In TestStatusWatchesThroughAnOutage, CloudFormation is away between looks, until an interrupt.
func TestStatusWatchesThroughAnOutage(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var away atomic.Bool
	now, looks := historyNow, 0
	clients := cfn.NewService().Clients()
	clients.CloudFormation = lostCloud{clients.CloudFormation, &away}
	var stdout, stderr bytes.Buffer
	sh := &shell.Shell{
		Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr, Env: noEnv, Now: func() time.Time { return now },
		Manage: func() *stack.Manager {
			return stack.New(clients, stack.WithPoll(0), stack.WithClock(func() time.Time { return now }))
		},
		Sleep: func(ctx context.Context, d time.Duration) error {
			now = now.Add(d)
			looks++
			if away.Store(looks == 1 || looks == 2); looks == 4 {
				interrupt()
			}
			return ctx.Err()
		},
	}
	if code := Run(ctx, sh, []string{"stack", "status", "--name", "none", "--watch", "30s"}); code != shell.ExitFailure || looks > 0 {
		t.Errorf("status of no stack: code %d after %d looks, want it to end\n%s", code, looks+1, &stderr)
	}
	if code := Run(ctx, sh, []string{"stack", "deploy", "--name", "limits", "--no-aggregator", "--yes"}); code != shell.ExitOK {
		t.Fatalf("deploy: code %d\n%s%s", code, &stdout, &stderr)
	}
	stdout.Reset()
	stderr.Reset()
	looks = 0
	code := Run(ctx, sh, []string{"stack", "status", "--name", "limits", "--watch", "30s"})
	if code != shell.ExitOK || strings.Count(stdout.String(), "Stack ") != 2 {
		t.Errorf("status --watch: code %d, want 0 after two pages\n%s", code, &stdout)
	}
	for _, want := range []string{"the last page is 30s old", "the last page is 1m0s old", "connection refused"} {
		if !strings.Contains(stderr.String(), want) {
			t.Errorf("status --watch says %q, want %q in it", &stderr, want)
		}
	}
}
