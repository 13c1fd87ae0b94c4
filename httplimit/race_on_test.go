//go:build race

package httplimit_test

// raceEnabled reports whether the race detector is on, which makes pools forget what they hold.
const raceEnabled = true
