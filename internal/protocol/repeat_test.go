package protocol

import (
	"strings"
	"testing"

	"github.com/zlimit/zlimit-go/internal/layout"
)

// TestRepeatDue checks what writes of several items are to repeat.
func TestRepeatDue(t *testing.T) {
	b := newBucket("n", "e", "r")
	for name, test := range map[string]struct {
		repeat *Repeat
		shard  int
		image  image
		now    int64
		want   bool
	}{
		"nothing":                    {nil, 0, image{exists: true, size: 400}, 10, false},
		"the first item":             {&Repeat{Until: 10}, 0, image{exists: true, size: 400}, 10, true},
		"a new item":                 {&Repeat{Until: 10}, 0, image{}, 10, true},
		"another shard":              {&Repeat{Until: 10}, 1, image{exists: true, size: 400}, 10, false},
		"too late":                   {&Repeat{Until: 10}, 0, image{exists: true, size: 400}, 11, false},
		"no room in its write unit":  {&Repeat{Until: 10}, 0, image{exists: true, size: 1000}, 10, false},
		"room in a second one":       {&Repeat{Until: 10}, 0, image{exists: true, size: 1030}, 10, true},
		"levels that take more room": {&Repeat{Until: 10, Repeated: layout.Repeated{Levels: strings.Repeat("x", 600)}}, 0, image{exists: true, size: 400}, 10, false},
	} {
		if got := test.repeat.due(b.shard(test.shard), &test.image, test.now); (got != nil) != test.want {
			t.Errorf("%s: due() = %v, want %t", name, got, test.want)
		}
	}
}
