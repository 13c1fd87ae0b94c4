// Package page is the page of a server: screens that answer an operator's questions in their headlines, and buttons for administrators.
// HTML and SVG come from the server. A script of a few lines swaps what changed, and without it every screen works, too.
package page

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/server/internal/token"
	"github.com/zlimit/zlimit-go/zlimit"
)

//go:embed templates/*.html
var templateFiles embed.FS

//go:embed static
var staticFiles embed.FS

// Options are what a page shows, and to whom.
type Options struct {
	// Limiter is required. Its namespace is the one that the page shows.
	Limiter *zlimit.RateLimiter
	// Recent must observe the limiters of this process: see [Recent.Observe]. It is required.
	Recent *Recent
	// Leases returns the leases that this process has handed to clients and that are not settled; nil is none.
	Leases func(resource string) []token.OpenLease
	// ConfigTTL is the [zlimit.WithConfigTTL] of the processes of the namespace: changed limits hold everywhere within it. 0 is a minute.
	ConfigTTL time.Duration
	// Namespace and Store name what is shown, such as "production" and "dynamodb:limits".
	Namespace, Store string
	// SignIn returns who has a key. Without it, Token is the only way in.
	SignIn func(ctx context.Context, key string) (User, error)
	// Token signs in once, as an administrator of the name of TokenUser: the first visitor of /signin?token=… has it. "" is none.
	Token, TokenUser string
	// SecureCookies is for a server behind a proxy that ends TLS: cookies are then never sent in the clear.
	SecureCookies bool
	// BucketsPerSecond bounds the buckets that are read, on average, while someone looks. 0 is no bound, for stores whose reads cost
	// nothing. A bucket costs half a read unit.
	BucketsPerSecond float64
	// Ending is closed when the server ends, and with it the streams of browsers; nil is never.
	Ending <-chan struct{}
	// Now is the clock of the limiter; nil is [time.Now].
	Now func() time.Time
	// Every is the pause between two readings, two seconds for 0.
	Every time.Duration
	// Logger gets failures of the store; nil is none.
	Logger *slog.Logger
}

// A User is who looks at the page. A viewer sees everything and changes nothing.
type User struct {
	Name  string
	Admin bool
	// Valid reports whether the key still opens the page, and ends the session otherwise; nil is always.
	Valid func() bool
}

// ErrSignIn is the error of a key that no one has.
var ErrSignIn = errors.New("page: the key is not known, or may not see the page")

// A page is the handler of all screens.
type page struct {
	Options

	templates *template.Template
	sessions  sessions
	feed      feed
	streams   chan struct{} // a place for each browser that is kept up to date
}

const (
	mostStreams = 256
	readTimeout = 10 * time.Second
	mostBody    = 64 << 10
)

// New returns the handler of a page. It answers for all paths below the root but those that a server takes for itself.
func New(o Options) (http.Handler, error) {
	if o.Limiter == nil || o.Recent == nil {
		return nil, errors.New("page: Limiter and Recent must be set")
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Leases == nil {
		o.Leases = func(string) []token.OpenLease { return nil }
	}
	o.ConfigTTL, o.Every = cmp.Or(o.ConfigTTL, time.Minute), cmp.Or(o.Every, 2*time.Second)
	o.Namespace = cmp.Or(o.Namespace, zlimit.DefaultNamespace)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	p := &page{Options: o, streams: make(chan struct{}, mostStreams)}
	p.sessions = sessions{now: time.Now, open: map[string]session{}, token: o.Token}
	p.feed = newFeed(p)
	var err error
	if p.templates, err = template.New("").Funcs(functions).ParseFS(templateFiles, "templates/*.html"); err != nil {
		return nil, fmt.Errorf("page: %w", err)
	}
	files, err := fs.Sub(staticFiles, "static")
	if err != nil {
		return nil, fmt.Errorf("page: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /static/", http.StripPrefix("/static/", cached(http.FileServerFS(files))))
	mux.HandleFunc("GET /signin", p.showSignIn)
	mux.HandleFunc("POST /signin", p.signIn)
	mux.HandleFunc("POST /signout", p.signOut)
	for name, s := range p.screens() {
		path := "/" + name
		if name == "now" {
			path = "/{$}"
		}
		mux.Handle("GET "+path, p.viewers(p.screen(name, s)))
	}
	mux.Handle("GET /usage.csv", p.viewers(p.usageCSV))
	mux.Handle("GET /events", p.viewers(p.events))
	mux.Handle("POST /limits/preview", p.admins(p.screen("limits/preview", p.previewLimits)))
	mux.Handle("POST /limits/save", p.admins(p.screen("limits/edit", p.saveLimits)))
	mux.Handle("POST /entity/change", p.admins(p.screen("entity", p.changeEntity)))
	mux.Handle("/", p.viewers(p.screen("", func(context.Context, *http.Request, User) (view, error) {
		return view{}, &statusError{http.StatusNotFound, "There is no such page"}
	})))
	return secured(http.NewCrossOriginProtection().Handler(mux)), nil
}

// screens are the screens by their paths.
func (p *page) screens() map[string]screen {
	return map[string]screen{
		"now": p.now, "usage": p.usage, "top": p.top, "entities": p.entities, "entity": p.entity, "why": p.why,
		"limits": p.limits, "limits/edit": p.editLimits, "whatif": p.whatIf, "audit": p.audit,
	}
}

// A screen reads what it shows. The screen of a form does what the form asks for before, and may lead to another one.
type screen func(ctx context.Context, r *http.Request, u User) (view, error)

// A view is what a template shows.
type view struct {
	Screen   string // its template, and its path
	Title    string
	Path     []crumb
	Head     headline
	Lead     template.HTML
	Live     bool // whether it is kept up to date
	At       time.Time
	Body     any
	User     User
	Store    string
	URL      string // for the stream of changes
	Headless bool
	Leads    string // the address of the screen to show instead
	Status   int    // of HTTP; 0 is 200
	now      time.Time
}

// Moment writes a time beside now, in UTC.
func (v view) Moment(t time.Time) string { return moment(t, v.now, time.UTC) }

type crumb struct{ Text, URL string }

// A headline is a sentence, in parts. Class is "", "no" or "low".
type headline []struct{ Text, Class string }

func (h headline) plain() string {
	var b strings.Builder
	for _, part := range h {
		b.WriteString(part.Text)
	}
	return b.String()
}

func (h *headline) say(class, format string, args ...any) {
	*h = append(*h, struct{ Text, Class string }{fmt.Sprintf(format, args...), class})
}

// lead writes a sentence with bold parts; it escapes its arguments.
func lead(format string, args ...any) template.HTML {
	for i, arg := range args {
		if text, ok := arg.(string); ok {
			args[i] = template.HTMLEscapeString(text)
		}
	}
	return template.HTML(fmt.Sprintf(format, args...)) //nolint:gosec // the format is constant, and arguments are escaped
}

// screen serves a screen, or why there is none. A form may take longer than a reading.
func (p *page) screen(name string, s screen) handle {
	return func(w http.ResponseWriter, r *http.Request, u User) {
		limit := readTimeout
		if r.Method == http.MethodPost {
			limit *= 6
		}
		ctx, cancel := context.WithTimeout(r.Context(), limit)
		defer cancel()
		v, err := s(ctx, r, u)
		switch {
		case err != nil:
			p.fail(w, r, u, err)
		case v.Leads != "":
			http.Redirect(w, r, v.Leads, http.StatusSeeOther)
		default:
			p.show(w, r, u, name, v)
		}
	}
}

// show writes a whole page.
func (p *page) show(w http.ResponseWriter, r *http.Request, u User, name string, v view) {
	v = p.complete(name, r.URL, u, v)
	var b bytes.Buffer
	if err := p.templates.ExecuteTemplate(&b, "page.html", v); err != nil {
		p.Logger.Error("page: write a screen", "screen", name, "error", err)
		http.Error(w, "the page could not be written", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(cmp.Or(v.Status, http.StatusOK))
	_, _ = b.WriteTo(w)
}

func (p *page) complete(name string, at *url.URL, u User, v view) view {
	v.User, v.Store, v.now = u, p.Store, p.Now()
	v.Screen, v.Title = cmp.Or(v.Screen, name), cmp.Or(v.Title, v.Head.plain())
	if v.At.IsZero() {
		v.At = v.now
	}
	if v.Live {
		query := at.Query()
		query.Set("screen", name)
		v.URL = "/events?" + query.Encode()
	}
	return v
}

// A statusError is a failure with a status of HTTP and a sentence for the reader.
type statusError struct {
	status int
	text   string
}

func (e *statusError) Error() string { return e.text }

// fail shows why there is no screen.
func (p *page) fail(w http.ResponseWriter, r *http.Request, u User, err error) {
	status, text := http.StatusServiceUnavailable, "The store does not answer"
	var own *statusError
	var invalid *zlimit.ValidationError
	switch {
	case errors.As(err, &own):
		status, text = own.status, own.text
	case errors.As(err, &invalid):
		status, text = http.StatusBadRequest, "This is not valid: "+strings.TrimPrefix(invalid.Error(), "zlimit: ")
	case errors.Is(err, zlimit.ErrEntityNotFound):
		status, text = http.StatusNotFound, "There is no such entity"
	case errors.Is(r.Context().Err(), context.Canceled):
		return
	default:
		p.Logger.Error("page: read a screen", "path", r.URL.Path, "error", err)
	}
	v := view{Status: status}
	v.Head.say("no", "%s", text)
	p.show(w, r, u, "failure", v)
}

// secured sets the headers of all replies: no script, style or request of anywhere else, and no frame around the page.
func secured(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		if !strings.HasPrefix(r.URL.Path, "/static/") {
			h.Set("Cache-Control", "no-store")
		}
		r.Body = http.MaxBytesReader(w, r.Body, mostBody)
		next.ServeHTTP(w, r)
	})
}

func cached(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=300")
		next.ServeHTTP(w, r)
	})
}
