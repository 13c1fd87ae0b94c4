package bench

import (
	"math/bits"
	"slices"
	"time"
)

// A histogram counts durations in cells from a microsecond up. The width of a cell is an eighth of its greatest
// duration. Its zero value is empty.
type histogram struct {
	cells    [64 * cellsPerOctave]int64
	steps    [len(stepEnds)]int64
	count    int64
	min, max time.Duration
}

const cellsPerOctave = 8

func (h *histogram) add(d time.Duration) {
	h.cells[cellAt(d)]++
	h.steps[slices.IndexFunc(stepEnds[:], func(end time.Duration) bool { return d <= end })]++
	if h.count == 0 || d < h.min {
		h.min = d
	}
	h.max = max(h.max, d)
	h.count++
}

// cellAt returns the cell of a duration: its octave in microseconds, and which eighth of it.
func cellAt(d time.Duration) int {
	micros := uint64(max(d/time.Microsecond, 0))
	if micros < cellsPerOctave {
		return int(micros)
	}
	octave := bits.Len64(micros) - 1
	eighth := micros >> (octave - 3) & (cellsPerOctave - 1)
	return (octave-2)*cellsPerOctave + int(eighth)
}

// cellEnd returns the longest duration that a cell holds.
func cellEnd(cell int) time.Duration {
	if cell < cellsPerOctave {
		return time.Duration(cell+1)*time.Microsecond - 1
	}
	octave, eighth := cell/cellsPerOctave+2, cell%cellsPerOctave
	return time.Duration((uint64(eighth)+cellsPerOctave+1)<<(octave-3))*time.Microsecond - 1
}

// quantile returns a duration that a part of all, from 0 to 1, does not exceed; at most an eighth too long.
func (h *histogram) quantile(part float64) time.Duration {
	if h.count == 0 {
		return 0
	}
	rank := int64(part*float64(h.count) + 0.5)
	seen := int64(0)
	for cell, n := range h.cells {
		if seen += n; seen >= max(rank, 1) {
			return min(cellEnd(cell), h.max)
		}
	}
	return h.max
}

// A step is one step of a histogram for people and programs.
type step struct {
	UpTo  float64 `json:"le_ms"`
	Count int64   `json:"count"`
}

// stepEnds are the steps in which a histogram is shown; quantiles use the finer cells.
var stepEnds = [...]time.Duration{
	time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second,
	10 * time.Second, time.Minute, time.Hour, 1<<63 - 1,
}

// shown returns the steps, from the first that holds a duration to the last.
func (h *histogram) shown() []step {
	var steps []step
	for i, n := range h.steps {
		if n > 0 || len(steps) > 0 {
			steps = append(steps, step{float64(stepEnds[i]) / float64(time.Millisecond), n})
		}
	}
	for len(steps) > 0 && steps[len(steps)-1].Count == 0 {
		steps = steps[:len(steps)-1]
	}
	return steps
}
