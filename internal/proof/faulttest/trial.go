package faulttest

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/zlimit/zlimit-go/zlimit"
)

// A Trial is a call of alice in an outage, which takes one of her ten tokens.
type Trial struct {
	Outage
	Limiter  *zlimit.RateLimiter
	Log      Log
	Settling *Settling // since Begin

	store *Store
}

// Begin breaks the store. From then on the lease of the call is settled.
func (x *Trial) Begin() { x.Settling = x.Outage.Begin(x.store) }

// InOutages makes a call of each kind in each outage, in a bubble of its own. The call begins the outage, and returns what alice has left
// once her lease is settled. If it is given up instead, the log has a line with a text, and nine tokens are left.
func InOutages[K any](t *testing.T, text string, kinds []K, call func(t *testing.T, x *Trial, kind K) (left int64)) {
	t.Helper()
	for _, o := range Outages() {
		for _, kind := range kinds {
			t.Run(fmt.Sprint(o.Name, ", ", kind), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					limiter, s := New(t, Never())
					x := &Trial{Outage: o, Limiter: limiter, store: s}
					want := o.Left(call(t, x, kind), 9)
					x.Settling.Check(t, &x.Log, text)
					if got := Left(t, limiter, "alice"); got != want {
						t.Errorf("%d left, want %d", got, want)
					}
				})
			})
		}
	}
}

// Pairs returns each of some words with each of others.
func Pairs(some, others []string) (all [][2]string) {
	for _, a := range some {
		for _, b := range others {
			all = append(all, [2]string{a, b})
		}
	}
	return all
}
