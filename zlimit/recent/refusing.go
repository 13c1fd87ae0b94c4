package recent

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

// Refusals returns what was refused in the last minute: what this process saw, and what processes reported of the last full minute. Some may be
// both, so the larger number counts. The most frequent is first. It makes no call: [zlimit.UsageService.Rejected] reads reports.
func Refusals(seen []Refused, reported zlimit.Rejections) []Refused {
	of := map[Refusal]Refused{}
	for _, r := range seen {
		of[r.Refusal] = r
	}
	for _, r := range reported.Heaviest {
		key := Refusal{r.Entity, r.Resource, r.LimitEntity, r.Limit}
		if have := of[key]; r.Count > have.N {
			have.Refusal, have.N = key, r.Count
			of[key] = have
		}
	}
	return slices.SortedFunc(maps.Values(of), func(a, b Refused) int {
		return cmp.Or(cmp.Compare(b.N, a.N), cmp.Compare(a.Entity, b.Entity), cmp.Compare(a.Limit, b.Limit))
	})
}

// A Cause is a limit that refuses.
type Cause struct {
	Refused                // of all entities together
	Part    float64        // of all refusals
	Status  *zlimit.Status // where it stands; nil where that is not known
	At      time.Time      // when it has room for what was asked; zero where that is not known
}

// Never reports whether what was asked can never fit.
func (c *Cause) Never() bool { return c.RetryAfter == zlimit.Never }

// Causes adds up refusals by the limit that refuses, the heaviest first, and all of them. The function returns where a limit stands, nil for unknown.
func Causes(refusals []Refused, status func(entity, limit string) *zlimit.Status, now time.Time) (causes []Cause, total int64) {
	by := map[[2]string]Cause{}
	for _, of := range refusals {
		key := [2]string{of.LimitEntity, of.Limit}
		sum, ok := by[key]
		if !ok {
			sum = Cause{Refused: of}
			sum.N = 0
		}
		sum.N += of.N
		total += of.N
		by[key] = sum
	}
	causes = slices.SortedFunc(maps.Values(by), func(a, b Cause) int {
		return cmp.Or(cmp.Compare(b.N, a.N), cmp.Compare(a.LimitEntity, b.LimitEntity), cmp.Compare(a.Limit, b.Limit))
	})
	for i := range causes {
		c := &causes[i]
		c.Part = float64(c.N) / float64(total)
		c.Status = status(c.LimitEntity, c.Limit)
		c.At = RoomAt(c.Status, &c.Refused, now)
	}
	return causes, total
}

// RoomAt returns when a limit that refuses has room for what was asked: the end of its period, or when its tokens have come. It returns the zero time where
// that is not known, or within seconds.
func RoomAt(s *zlimit.Status, of *Refused, now time.Time) time.Time {
	switch {
	case s == nil:
	case (s.Limit.Resets != "" || s.Limit.Session > 0) && !s.ResetsAt.IsZero() && s.Available < max(of.Requested, 1):
		return s.ResetsAt
	case !of.Last.IsZero() && of.RetryAfter > 5*time.Second && of.RetryAfter != zlimit.Never && of.Last.Add(of.RetryAfter).After(now):
		return of.Last.Add(of.RetryAfter)
	case s.Queue > 2*time.Second:
		return now.Add(s.Queue)
	}
	return time.Time{}
}
