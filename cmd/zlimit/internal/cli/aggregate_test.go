package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/aggregator"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/internal/proof/check"
)

// TestAggregate runs the daemon until it is interrupted, and asks how it is.
func TestAggregate(t *testing.T) {
	ctx, interrupt := context.WithTimeout(t.Context(), 20*time.Second)
	logs, stderr := io.Pipe()
	args := []string{"aggregate", "--store", "sqlite:" + filepath.Join(t.TempDir(), "limits.db"), "--health", "127.0.0.1:0", "--name", "pod-0"}
	code := make(chan int, 1)
	go func() {
		code <- Main(ctx, args, strings.NewReader(""), io.Discard, stderr, func(string) string { return "" })
		stderr.Close()
	}()
	address := ""
	scanner := bufio.NewScanner(logs)
	asked, last := false, ""
	for scanner.Scan() {
		var line struct{ Level, Msg, Address, Partition string }
		if err := json.Unmarshal(scanner.Bytes(), &line); err != nil {
			t.Errorf("log line %q: %v", scanner.Text(), err)
		}
		if line.Address != "" {
			address = line.Address
		}
		if line.Partition == "log" && !asked { // it has taken the one partition there is
			asked = true
			var status aggregator.Status
			if got := get(t, "http://"+address+"/healthz", &status); got != http.StatusOK && got != http.StatusServiceUnavailable {
				t.Errorf("GET /healthz = %d", got)
			}
			if len(status.Partitions) != 1 || !status.Partitions[0].Held || status.Name != "pod-0" {
				t.Errorf("status = %+v, want pod-0 with one partition", status)
			}
			if got := get(t, "http://"+address+"/other", nil); got != http.StatusNotFound {
				t.Errorf("GET /other = %d, want 404", got)
			}
			interrupt()
		}
		last = line.Msg
	}
	interrupt()
	if !asked {
		t.Error("the aggregator never had a partition")
	}
	if got := <-code; got != shell.ExitOK {
		t.Errorf("exit code = %d, want %d", got, shell.ExitOK)
	}
	if last != "aggregator: gave a partition of the stream back" {
		t.Errorf("the last line = %q, want the partition given back", last)
	}
}

// get reads a JSON answer and returns its code.
func get(t *testing.T, url string, into any) int {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	reply := check.Call(client.Get(url)).Must(t, "Get()")
	defer reply.Body.Close()
	if into != nil {
		if err := json.NewDecoder(reply.Body).Decode(into); err != nil {
			t.Errorf("GET %s: %v", url, err)
		}
	}
	return reply.StatusCode
}
