// Command fetch installs the pinned DynamoDB engine into the module's cache
// directory. It needs npm alone, does nothing when the engine is there, and
// never leaves half of one behind.
//
// Usage, from the module's root:
//
//	go run ./internal/enginetest/fetch
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/zlimit/zlimit-go/internal/enginetest/release"
)

func main() {
	path, err := fetch(".")
	if err == nil {
		_, err = fmt.Fprintln(os.Stdout, path)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "fetch:", err)
		os.Exit(1)
	}
}

// fetch makes sure that the engine is installed below root and returns its path.
func fetch(root string) (path string, err error) {
	path = release.Path(root)
	if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
		return path, nil
	}
	pkg, ok := release.For(runtime.GOOS, runtime.GOARCH)
	if !ok {
		return "", fmt.Errorf("no pinned engine for %s/%s: set ZLIMIT_ENGINE to the path of a dynoxide %s, or ZLIMIT_TEST_ENDPOINT to a DynamoDB endpoint",
			runtime.GOOS, runtime.GOARCH, release.Version)
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	// The work directory is beside the target, so that the rename stays within
	// one file system.
	work, err := os.MkdirTemp(dir, ".fetch-")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()

	tarball, err := pack(work, pkg.Name+"@"+release.Version)
	if err != nil {
		return "", err
	}
	if err := verify(tarball, pkg.Integrity); err != nil {
		return "", fmt.Errorf("%s@%s: %w", pkg.Name, release.Version, err)
	}
	part := filepath.Join(work, filepath.Base(path))
	if err := extract(tarball, pkg.Entry, part); err != nil {
		return "", fmt.Errorf("%s@%s: %w", pkg.Name, release.Version, err)
	}
	if err := os.Rename(part, path); err != nil {
		return "", err
	}
	return path, nil
}
