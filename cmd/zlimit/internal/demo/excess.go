package demo

import (
	"github.com/zlimit/zlimit-go/zlimit"
)

// An event is one change of the consumption of a limit, as the maker of the request saw it.
type event struct {
	at        int64 // epoch milliseconds
	tokens    int64 // negative when they were given back
	admission bool  // of a request; otherwise its settlement, which is never refused
}

// A finding is the interval in which consumption came closest to the allowance of its limit, or exceeded it most.
// Intervals start at any event and end with an admission. The tokens spent in between, less those given back, may be at
// most the capacity and the inflow meanwhile.
type finding struct {
	intervals int64 // that were compared
	from, to  int64 // epoch milliseconds
	spent     int64 // in the interval, net, tokens
	excess    int64 // spent beyond the allowance, in tokens × the refill period in milliseconds; negative below it
}

// audit compares all intervals of a record, in one pass. Take all intervals that end at an event. The one with the
// highest excess starts where the tokens spent before, less what flowed in before, were lowest. The audit knows nothing
// of the limiter. Events are in order of time.
func audit(limit zlimit.Limit, events []event) finding {
	period, refill := limit.RefillPeriod.Milliseconds(), limit.RefillAmount
	var worst finding
	var spent, lowest, spentBefore, start int64
	for i, e := range events {
		elapsed := e.at - events[0].at
		if level := spent*period - elapsed*refill; i == 0 || level < lowest {
			lowest, spentBefore, start = level, spent, e.at
		}
		spent += e.tokens
		if !e.admission {
			continue
		}
		excess := spent*period - elapsed*refill - lowest - limit.Capacity*period
		if worst.intervals == 0 || excess > worst.excess {
			worst.from, worst.to, worst.spent, worst.excess = start, e.at, spent-spentBefore, excess
		}
		worst.intervals += int64(i) + 1
	}
	return worst
}

func inTokens(excess int64, limit zlimit.Limit) float64 {
	return float64(excess) / float64(limit.RefillPeriod.Milliseconds())
}
