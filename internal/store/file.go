package store

import (
	"context"
	"log/slog"
	"time"
)

// OpenFile returns a store on a database file. It is nil in a program without such a store. Package zlimit/sqlite sets
// it while the program is initialized, and links the database with it.
var OpenFile func(path string, table Table) (Store, error)

// OpenTable returns a store on a DynamoDB table. It is nil in a program without such a store. Package zlimit/dynamo sets it
// while the program is initialized, and links the AWS SDK with it.
var OpenTable func(ctx context.Context, config TableConfig, table string, schema Table) (Store, error)

// A TableConfig says where a client finds DynamoDB. Its zero value leaves all to the environment and the shared AWS
// configuration files, as the SDK reads them.
type TableConfig struct {
	Region   string // "" for the environment's
	Endpoint string // a URL; "" for the region's
	Profile  string // of the shared configuration files; "" for the environment's
	// Idle is how long a connection is kept that nothing uses; 0 for the default.
	Idle time.Duration
	// CallTimeout bounds a call of a limiter that asks for no other bound; 0 for the default.
	CallTimeout time.Duration
	// Logger gets the warnings of the SDK; nil for none.
	Logger *slog.Logger
}
