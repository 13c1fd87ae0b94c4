package dashboard

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/maypok86/otter/v2"
)

const (
	sessionTime  = 12 * time.Hour
	mostSessions = 10_000
	signInDelay  = 250 * time.Millisecond // for a wrong key
)

// cookieName is the name of the cookie of a page. Browsers send the cookies of a host to all its ports, so the name has the port.
func cookieName(r *http.Request) string {
	const name = "zlimit_session"
	u := url.URL{Host: r.Host}
	if port := u.Port(); port != "" {
		return name + "_" + port
	}
	return name
}

// sessions are who is signed in to this replica, by the SHA-256 of the cookie. They are held in memory: they end with the process.
type sessions struct {
	open  *otter.Cache[[sha256.Size]byte, User]
	token atomic.Pointer[string] // that signs in once; nil for none, or when it was used
}

func newSessions(token string) *sessions {
	s := &sessions{open: otter.Must(&otter.Options[[sha256.Size]byte, User]{
		MaximumSize: mostSessions, ExpiryCalculator: otter.ExpiryWriting[[sha256.Size]byte, User](sessionTime),
	})}
	if token != "" {
		s.token.Store(&token)
	}
	return s
}

// redeem reports whether a token is the one that signs in once. The first visitor who has it uses it up.
func (s *sessions) redeem(token string) bool {
	of := s.token.Load()
	return of != nil && subtle.ConstantTimeCompare([]byte(token), []byte(*of)) == 1 && s.token.CompareAndSwap(of, nil)
}

// begin returns the secret of a new session.
func (s *sessions) begin(u User) string {
	secret := rand.Text() + rand.Text()
	s.open.Set(sha256.Sum256([]byte(secret)), u)
	return secret
}

func (s *sessions) user(r *http.Request) (User, bool) {
	cookie, err := r.Cookie(cookieName(r))
	if err != nil {
		return User{}, false
	}
	u, ok := s.open.GetIfPresent(sha256.Sum256([]byte(cookie.Value)))
	return u, ok && (u.Valid == nil || u.Valid())
}

func (s *sessions) end(r *http.Request) {
	if cookie, err := r.Cookie(cookieName(r)); err == nil {
		s.open.Invalidate(sha256.Sum256([]byte(cookie.Value)))
	}
}

type handle func(w http.ResponseWriter, r *http.Request, u User)

// viewers serves who is signed in; others are sent to sign in.
func (p *page) viewers(next handle) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u, ok := p.sessions.user(r)
		switch {
		case ok:
			next(w, r, u)
		case r.Method == http.MethodGet && r.URL.Path != "/events":
			http.Redirect(w, r, "/signin?to="+url.QueryEscape(r.URL.RequestURI()), http.StatusSeeOther)
		default:
			http.Error(w, "sign in first", http.StatusUnauthorized)
		}
	})
}

type signIn struct {
	To     string
	Wrong  string
	HasKey bool
}

func (p *page) showSignIn(w http.ResponseWriter, r *http.Request) {
	to, token := local(r.URL.Query().Get("to")), r.URL.Query().Get("token")
	switch _, ok := p.sessions.user(r); {
	case token != "" && p.sessions.redeem(token):
		p.enter(w, r, User{Name: p.TokenUser, Admin: true}, to)
	case token != "":
		p.askKey(w, r, to, "The link was used already. Start the command again for a new one.")
	case ok:
		http.Redirect(w, r, to, http.StatusSeeOther)
	default:
		p.askKey(w, r, to, "")
	}
}

// askKey shows the form of a key, and what was wrong before; "" for nothing.
func (p *page) askKey(w http.ResponseWriter, r *http.Request, to, wrong string) {
	v := view{Body: signIn{To: to, Wrong: wrong, HasKey: p.SignIn != nil}, Headless: true}
	if wrong != "" {
		v.Status = http.StatusForbidden
	}
	p.show(w, r, User{}, "signin", v)
}

func (p *page) signIn(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil || p.SignIn == nil {
		http.Error(w, "there is no sign-in by key", http.StatusBadRequest)
		return
	}
	to := local(r.PostForm.Get("to"))
	u, err := p.SignIn(r.Context(), strings.TrimSpace(r.PostForm.Get("key")))
	if err != nil {
		time.Sleep(signInDelay)
		if !errors.Is(err, ErrSignIn) {
			p.Logger.Error("dashboard: sign in", "error", err)
		}
		p.askKey(w, r, to, "This key is not known, or may not see the page.")
		return
	}
	p.enter(w, r, u, to)
}

func (p *page) enter(w http.ResponseWriter, r *http.Request, u User, to string) {
	p.setCookie(w, r, p.sessions.begin(u), int(sessionTime.Seconds()))
	http.Redirect(w, r, to, http.StatusSeeOther)
}

func (p *page) signOut(w http.ResponseWriter, r *http.Request) {
	p.sessions.end(r)
	p.setCookie(w, r, "", -1)
	http.Redirect(w, r, "/signin", http.StatusSeeOther)
}

func (p *page) setCookie(w http.ResponseWriter, r *http.Request, value string, maxAge int) {
	http.SetCookie(w, &http.Cookie{
		Name: cookieName(r), Value: value, Path: "/", MaxAge: maxAge,
		HttpOnly: true, Secure: r.TLS != nil || p.SecureCookies, SameSite: http.SameSiteStrictMode,
	})
}

// local returns a path of this page, whatever was asked for.
func local(to string) string {
	u, err := url.Parse(to)
	if err != nil || u.IsAbs() || u.Host != "" || !strings.HasPrefix(to, "/") || strings.HasPrefix(to, "//") || strings.Contains(to, `\`) || strings.HasPrefix(u.Path, "/signin") {
		return "/"
	}
	return to
}
