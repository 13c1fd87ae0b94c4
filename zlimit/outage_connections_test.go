package zlimit_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A router forwards connections, until it forgets those that are open. What is sent by them later is neither passed on nor refused, as
// behind a router that was restarted.
type router struct {
	listener net.Listener
	to       string
	epoch    atomic.Int64 // connections of an earlier one are forgotten
	away     atomic.Bool  // new ones are, too
	lost     atomic.Int64 // packets that were sent by forgotten connections, while new ones work
	open     sync.WaitGroup
}

func startRouter(t *testing.T, to string) *router {
	t.Helper()
	l := check.Call((&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")).Must(t, "Listen()")
	r := &router{listener: l, to: to}
	ctx, cancel := context.WithCancel(context.Background())
	r.open.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			r.open.Go(func() { r.carry(ctx, c) })
		}
	})
	t.Cleanup(func() {
		cancel()
		_ = l.Close()
		r.open.Wait()
	})
	return r
}

func (r *router) carry(ctx context.Context, near net.Conn) {
	epoch := r.epoch.Load()
	far, err := (&net.Dialer{}).DialContext(ctx, "tcp", r.to)
	if err != nil {
		_ = near.Close()
		return
	}
	defer context.AfterFunc(ctx, func() { _, _ = near.Close(), far.Close() })()
	var both sync.WaitGroup
	for _, way := range [...][2]net.Conn{{near, far}, {far, near}} {
		both.Go(func() {
			_, _ = io.Copy(way[1], &routed{r, way[0], epoch})
			_, _ = near.Close(), far.Close()
		})
	}
	both.Wait()
}

// routed reads what comes by a connection that the router knows.
type routed struct {
	*router
	from  net.Conn
	epoch int64
}

func (k *routed) Read(p []byte) (int, error) {
	for {
		n, err := k.from.Read(p)
		switch away := k.away.Load(); {
		case err != nil, !away && k.epoch == k.router.epoch.Load():
			return n, err
		case !away:
			k.lost.Add(1)
		}
	}
}

// In TestDeadConnections, all connections of a process die while the store is away. After it new ones are answered immediately. However
// many dead ones are idle, hardly a call is lost on them before requests are counted again.
func TestDeadConnections(t *testing.T) {
	if testing.Short() {
		t.Skip("an outage takes seconds")
	}
	t.Parallel()
	engine := enginetest.Start(t)
	endpoint := check.Call(url.Parse(engine.Endpoint())).Must(t, "url.Parse()")
	r := startRouter(t, endpoint.Host)
	l, err := zlimit.Open(t.Context(), fmt.Sprintf("dynamodb:%s?region=eu-central-1&endpoint=http://%s", engine.Table(t), r.listener.Addr()), zlimit.WithSetup())
	check.Fatal(t, "zlimit.Open()", err)
	defer func() { check.Error(t, "Close()", l.Close()) }()
	ask := func(key int) error {
		_, err := l.Acquire(t.Context(), zlimit.Request{
			Entity: fmt.Sprint("key-", key), Resource: "r", Consume: zlimit.Amounts{"rpm": 1}, Limits: []zlimit.Limit{zlimit.PerDay("rpm", 1000)},
		})
		return err
	}
	const idle = 40
	var burst errgroup.Group
	for i := range idle {
		burst.Go(func() error { return ask(i) })
	}
	check.Fatal(t, "Wait()", burst.Wait())
	r.away.Store(true)
	var requests sync.WaitGroup
	defer requests.Wait()
	counted := make(chan struct{}, 10_000)
	request := func(i int) { // 50 a second
		requests.Go(func() {
			if ask(i%idle) == nil {
				counted <- struct{}{}
			}
		})
		time.Sleep(20 * time.Millisecond)
	}
	for i := 0; !l.Stats().Outage; i++ {
		request(i)
	}
	r.epoch.Add(1)
	r.away.Store(false)
	for i := 0; len(counted) == 0; i++ {
		request(i)
	}
	if lost := r.lost.Load(); lost > idle/4 {
		t.Errorf("%d calls were lost on dead connections, of which there were %d", lost, idle)
	}
}
