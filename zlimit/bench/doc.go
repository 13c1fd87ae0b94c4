// Package bench compares a limiter in memory with limiters of one process. It is a module of its own, so that the other
// limiters are no dependencies of the library. It has no code besides its benchmarks.
package bench
