package quotasqlite_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/quota"
)

// BenchmarkDecision measures decisions on a file, with windows of growing
// content: their cost does not grow with it.
func BenchmarkDecision(b *testing.B) {
	for _, entries := range []int{10, 1_000, 30_000} {
		l, err := quota.NewWithSQLiteConfig(b.Context(), filepath.Join(b.TempDir(), "bench.db"), quota.Config{
			Quotas: map[string]quota.ModelQuota{
				"ample": {MaxRPM: 1 << 40, MaxTPM: 1 << 40, MaxRPD: 1 << 40},
				"full":  {MaxRPM: 1 << 40, MaxTPM: int64(2 * entries), MaxRPD: 1 << 40},
			},
		})
		if err != nil {
			b.Fatalf("NewWithSQLiteConfig = %v", err)
		}
		for range entries {
			for _, m := range []string{"ample", "full"} {
				check.Fatal(b, "RecordUsage", l.RecordUsage(b.Context(), m, 1, 1))
			}
		}
		b.Run(fmt.Sprintf("can send/entries=%d", entries), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if ok, err := l.CanSend(b.Context(), "ample", 100); !ok || err != nil {
					b.Fatalf("CanSend = %v, %v, want true", ok, err)
				}
			}
		})
		b.Run(fmt.Sprintf("refused/entries=%d", entries), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := l.Reserve(b.Context(), quota.Request{Model: "full", Input: 1 << 20}); err == nil {
					b.Fatal("Reserve = nil, want a refusal")
				}
			}
		})
		b.Run(fmt.Sprintf("reserve/entries=%d", entries), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := l.Reserve(b.Context(), quota.Request{Model: "ample", Input: 1}); err != nil {
					b.Fatalf("Reserve = %v, want nil", err)
				}
			}
		})
		check.Fatal(b, "Close", l.Close())
	}
}
