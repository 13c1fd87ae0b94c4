package enginetest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/zlimit/zlimit-go/internal/tool/engine"
)

const (
	startAttempts = 5                // Ports tried before giving up.
	startTimeout  = 10 * time.Second // From exec to the first answer.
	stopTimeout   = 5 * time.Second  // From SIGTERM to SIGKILL.
)

// errNotInstalled says that no engine is on this machine, and none was asked
// for by name.
var errNotInstalled = errors.New("no DynamoDB engine: run `make engine` or set " + envEndpoint)

// errDied says that an engine ended before it answered, as it does when another
// process has taken its port.
var errDied = errors.New("the engine ended before it was ready")

func locate() (string, error) {
	if path := os.Getenv(envBinary); path == noEngine {
		return "", errNotInstalled
	} else if path != "" {
		if _, err := os.Stat(path); err != nil {
			return "", fmt.Errorf("%s: %w", envBinary, err)
		}
		return path, nil
	}
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	path := engine.Path(engine.Cache(root))
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return "", errNotInstalled
	} else if err != nil {
		return "", err
	}
	return path, nil
}

// moduleRoot returns the nearest directory with a go.mod, from the working directory upwards. For a test the working
// directory is its package's.
func moduleRoot() (string, error) {
	wd, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := wd; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no go.mod above %s", wd)
		}
	}
}

// leash is a shell script that becomes the command in its arguments. Before, it
// starts a watcher that ends the command once standard input closes. A line
// there lets the watcher go. The test process holds the other end, so the
// engine cannot outlive it, whether it returns, panics or is killed. The leash
// needs no goroutine, which a test for leaks would count, and no system call of
// one platform.
const leash = `exec 4<&0 </dev/null
(exec 3>&-; read -r _ <&4 || kill $$) >/dev/null 2>&1 &
exec 4<&-
exec "$@"`

// process is an engine that this test process has started.
type process struct {
	cmd     *exec.Cmd
	address string   // "127.0.0.1:PORT"
	leash   *os.File // Ends the engine when this test process does.
	pulse   *os.File // Reads EOF once the engine has ended.
	log     *os.File // The output of the engine.
}

// start runs the engine on a free port and returns once it answers. A port can
// be lost to another process between the choice and the engine's bind, so a
// start that fails early is tried again.
func start(binary string) (*process, error) {
	var err error
	for range startAttempts {
		var p *process
		if p, err = startOnce(binary); err == nil {
			return p, nil
		}
		if !errors.Is(err, errDied) {
			break
		}
	}
	return nil, fmt.Errorf("start %s: %w", binary, err)
}

func startOnce(binary string) (*process, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	p, err := spawn(binary, port)
	if err != nil {
		return nil, err
	}
	if err := p.awaitReady(); err != nil {
		out := p.output()
		return nil, errors.Join(fmt.Errorf("%w:\n%s", err, out), p.stop())
	}
	return p, nil
}

// freePort returns a TCP port that was free on the loopback interface.
func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	port := listener.Addr().(*net.TCPAddr).Port
	return port, listener.Close()
}

func spawn(binary string, port int) (*process, error) {
	log, err := os.CreateTemp("", "zlimit-engine-*.log")
	if err != nil {
		return nil, err
	}
	// The open file is all that is needed; without a name it leaves nothing behind.
	if err := os.Remove(log.Name()); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	leashEnd, leashHeld, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	pulseRead, pulseEnd, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, log.Close(), leashEnd.Close(), leashHeld.Close())
	}

	cmd := exec.Command("sh", "-c", leash, "sh",
		binary, "serve", "--host", "127.0.0.1", "-p", strconv.Itoa(port))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = leashEnd, log, log
	cmd.ExtraFiles = []*os.File{pulseEnd} // Descriptor 3, held by the engine alone.
	p := &process{
		cmd:     cmd,
		address: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)),
		leash:   leashHeld,
		pulse:   pulseRead,
		log:     log,
	}
	if err := errors.Join(cmd.Start(), leashEnd.Close(), pulseEnd.Close()); err != nil {
		return nil, errors.Join(err, p.stop())
	}
	return p, nil
}

// awaitReady returns nil once the engine answers.
func (p *process) awaitReady() error {
	client := &http.Client{
		// Nothing of the probe stays open for a leak test to find.
		Transport: &http.Transport{DisableKeepAlives: true},
		Timeout:   time.Second,
	}
	last := errors.New("it does not listen")
	for deadline := time.Now().Add(startTimeout); time.Now().Before(deadline); {
		if p.exited() {
			return errDied
		}
		// Another process may answer on the port, so only the engine's own word proves that it
		// listens.
		if strings.Contains(p.output(), "listening on http://"+p.address) {
			if last = probe(client, "http://"+p.address+"/"); last == nil {
				return nil
			}
		}
		time.Sleep(time.Millisecond)
	}
	return fmt.Errorf("the engine did not answer within %v: %w", startTimeout, last)
}

func probe(client *http.Client, url string) error {
	reply, err := client.Get(url)
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	if reply.StatusCode != http.StatusOK {
		return fmt.Errorf("status %s", reply.Status)
	}
	return nil
}

func (p *process) exited() bool {
	// The engine never writes to the pulse, so a read ends by the deadline while
	// the engine lives and by EOF afterwards.
	if err := p.pulse.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
		return true
	}
	_, err := p.pulse.Read(make([]byte, 1))
	return !errors.Is(err, os.ErrDeadlineExceeded)
}

// output returns the end of the engine's output.
func (p *process) output() string {
	const most = 8 << 10
	info, err := p.log.Stat()
	if err != nil {
		return err.Error()
	}
	out, err := io.ReadAll(io.NewSectionReader(p.log, max(0, info.Size()-most), most))
	if err != nil {
		return err.Error()
	}
	return string(bytes.TrimSpace(out))
}

// stop ends the engine, by force if it takes too long, waits until it is gone,
// and lets go of everything that belonged to it.
func (p *process) stop() error {
	var err error
	if p.cmd.Process != nil {
		err = p.terminate()
		// The watcher may be gone already, and then has no end to read from.
		_, _ = p.leash.WriteString("\n")
	}
	return errors.Join(err, p.leash.Close(), p.pulse.Close(), p.log.Close())
}

// terminate ends the engine's process and reaps it.
func (p *process) terminate() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	kill := time.AfterFunc(stopTimeout, func() { _ = p.cmd.Process.Kill() })
	defer kill.Stop()
	err := p.cmd.Wait()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return nil // How the engine takes a signal is its own affair.
	}
	return err
}
