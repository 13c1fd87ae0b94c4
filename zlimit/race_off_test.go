//go:build !race

package zlimit

const raceEnabled = false
