package zlimit

import (
	"github.com/zlimit/zlimit-go/internal/door"
	"github.com/zlimit/zlimit-go/internal/store"
)

func init() { door.Store = func(s store.Store) any { return Store{impl: s} } }
