// Package compare fails tests whose values are not as wanted, with messages that show the difference.
package compare

import (
	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/internal/proof/check"
)

// Equal fails the test if a value, such as "statuses", differs from the one that it should be. It lets the test run on.
func Equal(tb check.TB, what string, want, got any, opts ...cmp.Option) {
	tb.Helper()
	if diff := cmp.Diff(want, got, opts...); diff != "" {
		tb.Errorf("%s (-want +got):\n%s", what, diff)
	}
}
