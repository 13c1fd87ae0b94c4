// Package api serves limits over HTTP and JSON: acquire, settle, available, stored limits, manual changes, usage and events. The file
// openapi.yaml describes every call, and is served.
package api

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/server/internal/auth"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/leasetoken"
)

// Options are what a handler needs. Limiter, Callers, Tokens and Events must be set.
type Options struct {
	// Limiter is of the default namespace, whose name is Namespace: zlimit.DefaultNamespace if that is empty.
	Limiter   *zlimit.RateLimiter
	Namespace string
	// Namespaces are limiters of further namespaces, by name.
	Namespaces map[string]*zlimit.RateLimiter
	// Callers returns who may call now.
	Callers func() *auth.Callers
	// Tokens signs leases.
	Tokens *leasetoken.Signer
	// Held remembers the leases that are handed out, until they are settled. Without it no one does.
	Held *leasetoken.Held
	// Events has what the observers of the limiters report.
	Events *Events
	// Logger gets a line for each request, without secrets. Without it there is no log.
	Logger *slog.Logger
	// MaxWaiting bounds the requests that wait for tokens at the same time, 1000 by default. More are refused.
	MaxWaiting int
	// Draining ends requests that wait, and streams of events, when it is closed.
	Draining <-chan struct{}
	// Now is the clock, time.Now by default.
	Now func() time.Time
}

// maxTime bounds the time of a call, beside the time that it waits for tokens.
const (
	maxTime     = 10 * time.Second
	maxReadTime = time.Minute     // of usage
	maxMarkTime = 5 * time.Minute // of changes that mark every bucket
	maxBodyTime = 10 * time.Second
	maxWait     = time.Minute
	maxLease    = 24 * time.Hour
	maxBody     = 64 << 10 // bytes
	maxInteger  = 1<<53 - 1
)

//go:embed openapi.yaml
var documents embed.FS

type handler struct {
	Options
	mux     *http.ServeMux
	waiting chan struct{}
	keeper  *keeper
}

// A call is a request that may be served.
type call struct {
	w         http.ResponseWriter
	r         *http.Request
	caller    *auth.Principal
	limiter   *zlimit.RateLimiter
	namespace string
	form      form
}

// written is the reply of a call that has written its own.
var written = new(struct{})

// A route is one call of the API.
type route struct {
	pattern string
	role    auth.Role // one of them is enough
	limit   time.Duration
	serve   func(*call) (reply any, err error) // a reply of nil has no content
}

func (h *handler) routes() []route {
	all := []route{
		{"POST /v1/acquire", auth.Acquire, maxTime + maxWait, on(h.acquire)},
		{"POST /v1/settle", auth.Acquire, maxTime, on(h.settle)},
		{"POST /v1/rollback", auth.Acquire, maxTime, on(h.rollback)},
		{"POST /v1/heartbeat", auth.Acquire, maxTime, on(h.heartbeat)},
		{"GET /v1/available", auth.Acquire | auth.Read, maxTime, on(h.available)},
		{"POST /v1/topup", auth.Admin, maxTime, on(h.topUp)},
		{"POST /v1/reset", auth.Admin, maxTime, on(h.reset)},
		{"POST /v1/entities/{entity}/parent", auth.Admin, maxMarkTime, on(h.setParent)},
		{"GET /v1/usage", auth.Read, maxReadTime, on(h.usage)},
		{"GET /v1/forecast", auth.Read, maxReadTime, on(h.forecast)},
		{"GET /v1/rejections", auth.Read, maxReadTime, on(h.rejections)},
		{"GET /v1/events", auth.Read, 0, on(h.events)},
	}
	for _, level := range []string{"system", "resources/{resource}", "entities/{entity}", "entities/{entity}/resources/{resource}"} {
		path := " /v1/limits/" + level
		all = append(all,
			route{"GET" + path, auth.Read, maxTime, h.getLimits},
			route{"PUT" + path, auth.Admin, maxTime, on(h.putLimits)},
			route{"DELETE" + path, auth.Admin, maxTime, h.deleteLimits})
	}
	for name, turn := range switches {
		all = append(all,
			route{"POST /v1/entities/{entity}/" + name, auth.Admin, maxMarkTime, h.turn(turn, name != "disable")},
			route{"POST /v1/resources/{resource}/" + name, auth.Admin, maxMarkTime, h.turn(turn, name != "disable")})
	}
	return all
}

// New returns the handler of all paths below /v1/. It is safe for concurrent use.
func New(o Options) http.Handler {
	o.Namespace = cmp.Or(o.Namespace, zlimit.DefaultNamespace)
	o.MaxWaiting = cmp.Or(o.MaxWaiting, 1000)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Now == nil {
		o.Now = time.Now
	}
	h := &handler{Options: o, mux: http.NewServeMux(), waiting: make(chan struct{}, o.MaxWaiting), keeper: newKeeper()}
	document := specification()
	for _, rt := range h.routes() {
		h.mux.Handle(rt.pattern, h.serve(rt, formOf(document, rt.pattern)))
	}
	h.mux.Handle("GET /v1/openapi.yaml", http.HandlerFunc(h.document))
	h.mux.HandleFunc("/", h.unknown)
	protection := http.NewCrossOriginProtection()
	protection.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		err := refuse(http.StatusForbidden, "cross_origin", "Request of another site", "")
		writeProblem(w, err, nil)
	}))
	return closeUnread(protection.Handler(h.mux))
}

// closeUnread lets a connection end with a reply that is made before the body was read. Otherwise net/http would wait for the rest of the
// body before it replies. [call.body] keeps the connection.
func closeUnread(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 1 && r.Body != http.NoBody {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// ExactPaths refuses paths with //, . and .. that are not percent-encoded. [http.ServeMux] redirects such a path to a shorter one, which
// names another level.
func ExactPaths(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p := r.URL.EscapedPath(); r.Method != http.MethodConnect && p != "/" && path.Clean("/"+p) != strings.TrimSuffix(p, "/") {
			err := invalid("path", p, "must have no empty name, and . and .. as %2E and %2E%2E")
			writeProblem(w, err, nil)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// serve returns the handler of a route: who calls, what the caller may do, and the answer.
func (h *handler) serve(rt route, f form) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		c := &call{w: w, r: r, form: f}
		w.Header().Set("Cache-Control", "no-store")
		c.deadlines(rt.limit)
		var reply any
		err := h.admit(c, rt)
		if err == nil {
			ctx, cancel := zlimit.ContextWithPrincipal(r.Context(), c.caller.Name), context.CancelFunc(func() {})
			if rt.limit > 0 {
				ctx, cancel = context.WithTimeout(ctx, rt.limit)
			}
			c.r = r.WithContext(ctx)
			reply, err = rt.serve(c)
			cancel()
		}
		status := http.StatusOK
		switch {
		case err != nil:
			if status = writeProblem(w, err, c.caller); status == http.StatusInternalServerError {
				h.Logger.ErrorContext(r.Context(), "a request failed", "route", rt.pattern, "error", err)
			}
		case reply == nil:
			status = http.StatusNoContent
			w.WriteHeader(status)
		case reply != written:
			writeJSON(w, status, "application/json", reply)
		}
		h.log(r.Context(), c, rt, status, time.Since(began))
	})
}

// deadlines bounds the times in which the body comes, and the reply is taken. A stream of events sets its own.
func (c *call) deadlines(limit time.Duration) {
	rc, now := http.NewResponseController(c.w), time.Now()
	var body time.Time // none without a body: it would end the request while it is served
	if c.r.Body != http.NoBody {
		body = now.Add(maxBodyTime)
	}
	_ = rc.SetReadDeadline(body) // if there is a connection
	_ = rc.SetWriteDeadline(now.Add(limit + maxBodyTime))
}

// admit says who calls, and refuses what the caller may not do.
func (h *handler) admit(c *call, rt route) (err error) {
	callers := h.Callers()
	if verified := c.r.TLS != nil && len(c.r.TLS.VerifiedChains) > 0; callers.Open() && !verified && !auth.IsLoopback(c.r.Host) {
		return refuse(http.StatusForbidden, "foreign_host", "Wrong host", "A server without keys answers requests to the loopback alone.")
	}
	if c.caller, err = callers.ByRequest(c.r); err != nil {
		detail := "The key is not known here, or has expired."
		if errors.Is(err, auth.ErrNoKey) {
			detail = "A key must be given: Authorization: Bearer KEY."
		}
		return refuse(http.StatusUnauthorized, "unauthorized", "No valid key", detail)
	}
	if !c.caller.MayAny(rt.role) {
		return refuse(http.StatusForbidden, "forbidden", "Role missing", "The call needs the role "+roleText(rt.role)+".")
	}
	named := c.r.Header.Get("Zlimit-Namespace")
	name, ok := c.caller.Namespace(named)
	if !ok {
		return refuse(http.StatusForbidden, "forbidden", "Wrong namespace", "The key is not for this namespace.")
	}
	if c.namespace = name; name == h.Namespace {
		c.limiter = h.Limiter
	} else if c.limiter = h.Namespaces[name]; c.limiter == nil {
		return refuse(http.StatusForbidden, "forbidden", "Wrong namespace", "The server does not serve this namespace.")
	}
	return nil
}

func roleText(role auth.Role) string {
	if role == auth.Acquire|auth.Read {
		return "acquire or read"
	}
	return role.String()
}

// mayName refuses entities that the caller may not name. An empty name stands for all entities.
func (c *call) mayName(entities ...string) error {
	for _, entity := range entities {
		if entity == "" && !c.caller.MayAll() {
			return refuse(http.StatusForbidden, "forbidden", "Entities missing", "The key is for some entities, and the call is about all of them.")
		}
		if entity != "" && !c.caller.MayEntity(entity) {
			return refuse(http.StatusForbidden, "forbidden", "Wrong entity", "The key is not for this entity.")
		}
	}
	return nil
}

// body reads the body of a request, an object of JSON.
func (c *call) body() ([]byte, error) {
	kind, parameters, err := mime.ParseMediaType(c.r.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" || parameters["charset"] != "" && parameters["charset"] != "utf-8" && parameters["charset"] != "UTF-8" {
		return nil, refuse(http.StatusUnsupportedMediaType, "media_type", "Wrong media type", "The body must be application/json.")
	}
	if c.r.Header.Get("Content-Encoding") != "" {
		return nil, refuse(http.StatusUnsupportedMediaType, "media_type", "Wrong media type", "The body must not be encoded.")
	}
	data, err := io.ReadAll(http.MaxBytesReader(c.w, c.r.Body, maxBody))
	switch {
	case errors.As(err, new(*http.MaxBytesError)):
		return nil, err
	case err != nil:
		return nil, refuse(http.StatusRequestTimeout, "body", "Body not sent in time", "")
	}
	_ = http.NewResponseController(c.w).SetReadDeadline(time.Time{}) // which would end the request while it waits
	c.w.Header().Del("Connection")
	return bytes.TrimSpace(data), nil
}

func writeJSON(w http.ResponseWriter, status int, kind string, reply any) {
	body, err := json.Marshal(reply)
	if err != nil { // of a problem there is none
		writeProblem(w, err, nil)
		return
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // a client that is gone
}

// log writes a line for a request. It has the pattern of the path, and neither a query nor a body.
func (h *handler) log(ctx context.Context, c *call, rt route, status int, took time.Duration) {
	caller := ""
	if c.caller != nil {
		caller = c.caller.Name
	}
	h.Logger.LogAttrs(ctx, slog.LevelInfo, "request", slog.String("route", rt.pattern), slog.Int("status", status),
		slog.Duration("took", took), slog.String("caller", caller), slog.String("namespace", c.namespace), slog.String("remote", c.r.RemoteAddr))
}

func (h *handler) document(w http.ResponseWriter, _ *http.Request) {
	text, _ := documents.ReadFile("openapi.yaml") // it is embedded
	w.Header().Set("Content-Type", "application/yaml")
	_, _ = w.Write(text)
}

// unknown answers a request of no route.
func (h *handler) unknown(w http.ResponseWriter, r *http.Request) {
	var allowed []string
	for _, method := range []string{"GET", "POST", "PUT", "DELETE"} {
		other := &http.Request{Method: method, URL: r.URL, Host: r.Host}
		if _, pattern := h.mux.Handler(other); pattern != "/" && pattern != "" {
			allowed = append(allowed, method)
		}
	}
	err := refuse(http.StatusNotFound, "not_found", "No such call", "The document /v1/openapi.yaml has all calls.")
	if len(allowed) > 0 {
		for _, method := range allowed {
			w.Header().Add("Allow", method)
		}
		err = refuse(http.StatusMethodNotAllowed, "method", "Wrong method", "")
	}
	writeProblem(w, err, nil)
}
