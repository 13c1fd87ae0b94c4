package zlimit_test

import (
	"errors"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
	"github.com/zlimit/zlimit-go/internal/proof/soak"
	"github.com/zlimit/zlimit-go/internal/store/dynamo"
	"github.com/zlimit/zlimit-go/zlimit"
)

// In TestClocksAhead, two processes ask twice a second for ten minutes, and the clock of one is ahead. An ideal bucket admits 660. A
// stamp that is set back may admit one capacity more, and neither process starves.
func TestClocksAhead(t *testing.T) {
	for _, ahead := range []time.Duration{12 * time.Second, 30 * time.Second, time.Hour} {
		t.Run(ahead.String(), func(t *testing.T) {
			c, s := newClock(), newMemory(t)
			limiters := []*zlimit.RateLimiter{
				newLimiter(t, s, zlimit.WithClock(c.now)),
				newLimiter(t, s, zlimit.WithClock(func() time.Time { return c.now().Add(ahead) })),
			}
			setSystem(t, limiters[0], zlimit.PerMinute("rpm", 60))
			var admitted [2]int
			for second := range 600 {
				for turn := range 4 {
					at := (second + turn) % 2 // by turns the first one
					admitted[at] += burst(t, limiters[at], 1)
				}
				c.sleep(time.Second)
			}
			if sum := admitted[0] + admitted[1]; sum > 660+60+1 || sum < 600 {
				t.Errorf("%v were admitted, %d in all; want 660, and 60 more at most", admitted, sum)
			}
			if min(admitted[0], admitted[1]) < 60 {
				t.Errorf("%v were admitted: one of the two starves", admitted)
			}
		})
	}
}

// In TestClockThatGoesToAndFro, the clock of a process steps by 11 s twenty times, without any time passing.
func TestClockThatGoesToAndFro(t *testing.T) {
	c := newClock()
	l := newLimiter(t, newMemory(t), zlimit.WithClock(c.now))
	setSystem(t, l, zlimit.PerSecond("rpm", 10, zlimit.Burst(100)))
	admitted := 0
	for range 20 {
		for _, step := range []time.Duration{11 * time.Second, -11 * time.Second} {
			admitted += burst(t, l, 110)
			c.sleep(step)
		}
	}
	if most := 100 + 100 + 110; admitted > most {
		t.Errorf("%d were admitted, want at most %d: the capacity, a step, and one capacity more", admitted, most)
	}
}

// In TestClocksThatGoToAndFro, several processes ask for minutes by clocks that step again and again. The clock that is furthest
// ahead hands out one capacity early. Each process may set a stamp back once in that time, which admits one capacity more.
func TestClocksThatGoToAndFro(t *testing.T) {
	right := func(time.Duration) time.Duration { return 0 }
	steps := func(by, every time.Duration) func(time.Duration) time.Duration {
		return func(at time.Duration) time.Duration { return by * (at / every % 2) }
	}
	random := func(seed uint64) func(time.Duration) time.Duration {
		draw := rand.New(rand.NewPCG(seed, 2)) //nolint:gosec // the same draws in every run
		var mu sync.Mutex                      // limiters ask for the time in the background, too
		return func(time.Duration) time.Duration {
			mu.Lock()
			defer mu.Unlock()
			return time.Duration(draw.IntN(2)) * 50 * time.Minute
		}
	}
	for name, offsets := range map[string][]func(at time.Duration) time.Duration{
		"one steps":                 {right, steps(30*time.Second, 10*time.Second)},
		"two step":                  {steps(30*time.Second, 10*time.Second), steps(20*time.Second, 7*time.Second)},
		"two step, one far":         {right, steps(50*time.Minute, 10*time.Second), steps(20*time.Second, 7*time.Second)},
		"one steps at random":       {right, random(1)},
		"two step at random":        {random(1), random(2)},
		"one alone steps at random": {random(1)},
	} {
		t.Run(name, func(t *testing.T) {
			c, s := newClock(), newMemory(t)
			start := c.now()
			var limiters []*zlimit.RateLimiter
			for _, offset := range offsets {
				limiters = append(limiters, newLimiter(t, s, zlimit.WithRejectionCache(0), zlimit.WithClock(func() time.Time {
					now := c.now()
					return now.Add(offset(now.Sub(start)))
				})))
			}
			setSystem(t, limiters[0], zlimit.PerMinute("rpm", 60))
			admitted, seconds := 0, soak.Pick(8, 20)*60
			for quarter := range seconds * 4 {
				for turn := range limiters {
					admitted += burst(t, limiters[(quarter+turn)%len(limiters)], 1)
				}
				c.sleep(250 * time.Millisecond)
			}
			ideal := 60 + seconds
			if most := ideal + 60 + 60*len(limiters); admitted > most || admitted < ideal-60 {
				t.Errorf("%d were admitted, want %d, and %d at most", admitted, ideal, most)
			}
		})
	}
}

// In TestClockThatGoesAFewSecondsToAndFro, a clock steps by little more than the bound, between two readings that are noted.
func TestClockThatGoesAFewSecondsToAndFro(t *testing.T) {
	c := newClock()
	l := newLimiter(t, newMemory(t), zlimit.WithClock(c.now), zlimit.WithFreshness(0))
	setSystem(t, l, zlimit.PerSecond("rpm", 100))
	admitted := 0
	for range 20 {
		for _, step := range []time.Duration{90 * time.Millisecond, -10_040 * time.Millisecond, 9950 * time.Millisecond} {
			c.sleep(step)
			admitted += burst(t, l, 120)
		}
	}
	if most := 100 + 9 + 100; admitted > most {
		t.Errorf("%d were admitted, want at most %d: the capacity, a step, and one capacity more", admitted, most)
	}
}

// wrongDates rewrites the dates of replies.
type wrongDates struct {
	next   http.RoundTripper
	offset func() time.Duration
}

func (w wrongDates) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := w.next.RoundTrip(r)
	if err == nil {
		response.Header.Set("Date", time.Now().Add(w.offset()).UTC().Format(http.TimeFormat))
	}
	return response, err
}

// In TestWrongDates, some replies of the store carry a wrong date. A limit of 1,000 an hour admits no more for it.
func TestWrongDates(t *testing.T) {
	engine := enginetest.Start(t)
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same draws in every run
	oneOf := func(k int) func() time.Duration {
		return func() time.Duration {
			if random.IntN(k) == 0 {
				return time.Hour
			}
			return 0
		}
	}
	first := true
	for name, offset := range map[string]func() time.Duration{
		"one of two":  oneOf(2),
		"one of five": oneOf(5),
		"the first": func() time.Duration {
			if first {
				first = false
				return -time.Hour
			}
			return 0
		},
	} {
		t.Run(name, func(t *testing.T) {
			table := engine.Table(t)
			newLimiter(t, zlimit.StoreOn(dynamo.New(engine.Client(), table, layout.Table, withoutStream)))
			client := engine.Client(func(o *dynamodb.Options) {
				o.HTTPClient = &http.Client{Transport: wrongDates{engine.Transport(), offset}}
			})
			l := newLimiter(t, zlimit.StoreOn(dynamo.New(client, table, layout.Table, withoutStream)), zlimit.WithRejectionCache(0))
			setSystem(t, l, zlimit.PerHour("rph", 1000))
			admitted := 0
			for range 400 {
				_, err := l.Acquire(t.Context(), ask(zlimit.Amounts{"rph": 100}))
				switch {
				case err == nil:
					admitted += 100
				case !errors.As(err, new(*zlimit.ExceededError)):
					t.Fatalf("Acquire() = %v", err)
				}
			}
			if admitted != 1000 {
				t.Errorf("%d were admitted, want 1000", admitted)
			}
		})
	}
}
