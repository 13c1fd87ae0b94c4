// Package release pins the DynamoDB engine that the tests run against. It has
// the engine's version, the npm package for each platform, and the hash that
// package must have.
package release

import "path/filepath"

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

// Path returns where the engine is installed below the module's root directory.
func Path(root string) string {
	return filepath.Join(root, ".cache", "engine", Version, binary)
}
