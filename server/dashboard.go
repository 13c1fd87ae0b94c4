package server

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/dashboard"
	"github.com/zlimit/zlimit-go/dashboard/demo"
	"github.com/zlimit/zlimit-go/server/internal/auth"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/leasetoken"
	"github.com/zlimit/zlimit-go/zlimit/recent"
)

// bucketsPerSecond bounds what the page reads of a store whose reads cost: 125 read units a second, while somebody looks.
const bucketsPerSecond = 250

// page returns the page of a server. Callers with the role read see it, and those with the role admin change limits as well; callers
// that are narrowed down to some entities do not. Without callers, the log has a link that works once.
func (s *Server) page(seen *recent.Observer) (http.Handler, error) {
	o := dashboard.Options{
		Limiter: s.limiter, Recent: seen, Namespace: s.config.Namespace, Store: storeName(s.config.Store), Logger: s.logger, Ending: s.ending, ConfigTTL: configTTL,
		Leases:        func(resource string) []leasetoken.HeldLease { return s.held.Of(s.config.Namespace, resource) },
		SecureCookies: s.tls.Load() != nil, BucketsPerSecond: pace(s.config.Store),
	}
	if s.callers.Load().Open() {
		o.Token, o.TokenUser = rand.Text(), "operator"
		scheme := "http://"
		if o.SecureCookies {
			scheme = "https://"
		}
		s.logger.Info("the dashboard has a link that works once", "url", scheme+s.HTTPAddr()+"/signin?token="+o.Token)
	} else {
		o.SignIn = s.signIn
	}
	return dashboard.New(o)
}

// signIn returns who has a key, and may see the whole namespace.
func (s *Server) signIn(_ context.Context, key string) (dashboard.User, error) {
	sees := func() (*auth.Principal, bool) {
		p, err := s.callers.Load().ByKey(key)
		if err != nil || !p.May(auth.Read) || !p.MayAll() {
			return nil, false
		}
		_, ok := p.Namespace(s.config.Namespace)
		return p, ok
	}
	p, ok := sees()
	if !ok {
		return dashboard.User{}, dashboard.ErrSignIn
	}
	return dashboard.User{Name: p.Name, Admin: p.May(auth.Admin), Valid: func() bool {
		now, ok := sees()
		return ok && now.May(auth.Admin) == p.May(auth.Admin)
	}}, nil
}

// storeName is a store without the parameters of its name.
func storeName(store string) string {
	name, _, _ := strings.Cut(store, "?")
	return name
}

// pace bounds the readings of a store on a network.
func pace(store string) float64 {
	if strings.HasPrefix(store, "dynamodb:") {
		return bucketsPerSecond
	}
	return 0
}

// A Dashboard is the page alone, on the loopback.
type Dashboard struct {
	// Config says which store and namespace; without one, Demo must be set.
	Config *Config
	// Demo shows a made-up company in memory.
	Demo bool
	// Address is an address of the loopback; 127.0.0.1:8082 for "".
	Address string
	// Ready is called with the link that works once.
	Ready func(link string)
	// Logger gets failures.
	Logger *slog.Logger
}

// Run serves the page until the context ends.
func (d *Dashboard) Run(ctx context.Context) (err error) {
	if d.Address == "" {
		d.Address = "127.0.0.1:8082"
	}
	if host, _, err := net.SplitHostPort(d.Address); err != nil || !auth.IsLoopback(host) {
		return fmt.Errorf("listen must be an address of the loopback, and not %q: a server with callers and dashboard: true shows the page elsewhere", d.Address)
	}
	o := dashboard.Options{Token: rand.Text(), TokenUser: "operator", Logger: d.Logger, Ending: ctx.Done()}
	if d.Demo {
		company, err := demo.Start(ctx, demo.Options{Days: 59})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, company.Close()) }() //nolint:contextcheck // what is held is given back after the end
		o.Limiter, o.Recent, o.Now, o.Store, o.Namespace, o.Leases = company.Limiter, company.Recent, company.Now, "a demo in memory", "demo", company.Leases
	} else {
		o.Recent = recent.New(nil)
		l, err := zlimit.Open(ctx, d.Config.Store, zlimit.WithNamespace(d.Config.Namespace), zlimit.WithObserver(o.Recent.Observe), zlimit.WithLogger(d.Logger), zlimit.WithConfigTTL(configTTL))
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, l.Close()) }()
		o.Limiter, o.Store, o.Namespace, o.BucketsPerSecond = l, storeName(d.Config.Store), d.Config.Namespace, pace(d.Config.Store)
	}
	handler, err := dashboard.New(o)
	if err != nil {
		return err
	}
	port, err := net.Listen("tcp", d.Address)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, WriteTimeout: 2 * time.Minute, MaxHeaderBytes: maxMessage}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if d.Ready != nil {
		d.Ready("http://" + port.Addr().String() + "/signin?token=" + o.Token)
	}
	if err := server.Serve(port); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
