package cli

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/zlimit"
)

// Bounds of the completions for a shell: it waits for each word.
const (
	completionTimeout = 2 * time.Second
	maxCompletions    = 100
)

// A completion offers names with the typed beginning.
type completion func(ctx context.Context, l *zlimit.RateLimiter, typed string) ([]string, error)

// completeNames makes all commands offer names from the store. They do so for the words ENTITY, RESOURCE and NAME of
// their lines of use, and for the flags of those names.
func completeNames(sh *shell.Shell, cmd *cobra.Command) {
	offers := map[string]completion{"ENTITY": completeEntities, "TEAM": completeEntities, "RESOURCE": completeResources, "[RESOURCE]": completeResources}
	if cmd.HasParent() && cmd.Parent().Name() == "namespace" {
		offers["NAME"] = completeNamespaces
	}
	words := strings.Fields(cmd.Use)[1:]
	if len(words) > 0 && offers[words[0]] != nil {
		cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
			if len(args) >= len(words) || offers[words[len(args)]] == nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return complete(cmd.Context(), sh, offers[words[len(args)]], typed)
		}
	}
	for flag, offer := range map[string]completion{
		"entity": completeEntities, "parent": completeEntities, "key": completeEntities, "resource": completeResources, "model": completeResources, "namespace": completeNamespaces,
	} {
		ofTeam := flag == "key" || flag == "model" // which other commands mean something else by
		if cmd.Flag(flag) == nil || flag == "namespace" && cmd.HasParent() || ofTeam && cmd.Parent().Name() != "team" {
			continue
		}
		err := cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
			return complete(cmd.Context(), sh, offer, typed)
		})
		if err != nil {
			panic(err) // the flag is there, and is registered once
		}
	}
	for _, sub := range cmd.Commands() {
		completeNames(sh, sub)
	}
}

// strictCompletion adds the command that writes scripts for shells. It refuses unknown shells.
func strictCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() != "completion" {
			continue
		}
		cmd.Args, cmd.RunE = shell.NoSuchCommand, func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		for _, script := range cmd.Commands() {
			script.Args = shell.Takes()
		}
	}
}

// complete asks the store for names. A store that does not answer in time, or at all, has none.
func complete(ctx context.Context, sh *shell.Shell, offer completion, typed string) ([]string, cobra.ShellCompDirective) {
	const directive = cobra.ShellCompDirectiveNoFileComp
	dsn, err := sh.DSN()
	if err != nil || sh.CheckFile(dsn) != nil {
		return nil, directive
	}
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	names, err := shell.Perform(ctx, sh, dsn, func(ctx context.Context, l *zlimit.RateLimiter) ([]string, error) { return offer(ctx, l, typed) })
	if err != nil {
		return nil, directive
	}
	var matching []string
	for _, name := range names {
		if strings.HasPrefix(name, typed) && len(matching) < maxCompletions {
			matching = append(matching, name)
		}
	}
	return matching, directive
}

func completeEntities(ctx context.Context, l *zlimit.RateLimiter, typed string) (names []string, err error) {
	for e, err := range l.Entities.List(ctx, zlimit.EntityQuery{Prefix: typed, Limit: maxCompletions}) {
		if err != nil {
			return names, err
		}
		names = append(names, e.ID)
	}
	return names, nil
}

func completeResources(ctx context.Context, l *zlimit.RateLimiter, _ string) ([]string, error) {
	return shell.Resources(ctx, l)
}

func completeNamespaces(ctx context.Context, l *zlimit.RateLimiter, _ string) (names []string, err error) {
	for ns, err := range l.Namespaces.List(ctx) {
		if err != nil {
			return names, err
		}
		names = append(names, ns.Name)
	}
	return names, nil
}

func manCommand(sh *shell.Shell) *cobra.Command {
	return &cobra.Command{
		Use:   "man DIR",
		Short: "Write manual pages",
		Long: `Man writes a manual page for each command to a directory, which it makes where
it is missing.`,
		Example: `  zlimit man /usr/local/share/man/man1`,
		Args:    shell.Takes("DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := args[0]
			if dir == "" {
				return shell.Usagef("man: DIR \"\": must name a directory")
			}
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return err
			}
			root := cmd.Root()
			root.DisableAutoGenTag = true
			date := sh.Now()
			if err := doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "zlimit", Manual: "zlimit", Date: &date}, dir); err != nil {
				return fmt.Errorf("write the manual pages: %w", err)
			}
			pages, err := os.ReadDir(dir)
			if err != nil {
				return err
			}
			n := 0
			for _, p := range pages {
				if strings.HasPrefix(p.Name(), "zlimit") && strings.HasSuffix(p.Name(), ".1") {
					n++
				}
			}
			return sh.Print(map[string]any{"directory": dir, "pages": n}, func(p *show.Page) { p.Linef("%s: %s", dir, show.Counted(n, "page")) })
		},
	}
}
