package protocol

import (
	"errors"
	"testing"

	"github.com/zlimit/zlimit-go/internal/bucket"
)

// A request is taken again for each shadow limit that refuses it, and ends where the forecast has them all.
func TestForecastEnds(t *testing.T) {
	short := func(name string, mode bucket.Mode) bucket.Status {
		return bucket.Status{Params: bucket.Params{Name: name, Mode: mode}, Short: true}
	}
	refused := func(statuses ...bucket.Status) error {
		return &RejectedError{[]LevelStatus{{Entity: "team", Resource: "gpt-4", Statuses: statuses}}}
	}
	var f forecast
	for i, step := range []struct {
		failure error
		again   bool
		limits  int
	}{
		{refused(short("rpm", bucket.Shadow)), true, 1},
		{refused(short("rpm", bucket.Shadow)), false, 1},
		{refused(short("rpm", bucket.Shadow), short("tpm", bucket.Shadow)), true, 2},
		{refused(short("rpm", bucket.Shadow), short("rpd", bucket.Enforced)), false, 2},
		{errors.New("another failure"), false, 2},
	} {
		if again := f.add(step.failure); again != step.again || len(f) != step.limits {
			t.Errorf("step %d: again %t with %d limits, want %t with %d", i, again, len(f), step.again, step.limits)
		}
	}
}
