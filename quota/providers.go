package quota

import "maps"

// Provider names a set of default quotas.
type Provider string

// The providers. Local has no default quotas: what its hardware bears is for
// the caller to say.
const (
	Gemini    Provider = "gemini"
	OpenAI    Provider = "openai"
	Anthropic Provider = "anthropic"
	Local     Provider = "local"
)

// profiles holds the default quotas as of February 2026. Accounts differ;
// Config.Quotas and SetQuota override them.
func (p Provider) profile() map[string]ModelQuota {
	switch p {
	case Gemini:
		return map[string]ModelQuota{
			"gemini-3-pro-preview":   {MaxRPM: 150, MaxTPM: 1_000_000, MaxRPD: 1_000},
			"gemini-3-flash-preview": {MaxRPM: 150, MaxTPM: 1_000_000, MaxRPD: 1_000},
			"gemini-2.5-pro":         {MaxRPM: 150, MaxTPM: 1_000_000, MaxRPD: 1_000},
			"gemini-2.0-flash":       {MaxRPM: 150, MaxTPM: 1_000_000},
			"gemini-2.0-flash-lite":  {},
		}
	case OpenAI:
		return map[string]ModelQuota{
			"gpt-4o":      {MaxRPM: 500, MaxTPM: 30_000},
			"gpt-4-turbo": {MaxRPM: 500, MaxTPM: 30_000},
			"gpt-4o-mini": {MaxRPM: 500, MaxTPM: 200_000},
			"o1-mini":     {MaxRPM: 500, MaxTPM: 200_000},
			"o1":          {MaxRPM: 500, MaxTPM: 30_000},
			"o3-mini":     {MaxRPM: 500, MaxTPM: 200_000},
		}
	case Anthropic:
		return map[string]ModelQuota{
			"claude-opus-4":    {MaxRPM: 50, MaxTPM: 40_000},
			"claude-sonnet-4":  {MaxRPM: 50, MaxTPM: 40_000},
			"claude-haiku-3.5": {MaxRPM: 50, MaxTPM: 50_000},
		}
	default: // Local has no quotas.
		return map[string]ModelQuota{}
	}
}

func (p Provider) validate(field string) error {
	switch p {
	case Gemini, OpenAI, Anthropic, Local:
		return nil
	}
	return &ValidationError{Field: field, Value: string(p), Rule: `must be "gemini", "openai", "anthropic" or "local"`}
}

// DefaultProfiles returns the default quotas of every provider by model. The
// maps are the caller's to change.
func DefaultProfiles() map[Provider]map[string]ModelQuota {
	out := map[Provider]map[string]ModelQuota{}
	for _, p := range []Provider{Gemini, OpenAI, Anthropic, Local} {
		out[p] = maps.Clone(p.profile())
	}
	return out
}
