package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/zlimit/zlimit-go/zlimit"
)

const module = "github.com/zlimit/zlimit-go"

// published are the directories of the modules that users get, the root first. The others serve tests and tools.
var published = []string{".", "llm", "otelzlimit", "grpclimit", "connectlimit", "envoylimit", "dashboard", "server"}

func tagOf(dir string) string { return path.Join(dir, "v"+zlimit.Version) }

// tag tags every published module of the commit that a repository is at, and returns the tags. In the tree, modules replace one another by
// their directories, which go get does not. So the tags are of a commit behind it, in which they require one another by this version. Neither
// a branch nor a file changes. Tags that are there already are an error.
func tag(ctx context.Context, repository string) ([]string, error) {
	work, err := os.MkdirTemp("", "zlimit-tag-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(work) }() // of this run alone
	g := git{dir: repository, index: filepath.Join(work, "index")}
	var tags []string
	for _, dir := range published {
		tags = append(tags, tagOf(dir))
	}
	if there, err := g.run(ctx, nil, append([]string{"tag", "--list"}, tags...)...); err != nil || there != "" {
		return nil, errors.Join(err, fmt.Errorf("there are tags already: %s", strings.Fields(there)))
	}
	if _, err := g.run(ctx, nil, "read-tree", "HEAD"); err != nil {
		return nil, err
	}
	for _, dir := range published[1:] {
		file := path.Join(dir, "go.mod")
		text, err := g.run(ctx, nil, "show", "HEAD:"+file)
		if err != nil {
			return nil, err
		}
		hash, err := g.run(ctx, []byte(required(text)), "hash-object", "-w", "--stdin")
		if err == nil {
			_, err = g.run(ctx, nil, "update-index", "--cacheinfo", "100644,"+strings.TrimSpace(hash)+","+file)
		}
		if err != nil {
			return nil, err
		}
	}
	tree, err := g.run(ctx, nil, "write-tree")
	if err != nil {
		return nil, err
	}
	commit, err := g.run(ctx, nil, "commit-tree", strings.TrimSpace(tree), "-p", "HEAD", "-m", "Release v"+zlimit.Version)
	if err != nil {
		return nil, err
	}
	for _, tag := range tags {
		if _, err := g.run(ctx, nil, "tag", "-a", "-m", tag, tag, strings.TrimSpace(commit)); err != nil {
			return nil, err
		}
	}
	return tags, nil
}

// tagModules tags the modules of this commit, and prints the command that publishes the tags.
func (r *release) tagModules(ctx context.Context) error {
	tags, err := tag(ctx, ".")
	if err == nil {
		_, err = fmt.Fprintln(r.progress, "git push origin", strings.Join(tags, " "))
	}
	return err
}

var (
	ours     = regexp.MustCompile(`(?m)^((?:require )?\t?` + regexp.QuoteMeta(module) + `(?:/[a-z]+)?) v0\.0\.0(?:-[0-9a-f-]+)?$`)
	replaces = regexp.MustCompile(`(?m)^replace (?:\((?:\n\t[^\n]+)+\n\)|[^\n(]+)\n\n?`)
)

// required returns a go.mod in which modules of this repository are required by this version, and not replaced.
func required(text string) string {
	return ours.ReplaceAllString(replaces.ReplaceAllString(text, ""), "$1 v"+zlimit.Version)
}

// A git runs git in a repository, on an index of its own.
type git struct{ dir, index string }

func (g git) run(ctx context.Context, input []byte, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir, cmd.Stdin, cmd.Env = g.dir, bytes.NewReader(input), append(os.Environ(), "GIT_INDEX_FILE="+g.index)
	return outputOf(cmd)
}
