package dashboard

import (
	"html/template"
	"io"
	"net/http"
	"strings"
	"time"
)

// events keeps a browser up to date. Each event named "main" is the content of a screen that has changed, and one named "at" the time
// of what is on the screen.
func (p *page) events(w http.ResponseWriter, r *http.Request, u User) {
	name := r.URL.Query().Get("screen")
	s := p.screens()[name]
	if s.kind != live {
		http.Error(w, "screen must be one that is kept up to date", http.StatusBadRequest)
		return
	}
	select {
	case p.streams <- struct{}{}:
		defer func() { <-p.streams }()
	default:
		w.Header().Set("Retry-After", "30")
		http.Error(w, "too many browsers are connected to this server", http.StatusServiceUnavailable)
		return
	}
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Time{}) // the request is read, and the reply has no end
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	var last template.HTML
	tick := time.NewTicker(p.Every)
	defer tick.Stop()
	for {
		if _, ok := p.sessions.user(r); !ok {
			return
		}
		content, at, err := p.content(s, name, r, u)
		events := "event: at\ndata: " + at.UTC().Format(time.TimeOnly) + "\n\n"
		switch {
		case err != nil:
			events = "event: stale\ndata: the store does not answer\n\n"
		case content != last:
			last, events = content, "event: main\ndata: "+lines.Replace(string(content))+"\n\n"+events
		}
		_ = control.SetWriteDeadline(time.Now().Add(readTimeout))
		if _, err := io.WriteString(w, events); err != nil || control.Flush() != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-p.Ending:
			return
		case <-tick.C:
		}
	}
}

// content is what is inside the main element of a screen.
func (p *page) content(s place, name string, r *http.Request, u User) (text template.HTML, at time.Time, err error) {
	v, err := p.read(r, u, s)
	if err == nil {
		v = p.complete(name, r.URL, u, v)
		text, err = p.execute("content", v)
	}
	return text, v.At, err
}

// lines makes each line of a text one of an event.
var lines = strings.NewReplacer("\r", "", "\n", "\ndata: ")
