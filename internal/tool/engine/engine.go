// Package engine installs the DynamoDB engine that the tests and `zlimit local` run. It pins the engine's version, the
// npm package for each platform, and the hash that package must have.
package engine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

// Version is the engine's version. The Makefile reads it from this line.
const Version = "1.2.1"

// binary is the name of the engine's executable.
const binary = "dynoxide"

// Package is an npm package that carries the engine for one platform.
type Package struct {
	// Name is the package's name without a version.
	Name string
	// Integrity is the hash of the package's tarball, in the form npm prints it:
	// "sha512-" and the base64 of the sum.
	Integrity string
	// Entry is the engine's path inside the tarball.
	Entry string
}

// packages holds one package per platform, keyed by "GOOS/GOARCH". A platform
// is listed once the hash of its package has been seen.
var packages = map[string]Package{
	"linux/amd64": {
		Name:      "@dynoxide/linux-x64",
		Integrity: "sha512-sBHqlxJ9ANkLluFkYRfd5r8Y0ApFew4FhOrlhgRAgD4XzEoFOukEo1nuBTQ1+jTtofqwn4NWQ2k0Tn5mNTjgUg==",
		Entry:     "package/" + binary,
	},
}

// For returns the package for a platform, named as GOOS and GOARCH are, and
// whether there is one.
func For(goos, goarch string) (Package, bool) {
	p, ok := packages[goos+"/"+goarch]
	return p, ok
}

// Cache returns where make installs the engine, below the module's root directory.
func Cache(root string) string { return filepath.Join(root, ".cache", "engine") }

// Path returns where the engine is installed below a directory.
func Path(dir string) string { return filepath.Join(dir, Version, binary) }

// ErrNone says that no engine is pinned for the platform.
var ErrNone = errors.New("no pinned engine for " + runtime.GOOS + "/" + runtime.GOARCH)

// Install makes sure that the engine is installed below a directory, and returns its path. It needs npm alone, does nothing
// when the engine is there, and never leaves half of one behind. If none is pinned it returns [ErrNone].
func Install(dir string) (path string, err error) {
	path = Path(dir)
	if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
		return path, nil
	}
	pkg, ok := For(runtime.GOOS, runtime.GOARCH)
	if !ok {
		return "", ErrNone
	}
	dir = filepath.Dir(path)
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

	tarball, err := pack(work, pkg.Name+"@"+Version)
	if err != nil {
		return "", err
	}
	if err := verify(tarball, pkg.Integrity); err != nil {
		return "", fmt.Errorf("%s@%s: %w", pkg.Name, Version, err)
	}
	part := filepath.Join(work, filepath.Base(path))
	if err := extract(tarball, pkg.Entry, part); err != nil {
		return "", fmt.Errorf("%s@%s: %w", pkg.Name, Version, err)
	}
	if err := os.Rename(part, path); err != nil {
		return "", err
	}
	return path, nil
}
