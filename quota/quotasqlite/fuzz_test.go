package quotasqlite_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/quota"
)

// smallFile returns a whole file with some of everything in it, in small pages.
func smallFile(tb testing.TB) []byte {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "small.db")
	clk := &clock{start}
	l, err := quota.NewWithSQLiteConfig(tb.Context(), path, quota.Config{
		Clock:  clk.Now,
		Quotas: map[string]quota.ModelQuota{"m": {MaxRPM: 100, MaxTPM: 1000}}, KeyQuotas: map[string]quota.ModelQuota{"k": {MaxTPD: 10_000}},
	})
	check.Fatal(tb, "quota.NewWithSQLiteConfig()", err)
	for range 12 {
		check.Fatal(tb, "Record()", l.Record(tb.Context(), quota.Request{Model: "m", Key: "k", Input: 3, Output: 4}))
	}
	check.Fatal(tb, "Close()", l.Close())
	return check.Call(os.ReadFile(path)).Must(tb, "os.ReadFile()")
}

// FuzzFile overwrites a part of a whole file, or cuts it. Opening and using it
// gives errors or a possible state, and never a panic.
func FuzzFile(f *testing.F) {
	whole := smallFile(f)
	f.Add(uint32(0), []byte{}, uint32(0))
	f.Add(uint32(0), []byte("SQLite format 4\x00"), uint32(0))
	f.Add(uint32(16), []byte{0xff, 0xff}, uint32(0))
	f.Add(uint32(18), []byte{1, 1}, uint32(0)) // no WAL
	f.Add(uint32(100), []byte{0}, uint32(0))
	f.Add(uint32(4096), []byte{13, 255, 255, 255, 255}, uint32(0))
	f.Add(uint32(0), []byte{}, uint32(4096))
	f.Add(uint32(0), []byte{}, uint32(100))
	f.Fuzz(func(t *testing.T, offset uint32, patch []byte, cut uint32) {
		data := append([]byte(nil), whole...)
		copy(data[int(offset)%len(data):], patch)
		if cut > 0 {
			data = data[:int(cut)%len(data)]
		}
		path := filepath.Join(t.TempDir(), "x.db")
		check.Fatal(t, "os.WriteFile()", os.WriteFile(path, data, 0o600))
		clk := &clock{start}
		ctx := t.Context()
		l, err := quota.NewWithSQLiteConfig(ctx, path, quota.Config{Clock: clk.Now})
		if err != nil {
			return
		}
		defer func() { _ = l.Close() }()
		loadErr := l.Load(ctx)
		before, err := l.Stats(ctx, "m")
		if loadErr == nil && err != nil {
			t.Fatalf("Load = nil, but Stats = %v", err)
		}
		if err == nil && (before.RPM < 0 || before.TPM < 0 || before.RPD < 0 || before.MaxRPM < 0) {
			t.Fatalf("Stats = %+v, want nothing negative", before)
		}
		r, err := l.Reserve(ctx, quota.Request{Model: "m", Key: "k", Input: 1})
		var unknown *quota.UnknownModelError // a change of the file may be in the model's name
		if loadErr == nil && err != nil && !errors.As(err, new(*quota.ExceededError)) && !errors.As(err, &unknown) {
			t.Fatalf("Load = nil, but Reserve = %v", err)
		}
		if err == nil {
			after, errAfter := l.Stats(ctx, "m")
			if loadErr == nil && (errAfter != nil || after.RPM != before.RPM+1) {
				t.Fatalf("Stats after Reserve = %+v, %v, want one request more than %+v", after, errAfter, before)
			}
			_ = r.Cancel(ctx)
		}
		_, _ = l.AllStats(ctx)
		_, _ = l.TimeUntil(ctx, quota.Request{Model: "m", Input: 10})
		_ = l.ResetAll(ctx)
	})
}
