package sqlite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/zlimit/zlimit-go/internal/store"
)

const (
	// applicationID marks a database file as zlimit's: "zlim".
	applicationID = 0x7a6c696d
	// schemaVersion is the version of the tables. A file of a newer version is refused.
	schemaVersion = 1
)

// A layout is what a [store.Table] means for the database. Every item is one row of the table items, with its key and
// the encoding of its other attributes. The key attributes of the indexes are once more in columns of their own. So a
// write touches an index only where it changes the keys of that index.
type layout struct {
	*store.Schema

	columns []string // the key attributes of the indexes, each once

	create          []string // the statements that make the schema
	insert, replace string
}

func newLayout(table store.Table) (*layout, error) {
	schema, err := store.NewSchema(table)
	if err != nil {
		return nil, err
	}
	l := &layout{Schema: schema}
	var indexes []string
	for i := range table.Indexes {
		x := &table.Indexes[i]
		l.addColumn(x.PK)
		l.addColumn(x.SK)
		indexes = append(indexes, fmt.Sprintf("CREATE INDEX %s ON items (%s, %s) WHERE %[2]s IS NOT NULL AND %[4]s IS NOT NULL",
			quote(x.Name), l.column(x.PK), strings.Join(l.order(x), ", "), l.column(x.SK)))
	}
	var declared, assigned strings.Builder
	for _, name := range l.columns {
		declared.WriteString(", " + quote(name) + " TEXT")
		assigned.WriteString(", " + quote(name) + " = ?")
	}
	l.create = append([]string{
		"CREATE TABLE items (pk TEXT NOT NULL, sk TEXT NOT NULL, item BLOB NOT NULL" + declared.String() + ", PRIMARY KEY (pk, sk)) STRICT",
	}, indexes...)
	l.create = append(l.create, createLog...)
	l.create = append(l.create,
		fmt.Sprintf("PRAGMA application_id = %d", applicationID),
		fmt.Sprintf("PRAGMA user_version = %d", schemaVersion))
	l.insert = "INSERT INTO items VALUES (?, ?, ?" + strings.Repeat(", ?", len(l.columns)) + ")"
	l.replace = "UPDATE items SET item = ?" + assigned.String() + " WHERE rowid = ?"
	return l, nil
}

func (l *layout) addColumn(attribute string) {
	if l.Indexed(attribute) && !slices.Contains(l.columns, attribute) {
		l.columns = append(l.columns, attribute)
	}
}

// column returns the quoted column of a key attribute of the table or of an index.
func (l *layout) column(attribute string) string {
	switch attribute {
	case store.PK:
		return "pk"
	case store.SK:
		return "sk"
	default:
		return quote(attribute)
	}
}

// order returns the columns that put the items of one partition of an index in a total order: its sort key,
// and the columns that distinguish items with the same one. An index of its partition key and these holds all that a
// query for keys needs.
func (l *layout) order(x *store.Index) []string {
	columns := []string{l.column(x.SK)}
	for _, c := range []string{"pk", "sk"} {
		if c != l.column(x.PK) && c != l.column(x.SK) {
			columns = append(columns, c)
		}
	}
	return columns
}

// isKey reports whether an attribute is of the table's own key.
func isKey(name string) bool { return name == store.PK || name == store.SK }

func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// check checks whether the database holds the schema. It returns [store.ErrTableNotFound] when the database is empty,
// and another error when it is one of another program, or newer.
func (c *conn) check(ctx context.Context) error {
	// Another process may set the file up meanwhile, in one transaction. Tables are counted first: none of those that this finds is younger
	// than the mark of their application.
	tables, err := c.number(ctx, "SELECT count(*) FROM sqlite_schema")
	if err != nil {
		return err
	}
	application, err := c.number(ctx, "PRAGMA application_id")
	if err != nil {
		return err
	}
	version, err := c.number(ctx, "PRAGMA user_version")
	switch {
	case err != nil:
		return err
	case application == applicationID && version > schemaVersion:
		return fmt.Errorf("schema version %d is newer than this program's, %d", version, schemaVersion)
	case application == applicationID && version == schemaVersion:
		return nil
	case application != 0 || tables > 0:
		return errors.New("the database belongs to another application")
	default:
		return store.ErrTableNotFound
	}
}
