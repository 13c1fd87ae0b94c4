// Package check fails tests whose calls return an error, with messages that name the call.
package check

import "iter"

// A TB is what package testing and rapid give a test.
type TB interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Fatal ends the test if a call, such as "Set()", returned an error. It costs a benchmark nothing unless it fails.
func Fatal(tb TB, call string, err error) {
	if err != nil {
		tb.Helper()
		tb.Fatalf("%s = %v", call, err)
	}
}

// A Result is what a call returned.
type Result[T any] struct {
	value T
	err   error
}

// Call takes the results of a call: check.Call(limiter.Acquire(ctx, request)).Must(t, "Acquire()").
func Call[T any](value T, err error) Result[T] { return Result[T]{value, err} }

// Must returns the value, and ends the test if the call returned an error.
func (r Result[T]) Must(tb TB, call string) T {
	tb.Helper()
	Fatal(tb, call, r.err)
	return r.value
}

// Error fails the test if a call returned an error, and lets it run on: for goroutines and cleanups.
func Error(tb TB, call string, err error) {
	if err != nil {
		tb.Helper()
		tb.Errorf("%s = %v", call, err)
	}
}

// All returns what a sequence yields, and ends the test if it yields an error.
func All[T any](tb TB, call string, seq iter.Seq2[T, error]) (all []T) {
	tb.Helper()
	for value, err := range seq {
		Fatal(tb, call, err)
		all = append(all, value)
	}
	return all
}
