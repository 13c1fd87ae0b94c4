// Package bench compares a limiter in memory with limiters of one process. It is a module of its own, so that what it
// compares is no dependency of the library. It has no code besides its benchmarks.
package bench
