package demo

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/zlimit"
)

const (
	frameTime = 30 * time.Millisecond // of one second of the demo
	showTime  = 4 * time.Second       // of all of it, at most
	barWidth  = 22
)

// A screen shows the demo on a terminal, redrawn in place once per second of the demo.
type screen struct {
	config *Config
	pace   time.Duration
	height int // lines of the last frame
	before map[string]tally
}

func newScreen(c *Config) *screen {
	return &screen{config: c, pace: min(frameTime, showTime/(c.Length/time.Second)), before: map[string]tally{}}
}

// draw draws a frame, over the last one, and waits a moment.
func (s *screen) draw(ctx context.Context, r *stage) error {
	p := &show.Page{}
	if s.height == 0 {
		r.intro(p)
		p.WriteString(show.HideCursor)
	} else {
		p.WriteString("\x1b[" + strconv.Itoa(s.height) + "A") // back to its first line
	}
	lines, err := s.frame(ctx, r)
	if err != nil {
		return err
	}
	for _, line := range lines {
		p.Linef("%s%s", show.Raw(line), show.Raw(show.ClearLine))
	}
	s.height = len(lines)
	if err := s.config.write(p); err != nil {
		return err
	}
	return s.config.Sleep(ctx, s.pace)
}

func (s *screen) frame(ctx context.Context, r *stage) ([]string, error) {
	done := float64(r.elapsed) / float64(r.length)
	lines := []string{
		fmt.Sprintf("%s  %s  %s", clock(r.elapsed), s.paint(show.Green, show.Bar(done, 52, "━", "╌")), clock(r.length)),
		"",
		s.paint(show.Faint, fmt.Sprintf("%-13s %-*s %9s %9s  %s", "key", barWidth+7, "left of the tightest limit", "admitted", "rejected", "now")),
	}
	for _, l := range r.lanes {
		statuses, err := r.observer.Available(ctx, zlimit.AvailableQuery{Entity: l.key, Resource: resource})
		if err != nil {
			return nil, err
		}
		left := 1.0
		for _, status := range statuses {
			left = max(0, min(left, float64(status.Available)/float64(status.Now().Capacity)))
		}
		color := show.Green
		switch {
		case left < 0.1:
			color = show.Red
		case left < 0.4:
			color = show.Yellow
		}
		before := s.before[l.key]
		s.before[l.key] = l.tally
		lines = append(lines, fmt.Sprintf("%s %s %4.0f %% %9s %s  %s",
			s.paint(show.Bold, fmt.Sprintf("%-13s", l.key)), s.paint(color, show.Bar(left, barWidth, "█", "░")), left*100,
			show.Grouped(int64(l.tally.Admitted)), s.rejections(l.tally.Rejected),
			s.activity(l.tally.Admitted-before.Admitted, l.tally.Rejected-before.Rejected)))
	}
	return lines, nil
}

func (s *screen) rejections(n int) string {
	text := fmt.Sprintf("%9s", show.Grouped(int64(n)))
	if n == 0 {
		return text
	}
	return s.paint(show.Red, text)
}

// activity shows the requests of the last second, at most ten characters: dots for those admitted, crosses for those
// rejected.
func (s *screen) activity(admitted, rejected int) string {
	const most = 10
	crosses := min(rejected, most)
	if admitted > 0 && crosses == most {
		crosses--
	}
	return s.paint(show.Green, strings.Repeat("•", min(admitted, most-crosses))) + s.paint(show.Red, strings.Repeat("×", crosses))
}

func (s *screen) close() error {
	p := &show.Page{}
	p.WriteString(show.ShowCursor)
	return s.config.write(p)
}

func (s *screen) paint(color, text string) string {
	if !s.config.Colored || text == "" {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[0m"
}
