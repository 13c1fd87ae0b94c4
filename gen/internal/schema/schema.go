// Package schema is the layout of the table as a checked data model. [Load] reads it from YAML and reports all
// mistakes, not just the first. A loaded schema is ready for the generators without further checks. The grammar is described in
// spec/README.md.
package schema

import (
	"slices"
	"strings"

	"github.com/zlimit/zlimit-go/internal/document"
)

// A Schema is a valid description of the table, its records and its operations. Slices are in the order of the
// document.
type Schema struct {
	Version          string // of the layout
	ClientMinVersion string // of the oldest client that may use a table of this layout
	TTL              string // attribute that holds the time of expiry
	Fields           []*Field
	Features         []*Feature
	Indexes          []*Index
	Records          []*Record
	Members          []*Members // of all families, each once
	Queries          []*Query
	Operations       []*Operation
}

// KeyAttributes returns the names of the attributes that are parts of keys.
func (s *Schema) KeyAttributes() []string {
	names := []string{"PK", "SK"}
	for _, x := range s.Indexes {
		names = append(names, x.Attributes()...)
	}
	return names
}

// A Field is a part of keys.
type Field struct {
	Pos    document.Pos
	Name   string
	Int    bool   // a number from 0 in decimal; otherwise a string that is not empty
	Forbid string // characters besides "#" that a string never contains
	Doc    string
}

// allows reports whether a value of the field may contain the character.
func (f *Field) allows(c rune) bool {
	if f.Int {
		return '0' <= c && c <= '9'
	}
	if c == '#' {
		return false
	}
	for _, forbidden := range f.Forbid {
		if c == forbidden {
			return false
		}
	}
	return true
}

// A Feature is something that other programs limit by, and this one does not.
type Feature struct {
	Pos   document.Pos
	Name  string
	Since string // version of the first program that knows it
	Doc   string
}

// An Index is a secondary index of the table.
type Index struct {
	Pos      document.Pos
	Name     string
	Go       string // its name for programs, in snake case; "" for its own
	PK, SK   string // its key attributes
	KeysOnly bool
	Mixed    bool // it holds whole items in a table that is made for a mixed fleet
	Local    bool // it shares the table's partition key, PK
	Internal bool // programs outside the module do not query it
	Doc      string
}

// Attributes returns the names of the key attributes that the index does not share with the table.
func (x *Index) Attributes() []string {
	if x.Local {
		return []string{x.SK}
	}
	return []string{x.PK, x.SK}
}

// A Record is a kind of item.
type Record struct {
	Pos        document.Pos
	Name       string
	Doc        string
	PK, SK     *Template
	Internal   bool // programs outside the module do not read it
	Entries    []*Entry
	Stamp      *Attribute // a number that a write moves which sets others; nil for a record without one
	Nested     string     // attribute with a map that attributes may be in instead; "" for none, as in every layout written
	Attributes []*Attribute
	Families   []*Family
	Refused    []*Refused // attributes of other programs, those in the names of members included
}

// KeyFields returns the fields of the primary key in the order in which it names them.
func (r *Record) KeyFields() []*Field { return append(r.PK.Fields(), r.SK.Fields()...) }

// IndexAttributes returns the names of the attributes that put items of the record into indexes.
func (r *Record) IndexAttributes() []string {
	var names []string
	for _, e := range r.Entries {
		names = append(names, e.Attributes()...)
	}
	return names
}

// An Entry is the key of a record in an index.
type Entry struct {
	Pos    document.Pos
	Index  *Index
	PK, SK *Template  // PK is the table's in a local index
	When   *Attribute // attribute of the key that must not be empty for the entry to exist; may be nil
	Later  string     // which items are in the index, and when they enter it; "" for all, when they are created
}

// Attributes returns the names of the attributes that hold the key.
func (e *Entry) Attributes() []string { return e.Index.Attributes() }

// A Template is the form of one key string: literal text and fields in turn.
type Template struct {
	Pos   document.Pos
	Text  string
	Parts []Part

	broken bool // an error of it has been reported
}

// A Part is literal text, or a field.
type Part struct {
	Literal string
	Field   *Field
}

// Fields returns the fields in their order.
func (t *Template) Fields() []*Field {
	var fields []*Field
	for _, p := range t.Parts {
		if p.Field != nil {
			fields = append(fields, p.Field)
		}
	}
	return fields
}

// Prefix returns the literal text that every key of the form starts with.
func (t *Template) Prefix() string {
	if len(t.Parts) == 0 || t.Parts[0].Field != nil {
		return ""
	}
	return t.Parts[0].Literal
}

// Type is the type of an attribute, named as DynamoDB names it.
type Type string

// The types of attribute.
const (
	S    Type = "S"
	N    Type = "N"
	BOOL Type = "BOOL"
	SS   Type = "SS"
	L    Type = "L"
	M    Type = "M"
	Any  Type = "any"
)

// Empty says what becomes of a zero value.
type Empty string

// The ways to write a zero value.
const (
	Required Empty = ""      // written; an item without the attribute is malformed
	Zero     Empty = "zero"  // written; an item without the attribute reads as zero
	Omit     Empty = "omit"  // not written
	Null     Empty = "null"  // written as NULL
	Never    Empty = "never" // not written, nor is any other value: the attribute is only read
)

// An Attribute is an attribute of a record, or of the members of a family.
type Attribute struct {
	Pos    document.Pos
	Name   string // in items; in a family the text in place of {field}
	Go     string // its name for programs, in snake case
	Type   Type
	From   *Field // the field of the key that the value repeats; nil when the attribute stands for itself
	Empty  Empty
	Wrap   bool // a number of any size is read modulo 2^64
	Clamp  bool // a number of any size is read as the nearest of 64 bits
	Scale  int  // decimal places: programs count the last of them
	Method bool // the type of the members has methods for the value: one of the name, and one that begins with Set
	Doc    string

	Refuse *Feature // the feature of other programs for the attribute; nil where this module knows it
	Unless []string // values of a refused attribute that do not matter
	Noted  bool     // whether a refused attribute has a name for programs, to report that an item has it
}

// A Refused attribute belongs to a feature of other programs. An item that has it is neither obeyed nor written.
type Refused struct {
	*Attribute
	Prefix string // of the attribute names of the family that it belongs to; "" for an attribute of the item
}

// A Family is a set of attributes that repeats for every member, such as the limits of a bucket.
type Family struct {
	Pos  document.Pos
	Name string
	*Members
}

// Members is the form of a family's members. Families that share it through an alias share one Go type.
type Members struct {
	Pos     document.Pos
	Pattern string
	Prefix  string // of the attribute names
	Var     *Field // the name of a member
	PerAttr bool   // attribute names end in an underscore and the name of the field; otherwise there is one field alone
	Type    string // Go type
	Held    string // imported Go type that members have in its place; "" for none
	Doc     string
	Fields  []*Attribute
	Refused []*Attribute
}

// A Query asks for items of one partition.
type Query struct {
	Pos    document.Pos
	Name   string
	Doc    string
	Record *Record
	Entry  *Entry   // entry of the index that is asked; nil for the table itself
	Narrow []*Field // leading fields of the sort key that an asker may give
	Whole  bool     // items of other records in the partition are queried as well
}

// Keys returns the forms of the partition key and of the sort key.
func (q *Query) Keys() (pk, sk *Template) {
	if q.Entry == nil {
		return q.Record.PK, q.Record.SK
	}
	return q.Entry.PK, q.Entry.SK
}

// An Operation is a conditional write.
type Operation struct {
	Pos     document.Pos
	Name    string
	Doc     string
	Any     bool      // it is about every record
	Records []*Record // that it is about; at least one
	Write   string    // update, put, delete or check
	Args    []*Arg
	Where   []*Condition
	Actions []*Action
	Keys    bool // it sets every attribute that follows from the key
	Moves   bool // it sets the stamp of its record
	Clauses []*Clause
}

// Sets reports whether a clause sets or removes attributes whatever they are, and asks nothing.
func (c *Clause) Sets() bool {
	return len(c.Where) == 0 && slices.ContainsFunc(c.Actions, func(a *Action) bool { return a.Op == "set" || a.Op == "remove" })
}

// KeyAttributes returns the attributes that follow from the key of a record. They are those that repeat a field, and
// the entries of indexes that every item of the record has from its creation on.
func (r *Record) KeyAttributes() (repeated []*Attribute, entries []*Entry) {
	for _, a := range r.Attributes {
		if a.From != nil {
			repeated = append(repeated, a)
		}
	}
	for _, e := range r.Entries {
		if e.When == nil && e.Later == "" {
			entries = append(entries, e)
		}
	}
	return repeated, entries
}

// A Clause is a part of an operation that a call picks.
type Clause struct {
	Pos     document.Pos
	Name    string
	Doc     string
	Family  *Family // whose members it is about; nil when it is about the item
	Args    []*Arg
	Where   []*Condition
	Actions []*Action
}

// An Arg is a value that a call of an operation binds.
type Arg struct {
	Pos   document.Pos
	Name  string
	Doc   string
	Type  Type // of the attributes that it is used with
	Scale int  // theirs
	Null  bool // an empty value is NULL, as they have it
	Slot  int  // its index among the values of the operation, or of the clause
}

// A Condition is a term of a where list.
type Condition struct {
	Op   string // =, <, <=, >, >=, exists, absent, and, or
	Attr Ref
	Arg  *Arg
	Args []*Condition // of and, or
}

// An Action is a term of a do list.
type Action struct {
	Op   string // set, default, plus, minus, gather, remove, add, delete
	Attr Ref
	From Ref // of gather: the number that is added
	Arg  *Arg
}

// A Ref is an attribute that a term names.
type Ref struct {
	Pos    document.Pos
	Name   string
	Type   Type
	Scale  int
	Null   bool     // an empty value is written as NULL
	Family *Members // whose members the attribute belongs to; nil for an attribute of the item

	Refused bool // the attribute is refused: conditions alone may name it
}

// String returns the condition as the document has it.
func (c *Condition) String() string {
	switch {
	case len(c.Args) > 0:
		parts := make([]string, len(c.Args))
		for i, arg := range c.Args {
			parts[i] = arg.String()
			if c.Op == "and" && arg.Op == "or" {
				parts[i] = "(" + parts[i] + ")"
			}
		}
		return strings.Join(parts, " "+c.Op+" ")
	case c.Arg == nil:
		return c.Attr.Name + " " + c.Op
	default:
		return c.Attr.Name + " " + c.Op + " $" + c.Arg.Name
	}
}

// String returns the action as the document has it.
func (a *Action) String() string {
	name := a.Attr.Name
	switch a.Op {
	case "set":
		return "set " + name + " = $" + a.Arg.Name
	case "default":
		return "set " + name + " = if_not_exists(" + name + ", $" + a.Arg.Name + ")"
	case "plus":
		return "set " + name + " = " + name + " + $" + a.Arg.Name
	case "minus":
		return "set " + name + " = " + name + " - $" + a.Arg.Name
	case "gather":
		return "set " + name + " = " + name + " + " + a.From.Name
	case "remove":
		return "remove " + name
	default: // add, delete
		return a.Op + " " + name + " $" + a.Arg.Name
	}
}
