package stack

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// Code is the program of the aggregator as Lambda takes it: a zip with an executable named bootstrap.
type Code struct {
	Zip          []byte `json:"zip"`
	Architecture string `json:"architecture"` // arm64 or x86_64
}

// Key is where the code is in the bucket: the same code is there once, and other code never takes its place.
func (c *Code) Key() string {
	sum := sha256.Sum256(c.Zip)
	return "code/" + hex.EncodeToString(sum[:]) + ".zip"
}

// Pack returns the code of an executable for Linux. The same executable gives the same bytes.
func Pack(executable []byte) (*Code, error) {
	architecture, err := architectureOf(executable)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	header := &zip.FileHeader{Name: "bootstrap", Method: zip.Deflate, Modified: time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)}
	header.SetMode(0o755)
	entry, err := w.CreateHeader(header)
	if err == nil {
		_, err = entry.Write(executable)
	}
	if err = errors.Join(err, w.Close()); err != nil {
		return nil, fmt.Errorf("stack: pack the program of the function: %w", err)
	}
	return &Code{Zip: b.Bytes(), Architecture: architecture}, nil
}

// architectureOf returns Lambda's name for the architecture of an executable, and refuses an architecture that it
// cannot start.
func architectureOf(executable []byte) (string, error) {
	file, err := elf.NewFile(bytes.NewReader(executable))
	if err != nil {
		return "", fmt.Errorf("stack: the program of the function is not an executable for Linux: %w", err)
	}
	switch file.Machine {
	case elf.EM_AARCH64:
		return "arm64", nil
	case elf.EM_X86_64:
		return "x86_64", nil
	default:
		return "", fmt.Errorf("stack: the program of the function is for %s; Lambda has arm64 and x86_64", file.Machine)
	}
}

// Unpack returns the code of a zip, and refuses one that Lambda could not start.
func Unpack(content []byte) (*Code, error) {
	r, err := zip.NewReader(bytes.NewReader(content), int64(len(content)))
	if err != nil {
		return nil, fmt.Errorf("stack: the code is no zip: %w", err)
	}
	entry, err := r.Open("bootstrap")
	if err != nil {
		return nil, errors.New("stack: the zip has no file bootstrap")
	}
	defer func() { _ = entry.Close() }() // it was only read
	executable, err := io.ReadAll(entry)
	if err != nil {
		return nil, fmt.Errorf("stack: read the zip: %w", err)
	}
	if info, err := entry.Stat(); err == nil && info.Mode()&0o111 == 0 {
		return nil, errors.New("stack: bootstrap is not executable in the zip")
	}
	architecture, err := architectureOf(executable)
	if err != nil {
		return nil, err
	}
	return &Code{Zip: content, Architecture: architecture}, nil
}

// Self returns the code of this version. A release has it inside, for arm64. Another build takes the running executable
// on Linux, which must be the command zlimit. Elsewhere the go command builds a program of the same version, from
// sources on this machine or in the module cache.
func Self(ctx context.Context) (*Code, error) { return self(ctx, runtime.GOOS, embedded) }

// self is Self on an operating system, with the zip that a release has inside, nil for none.
func self(ctx context.Context, system string, inside []byte) (*Code, error) {
	switch {
	case inside != nil:
		return Unpack(inside)
	case system != "linux":
		return build(ctx)
	}
	path, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("stack: find the running program: %w", err)
	}
	executable, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("stack: read the running program: %w", err)
	}
	return Pack(executable)
}

const command = "github.com/zlimit/zlimit-go/cmd/zlimit"

// build builds the function of this version for arm64.
func build(ctx context.Context) (*Code, error) {
	dir, err := os.MkdirTemp("", "zlimit-build-")
	if err != nil {
		return nil, fmt.Errorf("stack: build the function: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "bootstrap")
	target := command
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		target += "@" + info.Main.Version
	}
	args := []string{"build", "-trimpath", "-tags", "lambda.norpc", "-o", path, target}
	if target != command { // of another module than the one around
		module := filepath.Join(dir, "go.mod")
		text := "module build\n\nrequire github.com/zlimit/zlimit-go " + target[len(command)+1:] + "\n"
		if err := os.WriteFile(module, []byte(text), 0o600); err != nil {
			return nil, fmt.Errorf("stack: build the function: %w", err)
		}
		args = []string{"build", "-mod=mod", "-modfile", module, "-trimpath", "-tags", "lambda.norpc", "-o", path, command}
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH=arm64", "CGO_ENABLED=0", "GOPROXY=off")
	if output, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("stack: build the function: %w: %s; give its zip instead", err, bytes.TrimSpace(output))
	}
	executable, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("stack: build the function: %w", err)
	}
	return Pack(executable)
}

// upload puts the code into the bucket of the stack, unless it is there.
func (b bucket) upload(ctx context.Context, c *Code) error {
	key := c.Key()
	_, err := call(ctx, b.account, b.clients.S3.HeadObject, &s3.HeadObjectInput{Bucket: &b.name, Key: &key})
	switch {
	case err == nil:
		return nil
	case !hasCode(err, "NotFound", "NoSuchKey"):
		return fmt.Errorf("look for the code in the bucket: %w", err)
	}
	if err := b.put(ctx, key, "application/zip", c.Zip); err != nil {
		return fmt.Errorf("upload the code: %w", err)
	}
	return nil
}

// put stores an object. A call that was throttled may have read the content, so each one reads it from its beginning.
func (b bucket) put(ctx context.Context, key, contentType string, content []byte) error {
	put := func(ctx context.Context, in *s3.PutObjectInput, opts ...func(*s3.Options)) (*s3.PutObjectOutput, error) {
		in.Body = bytes.NewReader(content)
		return b.clients.S3.PutObject(ctx, in, opts...)
	}
	_, err := call(ctx, b.account, put, &s3.PutObjectInput{Bucket: &b.name, Key: &key, ContentType: &contentType})
	return err
}
