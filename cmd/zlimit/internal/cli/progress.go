package cli

import (
	"io"
	"time"
)

// A progress is a line on the standard error that is redrawn; lines, less often, where that is no terminal.
type progress struct {
	app   *app
	every time.Duration
	last  time.Time
	open  bool // a line is shown that is not ended
}

// progressLine returns a progress that shows nothing in its first moments.
func (a *app) progressLine() *progress {
	p := &progress{app: a, every: 10 * time.Second, last: a.now()}
	if a.watch {
		p.every = 200 * time.Millisecond
	}
	return p
}

// show shows where the work stands, unless it just did. There is nowhere to report that this failed.
func (p *progress) show(text string) {
	now := p.app.now()
	if now.Sub(p.last) < p.every {
		return
	}
	p.last = now
	if !p.app.watch {
		p.app.note(text)
		return
	}
	_, _ = io.WriteString(p.app.stderr, "\r"+text+clearLine)
	p.open = true
}

// end ends the line.
func (p *progress) end() {
	if p.open {
		_, _ = io.WriteString(p.app.stderr, "\r"+clearLine)
		p.open = false
	}
}
