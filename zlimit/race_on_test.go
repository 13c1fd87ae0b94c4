//go:build race

package zlimit_test

// raceEnabled reports whether the race detector is on, which makes pools forget what they hold.
const raceEnabled = true
