package shell

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

// TestNotesOnce looks at a store in memory, and then changes it, as commands do that show what they delete: the note that
// nothing of it lasts comes once.
func TestNotesOnce(t *testing.T) {
	var stderr bytes.Buffer
	sh := &Shell{Stderr: &stderr, Store: MemoryDSN, Namespace: zlimit.DefaultNamespace, Env: func(string) string { return "" }, Now: time.Now}
	get := func(ctx context.Context, l *zlimit.RateLimiter) (zlimit.Namespace, error) {
		return l.Namespaces.Get(ctx, zlimit.DefaultNamespace)
	}
	for _, run := range []func(context.Context, *Shell, Operation[zlimit.Namespace], ...zlimit.Option) (zlimit.Namespace, error){Look[zlimit.Namespace], Do[zlimit.Namespace]} {
		if _, err := run(t.Context(), sh, get); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Count(stderr.String(), "is gone when this command ends"); got != 1 {
		t.Errorf("stderr has the note %d times, want once:\n%s", got, &stderr)
	}
}
