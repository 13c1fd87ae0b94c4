package zlimit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/store/memory"
)

// A Store contains the state of limiters. [SQLite], [Memory] and package [github.com/zlimit/zlimit-go/zlimit/dynamo]
// make one. It is safe for concurrent use, and several limiters may share it. Its method Close releases everything that
// the store opened. A client that was passed to dynamo.New stays open.
type Store = store.Handle

// SQLite returns a store on a database file, which any number of processes on one machine may share. The program must import
// [github.com/zlimit/zlimit-go/zlimit/sqlite] for its side effect. Without the import, SQLite returns a [*ValidationError] that says so. A
// missing file is created, readable and writable only by its owner. A crash of a process loses nothing. A power failure may lose the
// admissions of the last moments. While the file is open, its latest writes are in the files PATH-wal and PATH-shm. After the last Close,
// the file itself is complete. If the file is deleted or replaced while it is open, calls fail within a second, until the store is closed
// and opened again.
func SQLite(path string) (Store, error) {
	if store.OpenFile == nil {
		return Store{}, &ValidationError{Field: "store", Value: path, Reason: sqliteMissing}
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return Store{}, &ValidationError{Field: "store", Value: path, Reason: "must be the path of a file, not of a directory or a device"}
	}
	s, err := store.OpenFile(path, layout.Table)
	if err != nil {
		return Store{}, fmt.Errorf("zlimit: open %s: %w", path, err)
	}
	return store.NewHandle(s, true), nil
}

// sqliteMissing is the rule that a path breaks in a program without the SQLite store.
const sqliteMissing = `the program does not link the SQLite store: add import _ "github.com/zlimit/zlimit-go/zlimit/sqlite"`

// dynamoMissing is the rule that a table breaks in a program without the DynamoDB store.
const dynamoMissing = `the program does not link the DynamoDB store: add import _ "github.com/zlimit/zlimit-go/zlimit/dynamo"`

// Memory returns a store in the memory of this process.
func Memory() (Store, error) { return openMemory() }

// MemoryAt is [Memory] with a clock that determines the time of changes. An aggregator counts usage by that time, so limiters and
// aggregators on the store should use the same clock. So a test or a simulation can have usage of any day. Changes older than a day by the
// clock are dropped. The clock must be safe for concurrent use.
func MemoryAt(now func() time.Time) (Store, error) { return openMemory(memory.Clock(now)) }

func openMemory(opts ...memory.Option) (Store, error) {
	s, err := memory.New(layout.Table, opts...)
	if err != nil {
		return Store{}, fmt.Errorf("zlimit: open memory: %w", err)
	}
	return store.NewHandle(s, true), nil
}

// OpenStore returns the store of a data source name, as for [Open], without a limiter. It sets up a SQLite file or
// memory, but does not access a DynamoDB table. Warnings of the AWS SDK are not logged. The caller closes the store.
func OpenStore(ctx context.Context, name string) (Store, error) {
	d, err := parseDSN(name)
	if err != nil {
		return Store{}, err
	}
	s, err := d.open(ctx, slog.New(slog.DiscardHandler))
	if err != nil {
		return Store{}, err
	}
	if store.IsEmbedded(s) {
		if err := store.Of(s).Setup(ctx); err != nil {
			return Store{}, errors.Join(publicError("set up the store", err), s.Close())
		}
	}
	return s, nil
}

// A dsn is a parsed data source name.
type dsn struct {
	scheme string // "memory", "sqlite" or "dynamodb"
	path   string // the file of sqlite
	table  string // the table of dynamodb
	client store.TableConfig
}

// parseDSN parses "memory:", "sqlite:PATH" or "dynamodb:TABLE?region=…&endpoint=…&profile=…&idle=…&timeout=…".
func parseDSN(text string) (dsn, error) {
	scheme, rest, ok := strings.Cut(text, ":")
	d, reason := dsn{scheme: scheme}, ""
	switch {
	case ok && scheme == "memory":
		if rest != "" {
			reason = "memory: takes nothing after the colon"
		}
	case ok && scheme == "sqlite":
		reason = d.parseFile(rest)
	case ok && scheme == "dynamodb":
		reason = d.parseTable(rest)
	default:
		reason = "must be memory:, sqlite:PATH or dynamodb:TABLE"
	}
	if reason != "" {
		return dsn{}, &ValidationError{Field: "store", Value: withoutSecrets(text), Reason: reason}
	}
	return d, nil
}

// parseFile reads the path of a SQLite file, and returns the mistake in it.
func (d *dsn) parseFile(path string) (reason string) {
	if path == "" || strings.ContainsRune(path, 0) {
		return "sqlite: must be followed by the path of a file"
	}
	if path == ":memory:" {
		return "a store in memory is memory:"
	}
	if at := strings.LastIndexByte(path, '?'); at >= 0 {
		if name, _, ok := strings.Cut(path[at+1:], "="); ok {
			return fmt.Sprintf("sqlite: takes a path alone, and no parameter such as %q", name)
		}
	}
	d.path = path
	return ""
}

// parseTable reads the name of a DynamoDB table and its parameters, and returns the mistake in them.
func (d *dsn) parseTable(text string) (reason string) {
	table, query, _ := strings.Cut(text, "?")
	if reason := checkTable(table); reason != "" {
		return reason
	}
	d.table = table
	if strings.HasPrefix(table, "arn:") { // of its own region, unless the query names an endpoint for another
		d.client.Region = strings.Split(table, ":")[3]
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return "what follows the question mark must be a URL query"
	}
	idle, timeout := "", ""
	targets := map[string]*string{
		"region": &d.client.Region, "endpoint": &d.client.Endpoint, "profile": &d.client.Profile, "idle": &idle, "timeout": &timeout,
	}
	for key, v := range values {
		target := targets[key]
		switch {
		case target == nil:
			return fmt.Sprintf("dynamodb: takes region, endpoint, profile, idle and timeout, not %q", key)
		case len(v) > 1 || v[0] == "":
			return key + " must be there once, with a value"
		}
		*target = v[0]
	}
	if idle != "" {
		if d.client.Idle, err = time.ParseDuration(idle); err != nil || d.client.Idle < time.Second {
			return "idle must be a duration of a second or more, such as 20s"
		}
	}
	if timeout != "" {
		if d.client.CallTimeout, err = time.ParseDuration(timeout); err != nil || d.client.CallTimeout < minDSNTimeout || d.client.CallTimeout > maxDSNTimeout {
			return "timeout must be a duration from 10ms to 5m, such as 10s"
		}
	}
	return checkEndpoint(d.client.Endpoint)
}

// The bounds of the timeout parameter. A shorter one is a mistake in the unit, and a longer one hides outages.
const minDSNTimeout, maxDSNTimeout = 10 * time.Millisecond, 5 * time.Minute

// checkEndpoint returns the mistake in the URL of a DynamoDB endpoint; "" stands for that of the region.
func checkEndpoint(endpoint string) (reason string) {
	if endpoint == "" {
		return ""
	}
	u, err := url.Parse(endpoint)
	if err == nil && u.User != nil {
		return "endpoint must not hold a user: credentials come from the environment or a profile"
	}
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return "endpoint must be an http or https URL"
	}
	return ""
}

// withoutSecrets returns a data source name as an error may show it: without its query where that may hold a password.
func withoutSecrets(text string) string {
	name, query, _ := strings.Cut(text, "?")
	if strings.Contains(query, "@") || strings.Contains(query, "%40") {
		return name + "?…"
	}
	return text
}

// tableARN is the form of the ARN of a table, which may be of another account.
var tableARN = regexp.MustCompile(`^arn:aws[a-z-]*:dynamodb:[a-z0-9-]+:[0-9]{12}:table/[^/]+$`)

// checkTable returns the rule of DynamoDB that a table name breaks, "" when it is valid.
func checkTable(name string) string {
	if strings.HasPrefix(name, "arn:") {
		if !tableARN.MatchString(name) {
			return "an ARN of a table must be such as arn:aws:dynamodb:eu-central-1:123456789012:table/limits"
		}
		name = name[strings.LastIndexByte(name, '/')+1:]
	}
	if len(name) < 3 || len(name) > 255 {
		return "a table name must have from 3 to 255 characters"
	}
	for _, r := range name {
		if !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-", r) {
			return "a table name must hold only ASCII letters, digits and _.-"
		}
	}
	return ""
}

// open opens the store that a data source name stands for. The AWS SDK reports its warnings to a logger.
func (d dsn) open(ctx context.Context, logger *slog.Logger) (Store, error) {
	switch d.scheme {
	case "memory":
		return Memory()
	case "sqlite":
		return SQLite(d.path)
	default:
		d.client.Logger = logger
		if store.OpenTable == nil {
			return Store{}, &ValidationError{Field: "store", Value: "dynamodb:" + d.table, Reason: dynamoMissing}
		}
		s, err := store.OpenTable(ctx, d.client, d.table, layout.Table)
		if err != nil {
			return Store{}, fmt.Errorf("zlimit: configure the DynamoDB client: %w", err)
		}
		return store.NewHandle(s, false), nil
	}
}
