package rotate

import (
	"errors"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
)

// TestServedSoon rotates a tenant that another process serves, with a child. The process refuses both during the rotation, and serves them two
// seconds after its end. The report has the time at which its limits are read again in any case.
func TestServedSoon(t *testing.T) {
	w := inMemory(t)
	w.fill()
	l, other := w.limiter(w.s), w.limiter(w.s)
	defer l.Close()
	defer other.Close()
	ask := func(entity string) error {
		_, err := other.Acquire(t.Context(), zlimit.Request{Entity: entity, Resource: "gpt", Consume: zlimit.Amounts{"tpd": 1}})
		return err
	}
	check.Fatal(t, "Acquire()", ask("key-1"))
	done := check.Call(rotate(t.Context(), l, "acme", "acme-2", func(now string) {
		if now != "moving child key-1" {
			return
		}
		for _, entity := range []string{"acme", "acme-2", "key-1"} {
			if err := ask(entity); !errors.Is(err, zlimit.ErrDisabled) {
				t.Errorf("during the rotation, a request of %s = %v, want ErrDisabled", entity, err)
			}
		}
	})).Must(t, "Run()")
	if ttl := done.Served.Sub(w.now); ttl < time.Minute || ttl > 3*time.Minute {
		t.Errorf("all processes serve it in %v", ttl)
	}
	w.now = w.now.Add(2 * time.Second)
	check.Error(t, "Acquire()", ask("acme-2"))
	check.Error(t, "Acquire()", ask("key-1"))
}
