// Package soak chooses between the usual and the long form of a test.
//
// make test runs the usual form. It has each case once, as small as shows a defect. make soak sets ZLIMIT_SOAK=1 and runs the
// long form every night: more programs, higher rates, every combination.
package soak

import "os"

// Runs reports whether tests run in their long form.
func Runs() bool { return os.Getenv("ZLIMIT_SOAK") != "" }

// Pick returns the usual value of a test's parameter, or that of the long form.
func Pick[T any](usual, long T) T {
	if Runs() {
		return long
	}
	return usual
}
