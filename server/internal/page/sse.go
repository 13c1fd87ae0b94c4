package page

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"time"
)

// events keeps a browser up to date. Each event named "main" is the content of a screen that has changed, and one named "at" the time
// of what is on the screen.
func (p *page) events(w http.ResponseWriter, r *http.Request, u User) {
	name := r.URL.Query().Get("screen")
	s := p.screens()[name]
	if s == nil {
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
	var last []byte
	tick := time.NewTicker(p.Every)
	defer tick.Stop()
	for {
		if _, ok := p.sessions.user(r); !ok {
			return
		}
		content, at, err := p.content(r.Context(), s, name, r, u)
		_ = control.SetWriteDeadline(time.Now().Add(readTimeout))
		if err != nil {
			_, err = fmt.Fprintf(w, "event: stale\ndata: the store does not answer\n\n")
		} else {
			if last != nil && bytes.Equal(last, content) {
				content = nil
			}
			err = send(w, content, at.UTC().Format("15:04:05"))
			if content != nil {
				last = content
			}
		}
		if err != nil || control.Flush() != nil {
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
func (p *page) content(ctx context.Context, s screen, name string, r *http.Request, u User) ([]byte, time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	v, err := s(ctx, r, u)
	if err != nil {
		return nil, time.Time{}, err
	}
	var b bytes.Buffer
	v = p.complete(name, r.URL, u, v)
	err = p.templates.ExecuteTemplate(&b, "content", v)
	return b.Bytes(), v.At, err
}

func send(w http.ResponseWriter, content []byte, at string) error {
	var b bytes.Buffer
	if content != nil {
		b.WriteString("event: main\n")
		for line := range bytes.Lines(content) {
			b.WriteString("data: ")
			b.Write(bytes.TrimRight(line, "\r\n"))
			b.WriteByte('\n')
		}
		b.WriteByte('\n')
	}
	b.WriteString("event: at\ndata: " + at + "\n\n")
	_, err := b.WriteTo(w)
	return err
}
