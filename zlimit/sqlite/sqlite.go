// Package sqlite links the SQLite store, so that [zlimit.Open] takes "sqlite:PATH" and [zlimit.SQLite] works. Import it for
// its effect, in one file of the program:
//
//	import _ "github.com/zlimit/zlimit-go/zlimit/sqlite"
//
// The package is apart from zlimit, so that a program with its limits in DynamoDB or in memory carries no database
// engine.
//
// [zlimit.Open]: https://pkg.go.dev/github.com/zlimit/zlimit-go/zlimit#Open
// [zlimit.SQLite]: https://pkg.go.dev/github.com/zlimit/zlimit-go/zlimit#SQLite
package sqlite

import (
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/store/sqlite"
)

func init() {
	store.OpenFile = func(path string, table store.Table) (store.Store, error) { return sqlite.Open(path, table) }
}
