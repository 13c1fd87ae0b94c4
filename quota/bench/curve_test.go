package bench

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/quota"
)

// naive is the sliding window of slices, pruned in place and summed on every
// call under one lock.
type naive struct {
	mu       sync.Mutex
	requests []time.Time
	tokens   []naiveTokens
	dayStart time.Time
	dayCount int
}

type naiveTokens struct {
	at    time.Time
	count int
}

func (n *naive) canSend(now time.Time, maxRPM, maxTPM, maxRPD, estimate int) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.prune(now)
	if n.dayCount >= maxRPD || len(n.requests) >= maxRPM {
		return false
	}
	sum := 0
	for _, t := range n.tokens {
		sum += t.count
	}
	return sum+estimate <= maxTPM
}

func (n *naive) record(now time.Time, count int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.prune(now)
	n.requests = append(n.requests, now)
	n.tokens = append(n.tokens, naiveTokens{now, count})
	n.dayCount++
}

func (n *naive) prune(now time.Time) {
	window := now.Add(-time.Minute)
	keep := 0
	for _, t := range n.requests {
		if t.After(window) {
			n.requests[keep] = t
			keep++
		}
	}
	n.requests = n.requests[:keep]
	keep = 0
	for _, t := range n.tokens {
		if t.at.After(window) {
			n.tokens[keep] = t
			keep++
		}
	}
	n.tokens = n.tokens[:keep]
	if now.Sub(n.dayStart) >= 24*time.Hour {
		n.dayCount, n.dayStart = 0, now
	}
}

// BenchmarkEntries is the curve: a check and a record with a steady number of
// entries in the window.
func BenchmarkEntries(b *testing.B) {
	const most = 1 << 40
	for _, entries := range []int{1, 10, 100, 1_000, 10_000, 100_000, 1_000_000} {
		step := time.Minute / time.Duration(entries) // one entry ages out with every call
		b.Run(fmt.Sprintf("entries=%d/quota", entries), func(b *testing.B) {
			ctx := context.Background()
			now := time.Unix(1e9, 0)
			l, err := quota.NewWithConfig(ctx, quota.Config{
				Quotas: map[string]quota.ModelQuota{"m": {MaxRPM: most, MaxTPM: most, MaxRPD: most}},
				Clock:  func() time.Time { return now },
			})
			check.Fatal(b, "quota.NewWithConfig()", err)
			call := func() {
				now = now.Add(step)
				if ok, err := l.CanSend(ctx, "m", 10); !ok || err != nil {
					b.Fatalf("CanSend = %v, %v, want true", ok, err)
				}
				check.Fatal(b, "RecordUsage()", l.RecordUsage(ctx, "m", 5, 5))
			}
			for range entries {
				call()
			}
			b.ReportAllocs()
			for b.Loop() {
				call()
			}
		})
		b.Run(fmt.Sprintf("entries=%d/naive", entries), func(b *testing.B) {
			if entries > 100_000 {
				b.Skip("a call takes milliseconds")
			}
			now := time.Unix(1e9, 0)
			n := &naive{}
			for range entries {
				now = now.Add(step)
				n.requests = append(n.requests, now)
				n.tokens = append(n.tokens, naiveTokens{now, 10})
			}
			b.ReportAllocs()
			for b.Loop() {
				now = now.Add(step)
				if !n.canSend(now, most, most, most, 10) {
					b.Fatal("canSend = false, want true")
				}
				n.record(now, 10)
			}
		})
	}
}
