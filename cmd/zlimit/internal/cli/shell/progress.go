package shell

import (
	"io"
	"time"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
)

// A progress is a line on the standard error, drawn again and again. Where standard error is no terminal,
// it is lines, less often.
type progress struct {
	app   *Shell
	every time.Duration
	last  time.Time
	open  bool // a line is shown that is not ended
}

// ProgressLine returns a progress that shows nothing in its first moments.
func (sh *Shell) ProgressLine() *progress {
	p := &progress{app: sh, every: 10 * time.Second, last: sh.Now()}
	if sh.Watch {
		p.every = 200 * time.Millisecond
	}
	return p
}

// Show shows where the work stands, unless it just did. There is nowhere to report that this failed.
func (p *progress) Show(text string) {
	now := p.app.Now()
	if now.Sub(p.last) < p.every {
		return
	}
	p.last = now
	if !p.app.Watch {
		p.app.Note(text)
		return
	}
	_, _ = io.WriteString(p.app.Stderr, "\r"+text+show.ClearLine)
	p.open = true
}

// End ends the line.
func (p *progress) End() {
	if p.open {
		_, _ = io.WriteString(p.app.Stderr, "\r"+show.ClearLine)
		p.open = false
	}
}
