package quota_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/compare"
	"github.com/zlimit/zlimit-go/quota"
)

// a clock that stands still until it is moved.
type clock struct{ ns atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.ns.Store(time.Date(2026, 2, 20, 12, 0, 0, 0, time.UTC).UnixNano())
	return c
}

func (c *clock) Now() time.Time          { return time.Unix(0, c.ns.Load()).UTC() }
func (c *clock) advance(d time.Duration) { c.ns.Add(int64(d)) }

func newLimiter(t testing.TB, c quota.Config) *quota.Limiter {
	t.Helper()
	l := check.Call(quota.NewWithConfig(t.Context(), c)).Must(t, "NewWithConfig")
	return l
}

func TestQuotasResolveFromProvidersAndOverrides(t *testing.T) {
	explicit := map[string]quota.ModelQuota{"gpt-4o": {MaxRPM: 1}, "llama": {MaxRPD: 2}}
	for name, c := range map[string]struct {
		cfg  quota.Config
		want map[string][3]int64 // RPM, TPM, RPD
		none []string
	}{
		"nothing given means Gemini": {
			cfg:  quota.Config{},
			want: map[string][3]int64{"gemini-3-pro-preview": {150, 1_000_000, 1_000}, "gemini-2.0-flash": {150, 1_000_000, 0}, "gemini-2.0-flash-lite": {}},
			none: []string{"gpt-4o"},
		},
		"quotas alone load no provider": {
			cfg:  quota.Config{Quotas: explicit},
			want: map[string][3]int64{"gpt-4o": {1, 0, 0}, "llama": {0, 0, 2}},
			none: []string{"gemini-2.5-pro"},
		},
		"quotas override providers": {
			cfg: quota.Config{Quotas: explicit, Providers: []quota.Provider{quota.ProviderOpenAI, quota.ProviderAnthropic}},
			want: map[string][3]int64{
				"gpt-4o": {1, 0, 0}, "gpt-4o-mini": {500, 200_000, 0}, "llama": {0, 0, 2},
				"claude-opus-4": {50, 40_000, 0}, "claude-haiku-3.5": {50, 50_000, 0},
			},
			none: []string{"gemini-2.5-pro"},
		},
		"the local provider has none": {cfg: quota.Config{Providers: []quota.Provider{quota.ProviderLocal}}, none: []string{"gpt-4o"}},
	} {
		t.Run(name, func(t *testing.T) {
			all := check.Call(newLimiter(t, c.cfg).AllStats(t.Context())).Must(t, "AllStats")
			for model, want := range c.want {
				st, ok := all[model]
				if got := [3]int64{st.MaxRPM, st.MaxTPM, st.MaxRPD}; !ok || got != want {
					t.Errorf("AllStats()[%q] = %v, %v, want %v", model, got, ok, want)
				}
			}
			for _, model := range c.none {
				if st, ok := all[model]; ok {
					t.Errorf("AllStats()[%q] = %+v, want none", model, st)
				}
			}
		})
	}
}

func TestLimitsAreCheckedInOrder(t *testing.T) {
	ctx := t.Context()
	clk := newClock()
	l := newLimiter(t, quota.Config{Clock: clk.Now, Quotas: map[string]quota.ModelQuota{
		"m": {MaxRPD: 2, MaxTPD: 100, MaxRPM: 1, MaxTPM: 60, MaxInputTPM: 40, MaxOutputTPM: 30},
	}})
	refusedBy := func(input, output int) quota.Limit {
		t.Helper()
		err := l.Check(ctx, quota.Request{Model: "m", Input: input, Output: output})
		var denied *quota.ExceededError
		if err == nil {
			return quota.LimitNone
		}
		if !errors.As(err, &denied) {
			t.Fatalf("Check = %v, want an *ExceededError", err)
		}
		return denied.Limit
	}
	for _, step := range []struct {
		input, output int
		want          quota.Limit
	}{
		{40, 20, quota.LimitNone}, {41, 0, quota.LimitInputTPM}, {0, 31, quota.LimitOutputTPM}, {40, 30, quota.LimitTPM}, {100, 1, quota.LimitTPD},
	} {
		if got := refusedBy(step.input, step.output); got != step.want {
			t.Errorf("Check(%d, %d) refused by %v, want %v", step.input, step.output, got, step.want)
		}
	}
	record := func() {
		t.Helper()
		check.Fatal(t, "RecordUsage()", l.RecordUsage(ctx, "m", 30, 30))
	}
	record()
	if got := refusedBy(0, 0); got != quota.LimitRPM {
		t.Errorf("second request of the minute refused by %v, want rpm", got)
	}
	if got := refusedBy(40, 1); got != quota.LimitTPD {
		t.Errorf("101st token of the day refused by %v, want tpd", got)
	}
	clk.advance(time.Minute)
	if got := refusedBy(0, 0); got != quota.LimitNone {
		t.Errorf("request of the next minute refused by %v, want none", got)
	}
	record()
	if got := refusedBy(0, 0); got != quota.LimitRPD {
		t.Errorf("third request of the day refused by %v, want rpd", got)
	}
	clk.advance(24*time.Hour - time.Minute - 1)
	if got := refusedBy(0, 0); got != quota.LimitRPD {
		t.Errorf("1ns before the day is over refused by %v, want rpd", got)
	}
	clk.advance(1)
	if got := refusedBy(0, 0); got != quota.LimitNone {
		t.Errorf("when the day is over refused by %v, want none", got)
	}
}

// TestLookingBeginsNoDay: only a recorded request does.
func TestLookingBeginsNoDay(t *testing.T) {
	ctx := t.Context()
	clk := newClock()
	l := newLimiter(t, quota.Config{Clock: clk.Now, Quotas: map[string]quota.ModelQuota{"m": {MaxRPD: 1}}})
	if ok, err := l.CanSend(ctx, "m", 1); !ok || err != nil {
		t.Fatalf("CanSend = %v, %v, want true", ok, err)
	}
	clk.advance(time.Hour)
	first := clk.Now()
	check.Fatal(t, "RecordUsage()", l.RecordUsage(ctx, "m", 1, 1))
	clk.advance(23 * time.Hour)
	if ok, _ := l.CanSend(ctx, "m", 1); ok {
		t.Error("CanSend 23h after the first request = true, want false: its day is running")
	}
	if st, _ := l.Stats(ctx, "m"); !st.DayStart.Equal(first) {
		t.Errorf("DayStart = %v, want the first request at %v", st.DayStart, first)
	}
}

func TestBadInputIsRefusedBeforeAnything(t *testing.T) {
	ctx := t.Context()
	long := strings.Repeat("x", 513)
	tooMany := quota.MaxTokens
	tooMany++ // on 32 bits it wraps, and is as bad
	recorded := 0
	l := newLimiter(t, quota.Config{OnEvent: func(quota.Event) { recorded++ }})
	for name, c := range map[string]struct {
		call  func() error
		field string
	}{
		"negative estimate": {func() error { _, err := l.CanSend(ctx, "m", -1); return err }, "request.input"},
		"negative usage":    {func() error { return l.RecordUsage(ctx, "m", 0, -5) }, "request.output"},
		"too many tokens": {func() error {
			_, err := l.Reserve(ctx, quota.Request{Model: "m", Input: quota.MaxTokens, Output: tooMany})
			return err
		}, "request.output"},
		"an empty model":          {func() error { return l.RecordUsage(ctx, "", 1, 1) }, "request.model"},
		"an empty model, checked": {func() error { _, err := l.CanSend(ctx, "", 1); return err }, "request.model"},
		"a long model":            {func() error { return l.RecordUsage(ctx, long, 1, 1) }, "request.model"},
		"a model that is not UTF-8": {func() error {
			_, err := l.TimeUntil(ctx, quota.Request{Model: "a\xff"})
			return err
		}, "request.model"},
		"a key with a newline":   {func() error { return l.Check(ctx, quota.Request{Model: "m", Key: "a\nb"}) }, "request.key"},
		"waiting with bad input": {func() error { _, err := l.Wait(ctx, quota.Request{Model: "m", Input: -1}); return err }, "request.input"},
		"a negative limit":       {func() error { return l.SetQuota(ctx, "m", quota.ModelQuota{MaxTPM: -1}) }, "model.m.max_tpm"},
		"a quota without a name": {func() error { return l.SetKeyQuota(ctx, "", quota.ModelQuota{}) }, "key"},
		"an unknown provider":    {func() error { return l.AddProvider(ctx, "acme") }, "provider"},
		"statistics of nothing":  {func() error { _, err := l.Stats(ctx, ""); return err }, "model"},
		"a reset of nothing":     {func() error { return l.ResetKey(ctx, "") }, "key"},
		"an unknown backend": {func() error {
			_, err := quota.NewWithConfig(ctx, quota.Config{Backend: "redis"})
			return err
		}, "config.backend"},
		"a config with an unknown provider": {func() error {
			_, err := quota.NewWithConfig(ctx, quota.Config{Providers: []quota.Provider{"acme"}})
			return err
		}, "config.providers"},
		"a config with a negative limit": {func() error {
			_, err := quota.NewWithSQLiteConfig(ctx, "/nowhere/at/all.db", quota.Config{Quotas: map[string]quota.ModelQuota{"m": {MaxRPM: -3}}})
			return err
		}, "config.quotas.m.max_rpm"},
		"no SQLite path": {func() error { _, err := quota.NewWithSQLite(ctx, ""); return err }, "path"},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.call()
			var bad *quota.ValidationError
			if !errors.As(err, &bad) || bad.Field != c.field || bad.Rule == "" {
				t.Errorf("call = %v, want a *ValidationError of field %q", err, c.field)
			}
		})
	}
	if recorded != 0 {
		t.Errorf("%d events for bad input, want none", recorded)
	}
}

func TestALoweredLimitCountsAtOnce(t *testing.T) {
	ctx := t.Context()
	l := newLimiter(t, quota.Config{Quotas: map[string]quota.ModelQuota{"m": {MaxRPM: 10}}})
	for range 5 {
		if _, err := l.Reserve(ctx, quota.Request{Model: "m"}); err != nil {
			t.Fatalf("Reserve() = %v", err)
		}
	}
	check.Fatal(t, "SetQuota()", l.SetQuota(ctx, "m", quota.ModelQuota{MaxRPM: 5}))
	var denied *quota.ExceededError
	if _, err := l.Reserve(ctx, quota.Request{Model: "m"}); !errors.As(err, &denied) || denied.Max != 5 {
		t.Errorf("Reserve after lowering the limit = %v, want refused by rpm 5", err)
	}
	check.Fatal(t, "SetQuota()", l.SetQuota(ctx, "m", quota.ModelQuota{MaxRPM: 4}))
	if _, err := l.Reserve(ctx, quota.Request{Model: "m"}); !errors.As(err, &denied) || denied.Max != 4 {
		t.Errorf("Reserve after lowering it again = %v, want refused by rpm 4", err)
	}
	check.Fatal(t, "AddProvider()", l.AddProvider(ctx, quota.ProviderAnthropic))
	st, err := l.AllStats(ctx)
	if err != nil || st["m"].MaxRPM != 4 || st["claude-opus-4"].MaxRPM != 50 {
		t.Errorf("AllStats after AddProvider = %+v, %v, want m kept and claude-opus-4 added", st, err)
	}
}

func TestKeysShareAModelAndHaveLimitsOfTheirOwn(t *testing.T) {
	ctx := t.Context()
	l := newLimiter(t, quota.Config{
		Quotas:          map[string]quota.ModelQuota{"a": {MaxRPM: 3}, "b": {}},
		KeyQuotas:       map[string]quota.ModelQuota{"vip": {MaxRPM: 100}},
		DefaultKeyQuota: quota.ModelQuota{MaxRPM: 2},
	})
	reserve := func(model, key string) string {
		t.Helper()
		_, err := l.Reserve(ctx, quota.Request{Model: model, Key: key})
		var denied *quota.ExceededError
		switch {
		case err == nil:
			return "ok"
		case errors.As(err, &denied):
			return denied.Scope.String() + " " + denied.Name
		}
		t.Fatalf("Reserve = %v", err)
		return ""
	}
	for i, step := range []struct{ model, key, want string }{
		{"a", "tom", "ok"},
		{"b", "tom", "ok"},
		{"b", "tom", "key tom"}, // a key's window spans models
		{"a", "ann", "ok"},
		{"a", "vip", "ok"},
		{"a", "vip", "model a"},
		{"b", "vip", "ok"},
		{"b", "ann", "ok"},
		{"b", "ann", "key ann"},
	} {
		if got := reserve(step.model, step.key); got != step.want {
			t.Errorf("step %d: Reserve(%q, %q) = %s, want %s", i, step.model, step.key, got, step.want)
		}
	}
	// What the key refused was not charged to the model.
	if st, _ := l.Stats(ctx, "b"); st.RPM != 3 {
		t.Errorf("Stats(b).RPM = %d, want 3", st.RPM)
	}
	keys, err := l.AllKeyStats(ctx)
	if err != nil || keys["vip"].MaxRPM != 100 || keys["tom"].MaxRPM != 2 || keys["tom"].RPM != 2 {
		t.Errorf("AllKeyStats = %+v, %v, want vip and tom with their limits", keys, err)
	}
}

func TestReservationsCloseOnce(t *testing.T) {
	ctx := t.Context()
	l := newLimiter(t, quota.Config{Quotas: map[string]quota.ModelQuota{"m": {MaxTPM: 100}}})
	r := check.Call(l.Reserve(ctx, quota.Request{Model: "m", Input: 50, Output: 50})).Must(t, "Reserve()")
	if err := r.Settle(ctx, -1, 0); !errors.As(err, new(*quota.ValidationError)) {
		t.Errorf("Settle(-1) = %v, want a *ValidationError", err)
	}
	check.Error(t, "Settle after a bad one", r.Settle(ctx, 10, 20))
	for name, err := range map[string]error{"Settle": r.Settle(ctx, 1, 1), "Cancel": r.Cancel(ctx), "zero": new(quota.Reservation).Cancel(ctx)} {
		if !errors.Is(err, quota.ErrClosed) {
			t.Errorf("%s of a closed reservation = %v, want ErrClosed", name, err)
		}
	}
	if st, _ := l.Stats(ctx, "m"); st.TPM != 30 || st.InputTPM != 10 || st.OutputTPM != 20 {
		t.Errorf("Stats = %+v, want the 30 tokens settled", st)
	}
}

// TestAResetForgetsReservations: what they settle later counts nowhere.
func TestAResetForgetsReservations(t *testing.T) {
	ctx := t.Context()
	clk := newClock()
	l := newLimiter(t, quota.Config{Clock: clk.Now, Quotas: map[string]quota.ModelQuota{"m": {MaxTPM: 100}}})
	var held [2]quota.Reservation
	for i := range held {
		var err error
		if held[i], err = l.Reserve(ctx, quota.Request{Model: "m", Input: 20}); err != nil {
			t.Fatalf("Reserve() = %v", err)
		}
	}
	check.Fatal(t, "ResetAll()", l.ResetAll(ctx))
	check.Fatal(t, "RecordUsage()", l.RecordUsage(ctx, "m", 7, 0))
	check.Error(t, "Settle, Cancel after a reset", errors.Join(held[0].Settle(ctx, 90, 0), held[1].Cancel(ctx)))
	if st, _ := l.Stats(ctx, "m"); st.TPM != 7 || st.RPM != 1 || st.RPD != 1 {
		t.Errorf("Stats = %+v, want only the request after the reset", st)
	}
}

// TestALateSettlementLeavesTheNextDayAlone: what was reserved yesterday counts
// yesterday.
func TestALateSettlementLeavesTheNextDayAlone(t *testing.T) {
	ctx := t.Context()
	clk := newClock()
	l := newLimiter(t, quota.Config{Clock: clk.Now, Quotas: map[string]quota.ModelQuota{"m": {MaxTPD: 100, MaxRPD: 10}}})
	settled := check.Call(l.Reserve(ctx, quota.Request{Model: "m", Input: 60})).Must(t, "Reserve()")
	cancelled := check.Call(l.Reserve(ctx, quota.Request{Model: "m", Input: 40})).Must(t, "Reserve()")
	clk.advance(24 * time.Hour)
	check.Fatal(t, "RecordUsage()", l.RecordUsage(ctx, "m", 30, 0))
	check.Fatal(t, "Settle() and Cancel()", errors.Join(settled.Settle(ctx, 5, 0), cancelled.Cancel(ctx)))
	if st, _ := l.Stats(ctx, "m"); st.TPD != 30 || st.RPD != 1 || !st.DayStart.Equal(clk.Now()) {
		t.Errorf("Stats = %+v, want the 30 tokens of the new day's one request", st)
	}
}

func TestHooksSeeEveryStep(t *testing.T) {
	ctx := t.Context()
	var got []string
	l := newLimiter(t, quota.Config{
		Quotas: map[string]quota.ModelQuota{"m": {MaxRPM: 1}},
		OnEvent: func(e quota.Event) {
			s := e.Kind.String()
			if e.Denied != nil {
				s += " by " + e.Denied.Limit.String()
			}
			got = append(got, s)
		},
	})
	_, _ = l.CanSend(ctx, "m", 1)
	r := check.Call(l.Reserve(ctx, quota.Request{Model: "m"})).Must(t, "Reserve()")
	_, _ = l.CanSend(ctx, "m", 1)
	_, _ = l.Reserve(ctx, quota.Request{Model: "m"})
	_ = r.Cancel(ctx)
	_ = l.RecordUsage(ctx, "m", 1, 1)
	other := check.Call(l.Reserve(ctx, quota.Request{Model: "other"})).Must(t, "Reserve()")
	_ = other.Settle(ctx, 1, 1)
	want := []string{"allowed", "reserved", "denied by rpm", "denied by rpm", "cancelled", "recorded", "reserved", "settled"}
	compare.Equal(t, "events differ", want, got)
}

// In TestConcurrentReservationsNeverExceed, 20 goroutines race for the last places of a model and of its keys, while
// others look.
func TestConcurrentReservationsNeverExceed(t *testing.T) {
	ctx := t.Context()
	const limit, keyLimit, workers = 1000, 300, 20
	l := newLimiter(t, quota.Config{
		Quotas:          map[string]quota.ModelQuota{"m": {MaxRPM: limit, MaxTPM: 3 * limit, MaxRPD: 10 * limit}},
		DefaultKeyQuota: quota.ModelQuota{MaxRPM: keyLimit},
	})
	keys := []string{"a", "b", "c", "d"}
	var kept, settled atomic.Int64
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range 400 {
				r, err := l.Reserve(ctx, quota.Request{Model: "m", Key: keys[(w+i)%len(keys)], Input: 1, Output: 1})
				if err != nil {
					continue
				}
				switch i % 8 {
				case 0:
					_ = r.Cancel(ctx)
					continue
				case 1:
					_ = r.Settle(ctx, 1, 2)
					settled.Add(1)
				}
				kept.Add(1)
				_, _ = l.Stats(ctx, "m")
				_, _ = l.TimeUntil(ctx, quota.Request{Model: "m", Key: "a", Input: 1})
			}
		})
	}
	wg.Wait()
	st, err := l.Stats(ctx, "m")
	if err != nil || st.RPM != kept.Load() || st.RPM != limit || st.TPM != 2*kept.Load()+settled.Load() {
		t.Errorf("Stats = %+v, %v, want %d requests kept, exactly the limit of %d, and %d tokens", st, err, kept.Load(), limit, 2*kept.Load()+settled.Load())
	}
	for _, k := range keys {
		if st, _ := l.KeyStats(ctx, k); st.RPM > keyLimit {
			t.Errorf("KeyStats(%q).RPM = %d, want at most %d", k, st.RPM, keyLimit)
		}
	}
}

func TestErrorsSayWhatIsWrong(t *testing.T) {
	ctx := context.Background()
	l := newLimiter(t, quota.Config{Quotas: map[string]quota.ModelQuota{"m": {MaxRPM: 1, MaxTPM: 100}}})
	_ = l.RecordUsage(ctx, "m", 1, 1)
	for want, err := range map[string]error{
		`quota: model "m" is at its limit: rpm 1`:                                 l.Check(ctx, quota.Request{Model: "m"}),
		`quota: model "m": the request is larger than tpm 100 and can never pass`: l.Check(ctx, quota.Request{Model: "m", Input: 101}),
		`quota: request.input "-7" must be 0 to 2147483647 tokens`:                l.Check(ctx, quota.Request{Model: "m", Input: -7}),
	} {
		if err == nil || err.Error() != want {
			t.Errorf("error = %v, want %s", err, want)
		}
	}
}
