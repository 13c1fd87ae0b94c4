package quotas

import (
	"context"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/quota"
)

// maxCountText bounds the text to be counted, in bytes. No model takes as much.
const maxCountText = 32 << 20

func countCommand(sh *shell.Shell) *cobra.Command {
	var provider, baseURL string
	cmd := &cobra.Command{
		Use:   "count MODEL [TEXT|-]",
		Short: "Ask the provider how many tokens a text has",
		Long: `Count asks the provider of a model how many tokens a text has as its input. The
text is an argument, or is read from the standard input as it is, to the last
line break.

The provider follows from the name of the model, or from --provider. The API
key is in the environment:

  gemini      GEMINI_API_KEY or GOOGLE_API_KEY
  openai      OPENAI_API_KEY
  anthropic   ANTHROPIC_API_KEY`,
		Example: `  zlimit quota count gemini-2.5-pro 'How many tokens are this?'
  zlimit quota count claude-sonnet-4 < prompt.txt`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := shell.Takes("MODEL")(cmd, args[:min(len(args), 1)]); err != nil {
				return err
			}
			if len(args) > 2 {
				return shell.Usagef("quota count: one argument too many, %q; see %s --help", args[2], cmd.CommandPath())
			}
			return quotaCount(cmd.Context(), sh, args[0], args[1:], provider, baseURL)
		},
	}
	cmd.Flags().StringVar(&provider, "provider", "", "`name` of the provider: gemini, openai, anthropic")
	cmd.Flags().StringVar(&baseURL, "base-url", "", "`URL` of the provider's API, or of a proxy")
	return cmd
}

func quotaCount(ctx context.Context, sh *shell.Shell, model string, text []string, providerName, baseURL string) error {
	provider, err := providerOf(model, providerName)
	if err != nil {
		return err
	}
	key, err := keyOf(sh, provider)
	if err != nil {
		return err
	}
	counted, err := counted(sh, text)
	if err != nil {
		return err
	}
	options := []quota.CountOption{quota.CountProvider(provider)}
	if baseURL != "" {
		options = append(options, quota.CountBaseURL(baseURL))
	}
	n, err := quota.CountTokens(ctx, key, model, counted, options...)
	if err != nil {
		return badInput(err)
	}
	type result struct {
		Provider quota.Provider `json:"provider"`
		Model    string         `json:"model"`
		Tokens   int            `json:"tokens"`
	}
	return sh.Print(result{provider, model, n}, func(p *show.Page) { p.Linef("%s tokens", show.Grouped(int64(n))) })
}

func counted(sh *shell.Shell, text []string) (string, error) {
	counted := strings.Join(text, "")
	if len(text) == 0 || counted == "-" {
		read, err := io.ReadAll(io.LimitReader(sh.Stdin, maxCountText+1))
		if err != nil {
			return "", shell.Usagef("quota count: the standard input cannot be read: %v", err)
		}
		counted = string(read)
	}
	switch {
	case len(counted) > maxCountText:
		return "", shell.Usagef("quota count: the text is longer than %d MiB", maxCountText>>20)
	case !utf8.ValidString(counted):
		return "", shell.Usagef("quota count: the text is not UTF-8")
	}
	return counted, nil
}

// keyVariables are the environment variables of API keys, in order of preference.
var keyVariables = map[quota.Provider][]string{
	quota.ProviderGemini:    {"GEMINI_API_KEY", "GOOGLE_API_KEY"},
	quota.ProviderOpenAI:    {"OPENAI_API_KEY"},
	quota.ProviderAnthropic: {"ANTHROPIC_API_KEY"},
}

func keyOf(sh *shell.Shell, p quota.Provider) (string, error) {
	for _, name := range keyVariables[p] {
		if key := sh.Env(name); key != "" {
			return key, nil
		}
	}
	return "", shell.Usagef("quota count: no API key of %s: set %s", p, strings.Join(keyVariables[p], " or "))
}

// providerOf returns the provider of a name, or if that is empty the one whose models have names like this.
func providerOf(model, name string) (quota.Provider, error) {
	if name != "" {
		p := quota.Provider(name)
		if _, counts := keyVariables[p]; !counts {
			return "", shell.Usagef("quota count: --provider %q: must be gemini, openai or anthropic", name)
		}
		return p, nil
	}
	for _, known := range []struct {
		prefix   string
		provider quota.Provider
	}{
		{"models/", quota.ProviderGemini},
		{"gemini-", quota.ProviderGemini},
		{"gemma-", quota.ProviderGemini},
		{"gpt-", quota.ProviderOpenAI},
		{"chatgpt-", quota.ProviderOpenAI},
		{"claude-", quota.ProviderAnthropic},
	} {
		if strings.HasPrefix(model, known.prefix) {
			return known.provider, nil
		}
	}
	if rest, ok := strings.CutPrefix(model, "o"); ok && rest != "" && unicode.IsDigit(rune(rest[0])) { // o1, o3-mini
		return quota.ProviderOpenAI, nil
	}
	return "", shell.Usagef("quota count: the name %q does not show the provider: give --provider", model)
}
