package quota

import "maps"

// Provider names a set of default quotas.
type Provider string

// The providers. Local has no default quotas: what its hardware bears is for
// the caller to say.
const (
	ProviderGemini    Provider = "gemini"
	ProviderOpenAI    Provider = "openai"
	ProviderAnthropic Provider = "anthropic"
	ProviderLocal     Provider = "local"
)

// Limits that several models of a provider have. Where a provider does not publish
// those of a model, it has the ones of the model before it.
var (
	geminiPro   = ModelQuota{MaxRPM: 150, MaxTPM: 1_000_000, MaxRPD: 1_000}
	geminiFlash = ModelQuota{MaxRPM: 1_000, MaxTPM: 1_000_000, MaxRPD: 10_000}
	gptLarge    = ModelQuota{MaxRPM: 500, MaxTPM: 30_000}
	gptSmall    = ModelQuota{MaxRPM: 500, MaxTPM: 200_000}
	gpt5        = ModelQuota{MaxRPM: 500, MaxTPM: 500_000}
	claude      = ModelQuota{MaxRPM: 50, MaxInputTPM: 30_000, MaxOutputTPM: 8_000}
	claudeHaiku = ModelQuota{MaxRPM: 50, MaxInputTPM: 50_000, MaxOutputTPM: 10_000}
	claudeFable = ModelQuota{MaxRPM: 1_000, MaxInputTPM: 500_000, MaxOutputTPM: 100_000}
)

// profile returns the quotas of a new account that pays, with the models of
// October 2026. Accounts differ; Config.Quotas and SetQuota override them. A
// release of a model, such as gpt-4o-2024-11-20, has no line of its own.
func (p Provider) profile() map[string]ModelQuota {
	switch p {
	case ProviderGemini:
		return map[string]ModelQuota{
			"gemini-3.8-flash":       geminiFlash,
			"gemini-3.7-flash":       geminiFlash,
			"gemini-3.6-flash":       geminiFlash,
			"gemini-3.5-flash":       geminiFlash,
			"gemini-3.5-flash-lite":  geminiFlash,
			"gemini-3.1-pro-preview": geminiPro,
			"gemini-3.1-flash-lite":  geminiFlash,
			"gemini-3-pro-preview":   geminiPro,
			"gemini-3-flash-preview": {MaxRPM: 150, MaxTPM: 1_000_000, MaxRPD: 1_000},
			"gemini-2.5-pro":         geminiPro,
			"gemini-2.5-flash":       geminiFlash,
			"gemini-2.5-flash-lite":  {MaxRPM: 4_000, MaxTPM: 4_000_000},
			"gemini-2.0-flash":       {MaxRPM: 150, MaxTPM: 1_000_000},
			"gemini-2.0-flash-lite":  {},
		}
	case ProviderOpenAI:
		return map[string]ModelQuota{
			"gpt-5.5":      gpt5,
			"gpt-5.4":      gpt5,
			"gpt-5.2":      gpt5,
			"gpt-5.1":      gpt5,
			"gpt-5":        gpt5,
			"gpt-5-mini":   gpt5,
			"gpt-5-nano":   gptSmall,
			"gpt-4.1":      gptLarge,
			"gpt-4.1-mini": gptSmall,
			"gpt-4.1-nano": gptSmall,
			"gpt-4o":       gptLarge,
			"gpt-4o-mini":  gptSmall,
			"gpt-4-turbo":  gptLarge,
			"o4-mini":      {MaxRPM: 1_000, MaxTPM: 100_000},
			"o3":           gptLarge,
			"o3-mini":      gptSmall,
			"o1":           gptLarge,
			"o1-mini":      gptSmall,
		}
	case ProviderAnthropic:
		return map[string]ModelQuota{
			"claude-fable-5-1":  claudeFable,
			"claude-fable-5":    claudeFable,
			"claude-opus-5-5":   claude,
			"claude-opus-5":     claude,
			"claude-opus-4-8":   claude,
			"claude-opus-4-7":   claude,
			"claude-opus-4-6":   claude,
			"claude-opus-4-5":   claude,
			"claude-opus-4-1":   claude,
			"claude-opus-4":     {MaxRPM: 50, MaxTPM: 40_000},
			"claude-sonnet-5-5": claude,
			"claude-sonnet-5":   claude,
			"claude-sonnet-4-6": claude,
			"claude-sonnet-4-5": claude,
			"claude-sonnet-4":   {MaxRPM: 50, MaxTPM: 40_000},
			"claude-haiku-5-5":  claudeHaiku,
			"claude-haiku-4-5":  claudeHaiku,
			"claude-3-5-haiku":  {MaxRPM: 50, MaxTPM: 50_000},
			"claude-haiku-3.5":  {MaxRPM: 50, MaxTPM: 50_000}, // as older files have it
		}
	default: // Local has no quotas.
		return map[string]ModelQuota{}
	}
}

func (p Provider) validate(field string) error {
	switch p {
	case ProviderGemini, ProviderOpenAI, ProviderAnthropic, ProviderLocal:
		return nil
	}
	return &ValidationError{Field: field, Value: string(p), Rule: `must be "gemini", "openai", "anthropic" or "local"`}
}

// DefaultProfiles returns the default quotas of every provider by model. The
// maps are the caller's to change.
func DefaultProfiles() map[Provider]map[string]ModelQuota {
	out := map[Provider]map[string]ModelQuota{}
	for _, p := range []Provider{ProviderGemini, ProviderOpenAI, ProviderAnthropic, ProviderLocal} {
		out[p] = maps.Clone(p.profile())
	}
	return out
}
