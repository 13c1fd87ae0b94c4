package zlimit

import (
	"github.com/zlimit/zlimit-go/internal/bridge"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/stream"
)

// table is what package aggregator may use of a store.
type table struct{ store store.Store }

var _ bridge.Table = table{}

func init() { bridge.Of = func(s any) bridge.Table { return table{s.(Store).impl} } }

// Store returns the store itself.
func (t table) Store() store.Store { return t.store }

// Leases returns the leases of the consumers of its change stream.
func (t table) Leases() stream.Leases { return leases(t) }
