// Package dashboard is a web page about the limits of a namespace, as an [http.Handler]. Its screens answer an operator's questions in their
// headlines, and administrators change limits there. HTML and SVG come from the server. A script of a few lines swaps what has changed; without
// it, every screen works too.
package dashboard

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/leasetoken"
	"github.com/zlimit/zlimit-go/zlimit/recent"
)

//go:embed templates/*.html
var templateFiles embed.FS

//go:embed static
var staticFiles embed.FS

// Options are what a page shows, and to whom.
type Options struct {
	// Limiter is required. Its namespace is the one that the page shows.
	Limiter *zlimit.RateLimiter
	// Recent must observe the limiters of this process: see [recent.Observer.Observe]. It is required.
	Recent *recent.Observer
	// Leases returns the leases that this process has handed to clients and that are not settled; nil is none.
	Leases func(resource string) []leasetoken.HeldLease
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
var ErrSignIn = errors.New("dashboard: the key is not known, or may not see the page")

// A page is the handler of all screens.
type page struct {
	Options

	templates *template.Template
	sessions  *sessions
	feed      *feed
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
		return nil, errors.New("dashboard: Limiter and Recent must be set")
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Leases == nil {
		o.Leases = func(string) []leasetoken.HeldLease { return nil }
	}
	o.ConfigTTL, o.Every = cmp.Or(o.ConfigTTL, time.Minute), cmp.Or(o.Every, 2*time.Second)
	o.Namespace = cmp.Or(o.Namespace, zlimit.DefaultNamespace)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	p := &page{Options: o, streams: make(chan struct{}, mostStreams), sessions: newSessions(o.Token)}
	p.feed = newFeed(p)
	if err := p.parse(); err != nil {
		return nil, fmt.Errorf("dashboard: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /static/", http.FileServerFS(staticFiles))
	mux.HandleFunc("GET /signin", p.showSignIn)
	mux.HandleFunc("POST /signin", p.signIn)
	mux.HandleFunc("POST /signout", p.signOut)
	mux.Handle("GET /events", p.viewers(p.events))
	for name, s := range p.screens() {
		pattern := "GET /" + name
		switch {
		case name == "now":
			pattern = "GET /{$}"
		case s.kind == form:
			pattern = "POST /" + name
		}
		mux.Handle(pattern, p.screen(name, s))
	}
	mux.Handle("/", p.screen("", place{read: func(context.Context, url.Values) (view, error) {
		return view{}, &statusError{http.StatusNotFound, "There is no such page"}
	}}))
	return secured(http.NewCrossOriginProtection().Handler(mux)), nil
}

func (p *page) parse() (err error) {
	p.templates, err = template.New("").Funcs(p.functions()).ParseFS(templateFiles, "templates/*.html")
	return err
}

// A place is a screen in the table of them.
type place struct {
	read screen
	kind kind
}

// A kind of screens: those that are kept up to date, those that are not, and those that do what a form of an administrator asks for.
type kind int

const (
	still kind = iota
	live
	form
)

// screens are the screens by their paths. The templates of a screen are its content by its name, and "head", "lead", "path" and "title" before its
// name: the answer in a sentence, what else there is to say, where the screen is, and its title.
func (p *page) screens() map[string]place {
	return map[string]place{
		"now": {p.now, live}, "usage": {p.usage, live}, "top": {p.top, live}, "entity": {p.entity, live},
		"entities": {p.entities, still}, "why": {p.why, still}, "limits": {p.limits, still}, "limits/edit": {p.editLimits, still},
		"whatif": {p.whatIf, still}, "audit": {p.audit, still}, "usage.csv": {p.usageCSV, still},
		"limits/preview": {p.previewLimits, form}, "limits/save": {p.saveLimits, form}, "entity/change": {p.changeEntity, form},
	}
}

// A screen reads what it shows, by the parameters of its address or its form. That of a form does what it asks for before, and may lead to another one.
type screen func(ctx context.Context, q url.Values) (view, error)

// A view is what a template shows.
type view struct {
	Screen    string // its template, and its path
	Live      bool   // whether it is kept up to date, as the table of screens says
	At        time.Time
	Body      any
	User      User
	Store     string
	Namespace string
	URL       string // for the stream of changes
	Headless  bool
	query     url.Values
	Leads     string                    // the address of the screen to show instead
	File      func(http.ResponseWriter) // writes a file instead
	Status    int                       // of HTTP; 0 is 200
}

// screen serves a screen, or why there is none.
func (p *page) screen(name string, s place) http.Handler {
	return p.viewers(func(w http.ResponseWriter, r *http.Request, u User) {
		v, err := p.read(r, u, s)
		switch {
		case err != nil:
			p.fail(w, r, u, err)
		case v.Leads != "":
			http.Redirect(w, r, v.Leads, http.StatusSeeOther)
		case v.File != nil:
			v.File(w)
		default:
			p.show(w, r, u, name, v)
		}
	})
}

// read reads a screen. A form may take longer than a reading, and is of administrators alone, in whose name changes are made.
func (p *page) read(r *http.Request, u User, s place) (view, error) {
	limit := readTimeout
	if s.kind == form {
		if limit *= 6; !u.Admin {
			return view{}, &statusError{http.StatusForbidden, "A viewer cannot change anything"}
		}
	}
	if r.ParseForm() != nil {
		return view{}, bad("The form cannot be read")
	}
	ctx, cancel := context.WithTimeout(zlimit.ContextWithPrincipal(r.Context(), u.Name), limit)
	defer cancel()
	return s.read(ctx, r.Form)
}

// show writes a whole page.
func (p *page) show(w http.ResponseWriter, r *http.Request, u User, name string, v view) {
	text, err := p.execute("page.html", p.complete(name, r.URL, u, v))
	if err != nil {
		p.Logger.Error("dashboard: write a screen", "screen", name, "error", err)
		http.Error(w, "the page could not be written", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(cmp.Or(v.Status, http.StatusOK))
	_, _ = io.WriteString(w, string(text))
}

// execute returns what a template writes; nothing without one of the name.
func (p *page) execute(name string, data any) (template.HTML, error) {
	t := p.templates.Lookup(name)
	if t == nil {
		return "", nil
	}
	var b strings.Builder
	err := t.Execute(&b, data)
	return template.HTML(b.String()), err //nolint:gosec // templates escape
}

// say returns a sentence of a screen.
func (p *page) say(kind string, v view) (template.HTML, error) {
	text, err := p.execute(kind+" "+v.Screen, v)
	return template.HTML(strings.Join(strings.Fields(string(text)), " ")), err //nolint:gosec // templates escape
}

// complete fills in a view.
func (p *page) complete(name string, at *url.URL, u User, v view) view {
	v.User, v.Store, v.Namespace, v.Screen, v.Live = u, p.Store, p.Namespace, cmp.Or(v.Screen, name), p.screens()[name].kind == live
	if v.At.IsZero() {
		v.At = p.Now()
	}
	v.query = at.Query()
	v.query.Del("screen")
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

// bad is the error of a request that says what makes no sense.
func bad(format string, args ...any) error {
	return &statusError{http.StatusBadRequest, fmt.Sprintf(format, args...)}
}

// mustBe is the error of a parameter that breaks a rule.
func mustBe(name, rule, value string) error {
	return bad("%s must be %s, and not %.40q", name, rule, value)
}

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
		p.Logger.Error("dashboard: read a screen", "path", r.URL.Path, "error", err)
	}
	p.show(w, r, u, "failure", view{Status: status, Body: text})
}

// secured sets the headers of all replies: no script, style or request of anywhere else, and no frame around the page.
func secured(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		if strings.HasPrefix(r.URL.Path, "/static/") {
			h.Set("Cache-Control", "max-age=300")
		}
		r.Body = http.MaxBytesReader(w, r.Body, mostBody)
		next.ServeHTTP(w, r)
	})
}
