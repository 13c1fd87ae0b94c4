// Package bench compares package quota with other limiters of one process, and
// with the naive sliding window. It is a module of its own, so that users of
// quota do not get the dependencies of the comparison.
//
//	go test -bench . -benchtime 200ms
//
// Compare only numbers of one run, as ratios.
package bench
