package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Control sequences of terminals.
const (
	hideCursor = "\x1b[?25l"
	showCursor = "\x1b[?25h"
	clearLine  = "\x1b[K"
	bold       = "1"
	faint      = "2"
	red        = "31"
	green      = "32"
	yellow     = "33"
)

const (
	frameTime = 30 * time.Millisecond // of one second of the demo
	showTime  = 4 * time.Second       // of all of it, at most
	barWidth  = 22
)

// A screen shows the demo on a terminal, redrawn in place once per second of the demo.
type screen struct {
	app     *app
	pace    time.Duration
	colored bool
	height  int // lines of the last frame
	before  map[string]tally
}

func newScreen(a *app, length time.Duration) *screen {
	pace := min(frameTime, showTime/(length/time.Second))
	return &screen{app: a, pace: pace, colored: a.env("NO_COLOR") == "", before: map[string]tally{}}
}

// draw draws a frame, over the last one, and waits a moment.
func (s *screen) draw(ctx context.Context, r *demoRun) error {
	p := &page{}
	if s.height == 0 {
		r.intro(p)
		p.WriteString(hideCursor)
	} else {
		p.WriteString("\x1b[" + strconv.Itoa(s.height) + "A") // back to its first line
	}
	lines, err := s.frame(ctx, r)
	if err != nil {
		return err
	}
	for _, line := range lines {
		p.linef("%s%s", line, clearLine)
	}
	s.height = len(lines)
	if err := s.app.write(p); err != nil {
		return err
	}
	return s.app.sleep(ctx, s.pace)
}

func (s *screen) frame(ctx context.Context, r *demoRun) ([]string, error) {
	done := float64(r.elapsed) / float64(r.length)
	lines := []string{
		fmt.Sprintf("%s  %s  %s", clock(r.elapsed), s.paint(green, bar(done, 52, "━", "╌")), clock(r.length)),
		"",
		s.paint(faint, fmt.Sprintf("%-13s %-*s %9s %9s  %s", "key", barWidth+7, "left of the tightest limit", "admitted", "rejected", "now")),
	}
	for _, l := range r.lanes {
		statuses, err := r.observer.Available(ctx, l.key, demoResource)
		if err != nil {
			return nil, err
		}
		left := 1.0
		for _, status := range statuses {
			left = max(0, min(left, float64(status.Available)/float64(status.Limit.Capacity)))
		}
		color := green
		switch {
		case left < 0.1:
			color = red
		case left < 0.4:
			color = yellow
		}
		before := s.before[l.key]
		s.before[l.key] = l.tally
		lines = append(lines, fmt.Sprintf("%s %s %4.0f %% %9s %s  %s",
			s.paint(bold, fmt.Sprintf("%-13s", l.key)), s.paint(color, bar(left, barWidth, "█", "░")), left*100,
			grouped(int64(l.tally.Admitted)), s.rejections(l.tally.Rejected),
			s.activity(l.tally.Admitted-before.Admitted, l.tally.Rejected-before.Rejected)))
	}
	return lines, nil
}

func (s *screen) rejections(n int) string {
	text := fmt.Sprintf("%9s", grouped(int64(n)))
	if n == 0 {
		return text
	}
	return s.paint(red, text)
}

// activity shows the requests of the last second, at most ten characters: dots for those admitted, crosses for those
// rejected.
func (s *screen) activity(admitted, rejected int) string {
	const most = 10
	crosses := min(rejected, most)
	if admitted > 0 && crosses == most {
		crosses--
	}
	return s.paint(green, strings.Repeat("•", min(admitted, most-crosses))) + s.paint(red, strings.Repeat("×", crosses))
}

// close gives the cursor back.
func (s *screen) close() error {
	p := &page{}
	p.WriteString(showCursor)
	return s.app.write(p)
}

func (s *screen) paint(color, text string) string {
	if !s.colored || text == "" {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[0m"
}

// bar returns a bar of which a part from 0 to 1 is full.
func bar(part float64, width int, full, empty string) string {
	n := min(width, max(0, int(part*float64(width)+0.5)))
	return strings.Repeat(full, n) + strings.Repeat(empty, width-n)
}
