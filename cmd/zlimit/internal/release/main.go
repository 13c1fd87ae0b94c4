// Command release builds the programs of a release: the command zlimit for each platform, with the function of Lambda
// inside. Beside them it writes a list of the modules in them, and SHA256SUMS with the hashes of all. The sums are
// signed where cosign is installed. With -image it writes an image of zlimitd instead. The same source and the same Go
// give the same bytes, wherever the source is.
package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"

	"github.com/zlimit/zlimit-go/internal/tool/materials"
	"github.com/zlimit/zlimit-go/stack"
	"github.com/zlimit/zlimit-go/zlimit"
)

// platforms of a release, as Go names them.
const platforms = "darwin/amd64,darwin/arm64,linux/amd64,linux/arm64,windows/amd64,windows/arm64"

func main() {
	r := release{progress: os.Stdout}
	flag.StringVar(&r.out, "out", "dist", "the directory of the programs; made where it is missing")
	flag.StringVar(&r.tag, "tag", "", "the tag of the release, which must be that of the version; not checked when it is empty")
	tags := flag.Bool("tag-modules", false, "tag all modules of the commit of this version, and build nothing")
	list := flag.String("platforms", "", "platforms, with commas between; all of a release, or of an image, when it is empty")
	picture := image{build: buildServer}
	flag.StringVar(&picture.out, "image", "", "write an image of zlimitd to this directory, which must not exist, and nothing else")
	flag.StringVar(&picture.certificates, "certificates", "/etc/ssl/certs/ca-certificates.crt", "the file of the certificates of authorities, for an image")
	flag.Parse()
	r.platforms = strings.Split(cmp.Or(*list, platforms), ",")
	picture.platforms = strings.Split(cmp.Or(*list, "linux/amd64,linux/arm64"), ",")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	run := r.make
	switch {
	case *tags:
		run = r.tagModules
	case picture.out != "":
		run = picture.write
	}
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1) //nolint:gocritic // the signal handler ends with the process
	}
}

type release struct {
	out, tag  string
	platforms []string
	progress  io.Writer
}

func (r *release) make(ctx context.Context) error {
	if want := "v" + zlimit.Version; r.tag != "" && r.tag != want {
		return fmt.Errorf("-tag %s: this is version %s, whose tag is %s", r.tag, zlimit.Version, want)
	}
	for _, platform := range r.platforms {
		if system, architecture, ok := strings.Cut(platform, "/"); !ok || system == "" || architecture == "" {
			return fmt.Errorf("-platforms: %q is not of the form linux/arm64", platform)
		}
	}
	work, err := os.MkdirTemp("", "zlimit-release-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }() // of this run alone
	overlay, err := function(ctx, work)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil { //nolint:gosec // programs for everybody
		return err
	}
	var sums strings.Builder
	note := func(name string) error {
		content, err := os.ReadFile(filepath.Join(r.out, name))
		if err != nil {
			return err
		}
		line := fmt.Sprintf("%x  %s\n", sha256.Sum256(content), name)
		sums.WriteString(line)
		_, err = io.WriteString(r.progress, line)
		return err
	}
	var programs []string
	for _, platform := range r.platforms {
		system, architecture, _ := strings.Cut(platform, "/")
		name := strings.Join([]string{"zlimit", zlimit.Version, system, architecture}, "-")
		if system == "windows" {
			name += ".exe"
		}
		path := filepath.Join(r.out, name)
		if err := build(ctx, path, system, architecture, command, "-tags", "embed_function", "-overlay", overlay); err != nil {
			return err
		}
		programs = append(programs, path)
		if err := note(name); err != nil {
			return err
		}
	}
	bill, err := materials.List(module, "v"+zlimit.Version, programs...)
	if err != nil {
		return err
	}
	name := "zlimit-" + zlimit.Version + ".cdx.json"
	if err := os.WriteFile(filepath.Join(r.out, name), bill, 0o644); err != nil { //nolint:gosec // for everybody
		return err
	}
	if err := note(name); err != nil {
		return err
	}
	path := filepath.Join(r.out, "SHA256SUMS")
	if err := os.WriteFile(path, []byte(sums.String()), 0o644); err != nil { //nolint:gosec // for everybody
		return err
	}
	return r.sign(ctx, path)
}

// sign signs a file with cosign, with the identity of the workflow or of the person who runs it. If cosign is not installed, it says so.
func (r *release) sign(ctx context.Context, path string) error {
	cosign, err := exec.LookPath("cosign")
	if err != nil {
		_, err = io.WriteString(r.progress, "not signed: cosign is not installed\n")
		return err
	}
	cmd := exec.CommandContext(ctx, cosign, "sign-blob", "--yes", "--bundle", path+".sigstore.json", path)
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("sign %s: %w: %s", path, err, output)
	}
	return nil
}

// function builds the function of Lambda, and returns the overlay that puts its zip beside the source of package stack.
func function(ctx context.Context, work string) (overlay string, err error) {
	bootstrap := filepath.Join(work, "bootstrap")
	if err := build(ctx, bootstrap, "linux", "arm64", command, "-tags", "lambda.norpc"); err != nil {
		return "", err
	}
	executable, err := os.ReadFile(bootstrap)
	if err != nil {
		return "", err
	}
	code, err := stack.Pack(executable)
	if err != nil {
		return "", err
	}
	packed := filepath.Join(work, "function.zip")
	if err := os.WriteFile(packed, code.Zip, 0o600); err != nil {
		return "", err
	}
	root, err := goTool(ctx, nil, "list", "-m", "-f", "{{.Dir}}")
	if err != nil {
		return "", err
	}
	place := filepath.Join(strings.TrimSpace(root), "stack", "function.zip")
	text, err := json.Marshal(map[string]any{"Replace": map[string]string{place: packed}})
	if err != nil {
		return "", err
	}
	overlay = filepath.Join(work, "overlay.json")
	return overlay, os.WriteFile(overlay, text, 0o600)
}

// command is the path of the command zlimit.
const command = module + "/cmd/zlimit"

// build builds a program for a platform. Differences between machines stay out of the program: paths, the
// state of version control, and additions of a C compiler.
func build(ctx context.Context, path, system, architecture, program string, flags ...string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	args := append(append([]string{"build"}, flags...), "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -buildid=", "-o", path)
	_, err = goTool(ctx, []string{"GOOS=" + system, "GOARCH=" + architecture, "GOAMD64=v1", "GOARM64=v8.0", "CGO_ENABLED=0", "GOFLAGS="},
		append(args, program)...)
	return err
}

func goTool(ctx context.Context, env []string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), env...)
	return outputOf(cmd)
}

// outputOf returns what a command prints. The error of one that fails has what it says of that.
func outputOf(cmd *exec.Cmd) (string, error) {
	output, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, strings.TrimSpace(string(exit.Stderr)))
	}
	return string(output), err
}
