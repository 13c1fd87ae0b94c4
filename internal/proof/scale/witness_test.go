package scale

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// TestWitness gives a witness admissions of a bucket of 200 tokens, in which 200 flow in each second: one token in 5 ms.
func TestWitness(t *testing.T) {
	const ms = time.Millisecond
	ceiling := Ceiling{200, 200}
	at := func(n float64, from, to time.Duration) admission { return admission{from, to, n} }
	for name, test := range map[string]struct {
		exact bool
		over  int64
		all   []admission
	}{
		"a full bucket and its refill":                     {exact: true, all: []admission{at(200, 0, 0), at(1, 5*ms, 5*ms)}},
		"within the millisecond of a clock":                {exact: true, all: []admission{at(200, 0, 0), at(1, 4*ms, 4*ms)}},
		"earlier than that":                                {exact: true, over: 1, all: []admission{at(200, 0, 0), at(1, 3*ms, 3*ms)}},
		"a token more, and a fraction":                     {exact: true, over: 2, all: []admission{at(201, 0, 0), at(0.3, 0, 0)}},
		"what flows in within the freshness":               {all: []admission{at(202, 0, 0)}},
		"more than that":                                   {over: 1, all: []admission{at(203, 0, 0)}},
		"a bucket that was full in between":                {exact: true, over: 1, all: []admission{at(9, 0, 0), at(201, 3000*ms, 3000*ms)}},
		"a first answer that comes late":                   {exact: true, all: []admission{at(200, 0, 15*ms), at(3, 15*ms, 16*ms)}},
		"a late answer, and more than flowed in meanwhile": {exact: true, over: 1, all: []admission{at(200, 0, 15*ms), at(4, 15*ms, 16*ms)}},
		"a call within another one":                        {exact: true, over: 1, all: []admission{at(49, 0, 250*ms), at(201, 20*ms, 20*ms)}},
		"a call around another one, and more than both":    {exact: true, over: 1, all: []admission{at(151, 0, 250*ms), at(100, 20*ms, 20*ms)}},
		"tokens that were given back":                      {exact: true, all: []admission{at(200, 0, 0), at(-5, 1*ms, 1*ms), at(5, 1*ms, 1*ms)}},
		"tokens that were given back too late":             {exact: true, over: 5, all: []admission{at(200, 0, 0), at(5, 1*ms, 1*ms), at(-5, 2*ms, 2*ms)}},
	} {
		w := newWitness(map[string]Ceiling{"hot": ceiling}, test.exact)
		for _, a := range test.all {
			w.admitted("hot", a)
			w.admitted("other", a) // it has no ceiling
		}
		if over, _ := w.sum(); over != test.over {
			t.Errorf("%s: %d over, want %d", name, over, test.over)
		}
	}
}

// TestBurst compares bursts of random admissions with the largest sum over all pairs of a beginning and an end.
func TestBurst(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		c := Ceiling{Rate: float64(r.IntN(3)) / 4}
		var all []admission
		for range r.IntN(12) {
			a := admission{from: time.Duration(r.IntN(8)) * time.Second, tokens: float64(1 + r.IntN(3))}
			if a.to = a.from + time.Duration(r.IntN(4))*time.Second; r.IntN(5) == 0 {
				a.to, a.tokens = a.from, -a.tokens
			}
			all = append(all, a)
		}
		want := 0.0
		for _, first := range all {
			for _, last := range all {
				if last.to < first.from {
					continue
				}
				sum := -c.Rate * (last.to - first.from).Seconds()
				for _, a := range all {
					if a.from >= first.from && a.to <= last.to {
						sum += a.tokens
					}
				}
				want = max(want, sum)
			}
		}
		if got := c.burst(all); got != want {
			t.Fatalf("burst(%v) by %v = %v, want %v", all, c.Rate, got, want)
		}
	}
}

// In TestUsedUpLimits, fleets use up a limit of 200 a second, some of them with WithFreshness(0). No interval of the requests has more than
// an ideal bucket. The bucket is used up so far that two tokens more would be seen.
func TestUsedUpLimits(t *testing.T) {
	s := rejections()
	for _, exact := range []bool{false, true} {
		for i := range s.Cases {
			c := &s.Cases[i]
			if !strings.Contains(c.Label, "limit 200 a second") {
				continue
			}
			c.Load.Exact = exact
			c.Load.For, c.Params.Lost = 10*time.Second, 0
			o := run(t, &c.Load, c.Params)
			if o.Over > 0 || o.Left > 0.01 || o.Admitted+o.Rejected < o.Offered {
				t.Errorf("%s, exact: %v: %d over, %.4f left of %+v", c.Label, exact, o.Over, o.Left, o.Tally)
			}
		}
	}
}
