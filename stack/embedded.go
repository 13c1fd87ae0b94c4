//go:build !embed_function

package stack

// embedded is the zip of the function in a release; nil in other builds.
var embedded []byte
