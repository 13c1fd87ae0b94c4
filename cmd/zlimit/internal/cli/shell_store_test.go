package cli

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/zlimit"
)

// TestNotesOnce looks at a store in memory and then changes it, as a command does that shows what it deletes. The note
// that nothing lasts comes once.
func TestNotesOnce(t *testing.T) {
	var stderr bytes.Buffer
	sh := &shell.Shell{Stderr: &stderr, Store: shell.MemoryDSN, Namespace: zlimit.DefaultNamespace, Env: noEnv, Now: time.Now}
	get := func(ctx context.Context, l *zlimit.RateLimiter) (zlimit.Namespace, error) {
		return l.Namespaces.Get(ctx, zlimit.DefaultNamespace)
	}
	for _, run := range []func(context.Context, *shell.Shell, shell.Operation[zlimit.Namespace], ...zlimit.Option) (zlimit.Namespace, error){shell.Look[zlimit.Namespace], shell.Do[zlimit.Namespace]} {
		if _, err := run(t.Context(), sh, get); err != nil {
			t.Fatalf("run() = %v", err)
		}
	}
	if got := strings.Count(stderr.String(), "is gone when this command ends"); got != 1 {
		t.Errorf("stderr has the note %d times, want once:\n%s", got, &stderr)
	}
}

// TestExplain says what to do where the SDK finds no credentials, and leaves other errors as they are.
func TestExplain(t *testing.T) {
	const sdk = "operation error DynamoDB: BatchGetItem, get identity: get credentials: failed to refresh cached credentials, "
	got := shell.Explain(errors.New("look up the namespace: " + sdk + "no EC2 IMDS role found, operation error ec2imds: GetMetadata, StatusCode: 403"))
	if !strings.HasPrefix(got, "look up the namespace: operation error DynamoDB: BatchGetItem, there are no AWS credentials: set AWS_PROFILE") || strings.Contains(got, "ec2imds") {
		t.Errorf("Explain() = %q", got)
	}
	for _, other := range []string{"x", sdk + "the SSO session has expired"} {
		if got := shell.Explain(errors.New(other)); got != other {
			t.Errorf("Explain(%q) = %q", other, got)
		}
	}
}
