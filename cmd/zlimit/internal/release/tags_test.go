package main

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
)

const root = "../../../.."

// TestPublished knows every module of the repository, as one that users get or as one for tests and tools.
func TestPublished(t *testing.T) {
	others := []string{"examples", "tools", "httplimit/sfvtest", "quota/bench", "dashboard/browsertest", "stack/hcltest", "zlimit/bench"}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (strings.HasPrefix(d.Name(), ".") && path != root || d.Name() == "testdata"):
			return filepath.SkipDir
		case d.Name() != "go.mod":
			return nil
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		if err == nil && !slices.Contains(published, dir) && !slices.Contains(others, dir) {
			t.Errorf("module %s is neither published nor known as one that is not", dir)
		}
		return err
	})
	check.Fatal(t, "filepath.WalkDir()", err)
	for _, dir := range published[1:] {
		text := check.Call(os.ReadFile(filepath.Join(root, dir, "go.mod"))).Must(t, "os.ReadFile()")
		got := required(string(text))
		if strings.Contains(got, "replace") || ours.MatchString(got) || !strings.Contains(got, module+" v"+zlimit.Version+"\n") {
			t.Errorf("%s is released with\n%s", dir, got)
		}
	}
}

// TestTags tags a copy of the repository, and gets all its published modules through a file proxy, as users do. The
// packages of all modules are found, and go install takes the command.
func TestTags(t *testing.T) {
	if os.Getenv("ZLIMIT_RELEASE") == "" {
		t.Skip("unpacks all modules: the nightly run sets ZLIMIT_RELEASE=1")
	}
	ctx, dir := t.Context(), t.TempDir()
	command := func(in string, env []string, name string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Dir, cmd.Env = in, append(os.Environ(), env...)
		output, err := cmd.Output()
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			t.Fatalf("%s %v: %v\n%s", name, args, err, exit.Stderr)
		} else if err != nil {
			t.Fatalf("Output() = %v", err)
		}
		return string(output)
	}
	copied, proxy := filepath.Join(dir, "copy"), filepath.Join(dir, "proxy")
	tree := check.Call(filepath.Abs(root)).Must(t, "filepath.Abs()")
	t.Setenv("GIT_AUTHOR_NAME", "a")
	t.Setenv("GIT_AUTHOR_EMAIL", "a@b")
	t.Setenv("GIT_COMMITTER_NAME", "a")
	t.Setenv("GIT_COMMITTER_EMAIL", "a@b")
	command(dir, nil, "git", "init", "-q", copied)
	as := []string{"GIT_DIR=" + filepath.Join(copied, ".git"), "GIT_WORK_TREE=" + tree}
	command(tree, as, "git", "add", ".")
	command(tree, as, "git", "commit", "-q", "-m", "all")
	tags, err := tag(ctx, copied)
	if err != nil || len(tags) != len(published) || !slices.Contains(tags, "llm/v"+zlimit.Version) {
		t.Fatalf("tag() = %v, %v", tags, err)
	}
	if _, err := tag(ctx, copied); err == nil || !strings.Contains(err.Error(), "there are tags already") {
		t.Errorf("tagging again: %v, want an error", err)
	}

	const version = "v" + zlimit.Version
	var gets []string
	for i, sub := range published {
		path := strings.TrimSuffix(module+"/"+sub, "/.")
		gets = append(gets, path+"@"+version)
		at := filepath.Join(proxy, filepath.FromSlash(path), "@v")
		check.Fatal(t, "os.MkdirAll()", os.MkdirAll(at, 0o755))
		tree, args := strings.TrimSuffix(tags[i]+":"+sub, ":."), []string{"."}
		for _, file := range strings.Fields(command(copied, nil, "git", "ls-tree", "-r", "--name-only", tree)) {
			if nested, ok := strings.CutSuffix(file, "/go.mod"); ok {
				args = append(args, ":(exclude)"+nested)
			}
		}
		archive := append([]string{"archive", "--format=zip", "--prefix=" + path + "@" + version + "/", "-o", filepath.Join(at, version+".zip"), tree, "--"}, args...)
		command(copied, nil, "git", archive...)
		for name, text := range map[string]string{
			"list": version + "\n", version + ".info": `{"Version":"` + version + `","Time":"2026-03-01T12:00:00Z"}`,
			version + ".mod": command(copied, nil, "git", "show", strings.TrimSuffix(tags[i]+":"+sub, ".")+map[bool]string{true: "go.mod", false: "/go.mod"}[sub == "."]),
		} {
			check.Fatal(t, "os.WriteFile()", os.WriteFile(filepath.Join(at, name), []byte(text), 0o600))
		}
	}

	known := strings.TrimSpace(command(dir, nil, "go", "env", "GOMODCACHE"))
	env := []string{
		"GOPROXY=file://" + proxy + ",file://" + known + "/cache/download", "GOSUMDB=off", "GOFLAGS=-mod=mod -modcacherw",
		"GOMODCACHE=" + filepath.Join(dir, "modules"), "GOWORK=off", "GOBIN=" + filepath.Join(dir, "bin"),
	}
	user := filepath.Join(dir, "user")
	check.Fatal(t, "os.MkdirAll()", os.MkdirAll(user, 0o755))
	program := "package main\n\nimport (\n"
	for _, sub := range []string{"zlimit", "zlimit/blocking", "aggregator", "stack", "httplimit", "quota", "price", "llm", "otelzlimit", "grpclimit", "connectlimit", "envoylimit", "dashboard"} {
		program += "\t_ \"" + module + "/" + sub + "\"\n"
	}
	for name, text := range map[string]string{"go.mod": "module user\n\ngo 1.26.0\n", "main.go": program + ")\n\nfunc main() {}\n"} {
		check.Fatal(t, "os.WriteFile()", os.WriteFile(filepath.Join(user, name), []byte(text), 0o600))
	}
	command(user, env, "go", append([]string{"get"}, gets...)...)
	if got := command(user, env, "go", "list", "-deps", "-f", "{{with .Module}}{{.Path}} {{.Version}}{{end}}", "."); !strings.Contains(got, module+"/otelzlimit "+version) || strings.Contains(got, module+" v0.0.0") {
		t.Errorf("the packages that a user gets are of\n%s", got)
	}
	command(dir, env, "go", "install", "-n", module+"/cmd/zlimit@"+version)
}
