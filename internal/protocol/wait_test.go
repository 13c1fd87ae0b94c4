package protocol

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/calendar"
	"github.com/zlimit/zlimit-go/internal/proof/check"
)

// TestEdge checks when a request that quotas refuse asks again.
func TestEdge(t *testing.T) {
	const now = 1_700_000_000_000
	times := check.Call(calendar.Parse("0 * * * *", "UTC")).Must(t, "calendar.Parse()")
	quota := func(resets int64, short bool) bucket.Status {
		s := bucket.Status{Params: bucket.Params{Times: times}, ResetsAt: now + resets}
		if short {
			s.Short, s.Wait = true, resets
		}
		return s
	}
	rate := func(wait int64) bucket.Status { return bucket.Status{Short: wait > 0, Wait: wait} }
	yields := func(wait int64) bucket.Status { return bucket.Status{Short: wait > 0, Wait: wait, Kept: 7} }
	parted := func(wait int64) bucket.Status { return bucket.Status{Short: wait > 0, Wait: wait, Parted: true} }
	for _, test := range []struct {
		name     string
		statuses []bucket.Status
		want     time.Duration // 0 for never
	}{
		{"a quota", []bucket.Status{quota(5000, true)}, 5 * time.Second},
		{"as late as it waits", []bucket.Status{quota(10_000, true)}, 10 * time.Second},
		{"too late", []bucket.Status{quota(10_001, true)}, 0},
		{"the later of two", []bucket.Status{quota(5000, true), quota(7000, true)}, 7 * time.Second},
		{"not the one that has tokens", []bucket.Status{quota(5000, false), quota(7000, true)}, 7 * time.Second},
		{"a limit that refills after the next quota", []bucket.Status{rate(6000), quota(7000, false), quota(5000, false)}, 5 * time.Second},
		{"a limit that refills too late", []bucket.Status{rate(11_000), quota(5000, true)}, 0},
		{"no quota", []bucket.Status{rate(6000)}, 0},
		{"a priority", []bucket.Status{yields(3000), rate(6000)}, 6 * time.Second},
		{"a priority, at once nearly", []bucket.Status{yields(1), quota(5000, false)}, 100 * time.Millisecond},
		{"a priority with a share, behind a queue", []bucket.Status{parted(3000)}, 3 * time.Second},
		{"a priority too late", []bucket.Status{yields(10_001), quota(5000, true)}, 0},
		{"never", []bucket.Status{rate(bucket.Never), quota(5000, true)}, 0},
	} {
		rejected := &RejectedError{[]LevelStatus{{Statuses: test.statuses[:1]}, {Statuses: test.statuses[1:]}}}
		if got, ok := rejected.Chance(now, 10*time.Second); got.In != test.want || ok != (test.want > 0) {
			t.Errorf("%s: %v, %v, want %v", test.name, got, ok, test.want)
		}
	}
}

// TestLostTime checks how long a request may still wait after it has lost time before it is planned. Both clocks have to show that time:
// the one by which tokens flow in, and the one by which callers sleep.
func TestLostTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &core{started: time.Now(), options: Options{Now: time.Now}}
		const patience = 500
		came := c.comes(&Request{Wait: patience * time.Millisecond})
		time.Sleep(300 * time.Millisecond)
		for _, test := range []struct {
			name  string
			asOf  int64
			waits int64
		}{
			{"nothing lost by the first clock", came.at, patience},
			{"as much by both", c.now(), 200},
			{"less by the first clock", came.at + 100, 400},
			{"the first clock has stepped ahead", came.at + 10_000, 200},
			{"the first clock was set back", came.at - 10_000, patience},
		} {
			l := level{came: came, patience: patience}
			if l.shortenWait(c, test.asOf); l.demand.Wait != test.waits {
				t.Errorf("%s: the request waits %d ms, want %d", test.name, l.demand.Wait, test.waits)
			}
		}
		time.Sleep(time.Second)
		l := level{came: came, patience: patience}
		if l.shortenWait(c, c.now()); l.demand.Wait != 0 {
			t.Errorf("a request that has lost its time waits %d ms", l.demand.Wait)
		}
	})
}
