package quota_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/quota"
)

// TestUnknownModelsAreRefused: a model that no profile knows is not unlimited
// without a word.
func TestUnknownModelsAreRefused(t *testing.T) {
	limiters(t, func(t *testing.T, open func(c quota.Config) *quota.Limiter) {
		for name, c := range map[string]struct {
			cfg     quota.Config
			refused bool
		}{
			"the default":                       {quota.Config{}, true},
			"a profile":                         {quota.Config{Providers: []quota.Provider{quota.ProviderOpenAI}}, true},
			"a profile and quotas":              {quota.Config{Providers: []quota.Provider{quota.ProviderOpenAI}, Quotas: map[string]quota.ModelQuota{"a": {}}}, true},
			"a profile and a default quota":     {quota.Config{Providers: []quota.Provider{quota.ProviderOpenAI}, DefaultQuota: quota.ModelQuota{MaxRPM: 5}}, false},
			"a profile, by wish":                {quota.Config{Providers: []quota.Provider{quota.ProviderOpenAI}, Strict: quota.StrictNever}, false},
			"a provider without quotas":         {quota.Config{Providers: []quota.Provider{quota.ProviderLocal}}, false},
			"a provider without them, by wish":  {quota.Config{Providers: []quota.Provider{quota.ProviderLocal}, Strict: quota.StrictAlways}, true},
			"quotas alone":                      {quota.Config{Quotas: map[string]quota.ModelQuota{"a": {}}}, false},
			"quotas alone, by wish":             {quota.Config{Quotas: map[string]quota.ModelQuota{"a": {}}, Strict: quota.StrictAlways}, true},
			"quotas and a default, and by wish": {quota.Config{DefaultQuota: quota.ModelQuota{MaxRPM: 5}, Strict: quota.StrictAlways}, false},
		} {
			t.Run(name, func(t *testing.T) {
				ctx, l := t.Context(), open(c.cfg)
				r := quota.Request{Model: "gpt-4o-typo", Key: "k", Input: 1}
				calls := func() map[string]error {
					_, canSend := l.CanSend(ctx, r.Model, 1)
					_, reserve := l.Reserve(ctx, r)
					_, wait := l.Wait(ctx, r)
					_, until := l.TimeUntil(ctx, r)
					return map[string]error{"CanSend": canSend, "Check": l.Check(ctx, r), "Reserve": reserve, "Wait": wait, "TimeUntil": until}
				}
				verify := func(when string, refused bool) {
					t.Helper()
					for call, err := range calls() {
						var unknown *quota.UnknownModelError
						if got := errors.As(err, &unknown); got != refused || !refused && err != nil {
							t.Errorf("%s %s = %v, want an *UnknownModelError: %v", call, when, err, refused)
						}
						if refused && (unknown.Model != r.Model || !strings.Contains(err.Error(), r.Model)) {
							t.Errorf("%s = %v, want it to name the model", call, err)
						}
					}
				}
				verify("of an unknown model", c.refused)
				if !c.refused {
					return
				}
				// What was sent all the same is recorded, and does not make the model known.
				check.Error(t, "Record", l.Record(ctx, r))
				if st, err := l.Stats(ctx, r.Model); err != nil || st.RPM != 1 {
					t.Errorf("Stats = %+v, %v, want the one request", st, err)
				}
				verify("of an unknown model that was recorded", true)
				check.Fatal(t, "SetQuota()", l.SetQuota(ctx, r.Model, quota.ModelQuota{}))
				verify("of a model that got a quota, without limits", false)
			})
		}
	})
}

// TestAReleaseCountsAsItsModel: dated ids share the window of the model with the
// longest name that is in front of the date.
func TestAReleaseCountsAsItsModel(t *testing.T) {
	limiters(t, func(t *testing.T, open func(c quota.Config) *quota.Limiter) {
		ctx := t.Context()
		l := open(quota.Config{
			Clock:     newClock().Now,
			Providers: []quota.Provider{quota.ProviderOpenAI, quota.ProviderAnthropic, quota.ProviderGemini},
			Quotas: map[string]quota.ModelQuota{
				"gpt-4": {MaxRPM: 10}, "gpt-4-1106": {MaxRPM: 7}, "own-2025-01-01": {MaxRPM: 3}, "own": {MaxRPM: 4}, "x": {MaxRPM: 1}, "x-2024": {MaxRPM: 2},
			},
		})
		for model, want := range map[string]string{
			"gpt-4o-2024-11-20":              "gpt-4o",
			"gpt-4o-mini-2024-07-18":         "gpt-4o-mini",
			"gpt-4-0613":                     "gpt-4",
			"gpt-4-1106":                     "gpt-4-1106", // has a quota of its own
			"o1-2024-12-17":                  "o1",
			"claude-sonnet-4-20250514":       "claude-sonnet-4",
			"claude-sonnet-4-5-20250929":     "claude-sonnet-4-5",
			"claude-sonnet-4@20250514":       "claude-sonnet-4",
			"claude-3-5-haiku-latest":        "claude-3-5-haiku",
			"gemini-2.0-flash-001":           "gemini-2.0-flash",
			"gemini-3-flash-preview-09-2025": "gemini-3-flash-preview",
			"own-2025-01-01":                 "own-2025-01-01",
			"own-2025-01-02":                 "own",
			"x-2024-04-09":                   "x-2024", // the longest
		} {
			before := check.Call(l.Stats(ctx, want)).Must(t, "Stats()")
			check.Fatal(t, "RecordUsage()", l.RecordUsage(ctx, model, 1, 1))
			after, err := l.Stats(ctx, want)
			if err != nil || after.RPM != before.RPM+1 {
				t.Errorf("%s does not count as %s: %d requests after %d, %v", model, want, after.RPM, before.RPM, err)
			}
			if got, err := l.Stats(ctx, model); err != nil || got != after {
				t.Errorf("Stats(%s) = %+v, %v, want those of %s", model, got, err, want)
			}
		}
		for _, model := range []string{
			"gpt-4o-realtime-preview", "gpt-4o-2024-13-20", "gpt-4o-20241", "gpt-4o20241120", "claude-sonnet-9-20250514", "o1-pro", "latest", "-001",
		} {
			if _, err := l.CanSend(ctx, model, 1); !errors.As(err, new(*quota.UnknownModelError)) {
				t.Errorf("CanSend(%s) = %v, want an *UnknownModelError", model, err)
			}
		}
		var denied *quota.ExceededError
		check.Error(t, "Check of the second request", l.Check(ctx, quota.Request{Model: "x-2024-04-09", Input: 1}))
		if _, err := l.Reserve(ctx, quota.Request{Model: "x-2024"}); err != nil {
			t.Fatalf("Reserve() = %v", err)
		}
		if _, err := l.Reserve(ctx, quota.Request{Model: "x-2024-04-09"}); !errors.As(err, &denied) || denied.Name != "x-2024" {
			t.Errorf("Reserve of the third = %v, want refused by the limit of x-2024", err)
		}
		check.Fatal(t, "Reset()", l.Reset(ctx, "x-2024-04-09"))
		if _, err := l.Reserve(ctx, quota.Request{Model: "x-2024"}); err != nil {
			t.Errorf("Reserve after a reset of its release = %v, want nil", err)
		}
	})
}

// TestQuotasOfAFileMakeModelsKnown: another process may have set them.
func TestQuotasOfAFileMakeModelsKnown(t *testing.T) {
	ctx, path := t.Context(), filepath.Join(t.TempDir(), "quota.db")
	var limiter [2]*quota.Limiter
	for i := range limiter {
		var err error
		if limiter[i], err = quota.NewWithSQLite(ctx, path); err != nil {
			t.Fatalf("quota.NewWithSQLite() = %v", err)
		}
		defer func() { _ = limiter[i].Close() }()
	}
	if _, err := limiter[1].CanSend(ctx, "new-2026-01-01", 1); !errors.As(err, new(*quota.UnknownModelError)) {
		t.Errorf("CanSend = %v, want an *UnknownModelError", err)
	}
	check.Fatal(t, "SetQuota()", limiter[0].SetQuota(ctx, "new", quota.ModelQuota{MaxRPM: 1}))
	if _, err := limiter[1].Reserve(ctx, quota.Request{Model: "new-2026-01-01"}); err != nil {
		t.Errorf("Reserve of a release of what is in the file = %v, want nil", err)
	}
	if _, err := limiter[1].Reserve(ctx, quota.Request{Model: "new"}); !errors.As(err, new(*quota.ExceededError)) {
		t.Errorf("Reserve of its model = %v, want refused: they share a limit", err)
	}
}
