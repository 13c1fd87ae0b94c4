//go:build linux

package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/zlimit/zlimit-go/aggregator"
	"github.com/zlimit/zlimit-go/internal/tool/atomicfile"
	"github.com/zlimit/zlimit-go/internal/tool/wait"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A Config says what [Serve] serves.
type Config struct {
	Dir    string // where state, log and data are
	Engine string // path of the engine's program
	Table  string
	Port   int           // 0 for that of the last time, or any where it is taken
	Sweep  time.Duration // between two sweeps of expired items
	Log    io.Writer
}

// Serve runs a deployment until the context ends. A second one in the same directory is an error.
func Serve(ctx context.Context, c Config) error {
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return err
	}
	release, err := lock(c.Dir)
	if err != nil {
		return err
	}
	defer release()
	logger := slog.New(slog.NewJSONHandler(c.Log, nil))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	port, err := portOf(ctx, &c)
	if err != nil {
		return err
	}
	s := &State{
		PID: os.Getpid(), Started: processStart(os.Getpid()), Endpoint: "http://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(port)),
		Table: c.Table, Engine: c.Engine, Since: time.Now().UTC().Truncate(time.Second),
	}
	all, ctx := errgroup.WithContext(ctx)
	engineEnds, stopEngine := context.WithCancel(context.WithoutCancel(ctx)) // after everything that asks it
	defer stopEngine()
	engineGone := make(chan struct{})
	all.Go(func() error {
		defer close(engineGone)
		return runEngine(engineEnds, c, port)
	})
	all.Go(func() error {
		defer stopEngine()
		return work(ctx, c, s, logger)
	})
	err = all.Wait()
	<-engineGone
	return errors.Join(err, removeState(c.Dir))
}

// work sets the table up, and keeps aggregator and sweeps running until the context ends.
func work(ctx context.Context, c Config, s *State, logger *slog.Logger) error {
	if err := await(ctx, s.Endpoint); err != nil {
		return err
	}
	l, err := zlimit.Open(ctx, s.Store(), zlimit.WithSetup())
	if err != nil {
		return err
	}
	if err := l.Close(); err != nil {
		return err
	}
	store, err := zlimit.OpenStore(ctx, s.Store())
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }() // the engine ends too
	// An engine's writes cost nothing. So usage need not wait for larger batches, nor days for the ends of hours.
	a, err := aggregator.New(store, aggregator.WithLogger(logger), aggregator.WithPoll(time.Second), aggregator.WithoutRollUp())
	if err != nil {
		return err
	}
	if err := s.write(c.Dir); err != nil {
		return err
	}
	logger.Info("zlimit: local deployment is up", "store", s.Store())
	all, ctx := errgroup.WithContext(ctx)
	all.Go(func() error { return a.Run(ctx) })
	all.Go(func() error { return sweep(ctx, s, c.Sweep, logger) })
	return all.Wait()
}

// lock takes the lock of a directory, which ends with the process.
func lock(dir string) (release func(), err error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil { //nolint:gosec // a descriptor is small
		return nil, errors.Join(fmt.Errorf("another deployment runs in %s: %w", dir, err), f.Close())
	}
	return func() { _ = f.Close() }, nil
}

// portOf returns the port of the engine. By default it is the last one used, since programs and shells have its address.
func portOf(ctx context.Context, c *Config) (port int, err error) {
	path := filepath.Join(c.Dir, "port")
	if c.Port == 0 {
		if last, err := os.ReadFile(path); err == nil {
			port, _ = strconv.Atoi(string(last)) // 0 for any other text
		}
	}
	if port, err = freePort(ctx, cmp.Or(c.Port, port)); err != nil && c.Port == 0 {
		port, err = freePort(ctx, 0)
	}
	if err != nil {
		return 0, err
	}
	return port, atomicfile.Write(path, []byte(strconv.Itoa(port)))
}

func freePort(ctx context.Context, port int) (int, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return 0, err
	}
	address, _ := l.Addr().(*net.TCPAddr)
	return address.Port, l.Close()
}

// runEngine runs the engine until the context ends. It dies with this process, however that ends.
func runEngine(ctx context.Context, c Config, port int) error {
	runtime.LockOSThread() // the engine gets its signal when the thread that began it ends
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, c.Engine, "serve", "--host", "127.0.0.1", "-p", strconv.Itoa(port), "--db-path", dataPath(c.Dir))
	cmd.Stdout, cmd.Stderr = c.Log, c.Log
	// The interrupt of a terminal is for this process, which ends what asks the engine first.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM, Setpgid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	err := cmd.Run()
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("the engine %s ended: %w", c.Engine, errors.Join(err, errors.New("its output is above")))
}

func await(ctx context.Context, endpoint string) error {
	dialer := net.Dialer{Timeout: time.Second}
	for {
		conn, err := dialer.DialContext(ctx, "tcp", endpoint[len("http://"):])
		if err == nil {
			return conn.Close()
		}
		if wait.For(ctx, 20*time.Millisecond) != nil {
			return fmt.Errorf("the engine does not listen: %w", err)
		}
	}
}
