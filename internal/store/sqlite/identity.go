package sqlite

import (
	"context"

	"github.com/zlimit/zlimit-go/internal/store"
)

// Identity returns the name of the user of the operating system that the process runs as.
func (*Store) Identity(context.Context) (string, error) { return store.CurrentUser() }
