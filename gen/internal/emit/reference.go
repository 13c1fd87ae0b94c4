package emit

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/zlimit/zlimit-go/gen/internal/schema"
)

// page is a Markdown page in the making.
type page struct {
	bytes.Buffer
}

func (p *page) line(format string, args ...any) { fmt.Fprintf(&p.Buffer, format+"\n", args...) }

func (p *page) heading(level int, title, text string) {
	p.line("\n%s %s", strings.Repeat("#", level), title)
	if text != "" {
		p.paragraph(text)
	}
}

// paragraph writes lines of text that are wrapped.
func (p *page) paragraph(text string) {
	p.line("")
	for _, line := range wrap(text, "", lineWidth) {
		p.line("%s", line)
	}
}

// grid writes a table; nothing when it has no rows.
func (p *page) grid(titles []string, rows [][]string) {
	if len(rows) == 0 {
		return
	}
	p.line("")
	p.row(titles)
	p.line("|%s", strings.Repeat(" --- |", len(titles)))
	for _, row := range rows {
		p.row(row)
	}
}

func (p *page) row(cells []string) {
	for i, c := range cells {
		cells[i] = strings.ReplaceAll(c, "|", `\|`)
	}
	p.line("| %s |", strings.Join(cells, " | "))
}

func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + text + "`"
}

func reference(s *schema.Schema) []byte {
	p := &page{}
	p.line("<!-- %s -->", header(schemaFile))
	p.heading(1, "Schema", "The items of the table, and their writes and queries. The layout has version "+s.Version+
		" and can be used by clients from version "+s.ClientMinVersion+" on. Items expire at the time, in epoch seconds, that their attribute "+
		code(s.TTL)+" holds.")
	recordTable(p, s)
	fieldTable(p, s)
	indexTable(p, s)
	queryTable(p, s)
	featureTable(p, s)
	for _, r := range s.Records {
		recordSection(p, r)
	}
	if len(s.Operations) > 0 {
		p.heading(2, "Operations", "An operation is a conditional write. Its own part always applies; a call adds clauses, those with a "+
			"family once for each member that they are about.")
	}
	for _, op := range s.Operations {
		operationSection(p, op)
	}
	return bytes.TrimLeft(p.Bytes(), "\n")
}

func recordTable(p *page, s *schema.Schema) {
	p.heading(2, "Records", "")
	var rows [][]string
	for _, r := range s.Records {
		link := "[" + noun(r) + "](#" + strings.ReplaceAll(noun(r), " ", "-") + ")"
		rows = append(rows, []string{link, code(r.PK.Text), code(r.SK.Text), r.Doc})
	}
	p.grid([]string{"Record", "PK", "SK", "What it is"}, rows)
}

func fieldTable(p *page, s *schema.Schema) {
	p.heading(2, "Fields", "The parts of keys. A string of a key is never empty.")
	var rows [][]string
	for _, f := range s.Fields {
		kind, never := "string", code("#")
		if f.Int {
			kind, never = "number from 0", ""
		}
		for _, c := range f.Forbid {
			never += " " + code(string(c))
		}
		rows = append(rows, []string{code("{" + f.Name + "}"), kind, never, upper(f.Doc)})
	}
	p.grid([]string{"Field", "Type", "Never contains", "Meaning"}, rows)
}

func indexTable(p *page, s *schema.Schema) {
	if len(s.Indexes) == 0 {
		return
	}
	p.heading(2, "Indexes", "")
	var rows [][]string
	for _, x := range s.Indexes {
		projection := "whole items"
		if x.KeysOnly {
			projection = "keys"
		}
		if x.Mixed {
			projection += "; whole items in a table for a mixed fleet"
		}
		doc := upper(x.Doc)
		if nouns := partial(s, x); nouns != nil {
			doc += "; not every " + strings.Join(nouns, " or ") + " item"
		}
		rows = append(rows, []string{x.Name, code(x.PK), code(x.SK), projection, doc})
	}
	p.grid([]string{"Index", "Partition key", "Sort key", "Holds", "For"}, rows)
}

func featureTable(p *page, s *schema.Schema) {
	if len(s.Features) == 0 {
		return
	}
	p.heading(2, "Features of other programs", "Features of other programs that this one does not obey. An item with an attribute of one of them "+
		"is refused: its decoder returns an error that names the feature, and nothing is written to the item.")
	var rows [][]string
	for _, f := range s.Features {
		rows = append(rows, []string{strings.ReplaceAll(f.Name, "_", " "), f.Since, upper(f.Doc)})
	}
	p.grid([]string{"Feature", "Since", "Meaning"}, rows)
}

// partial returns the records of which not every item is in an index.
func partial(s *schema.Schema, x *schema.Index) (nouns []string) {
	for _, r := range s.Records {
		if slices.ContainsFunc(r.Entries, func(e *schema.Entry) bool { return e.Index == x && e.Later != "" }) {
			nouns = append(nouns, noun(r))
		}
	}
	return nouns
}

// queryDoc returns the condition of a query, and says which items it may not find.
func queryDoc(s *schema.Schema, q *schema.Query) string {
	var nouns []string
	switch {
	case q.Entry == nil:
	case q.Whole:
		nouns = partial(s, q.Entry.Index)
	case q.Entry.Later != "":
		nouns = []string{noun(q.Record)}
	}
	if nouns == nil {
		return q.Doc
	}
	return sentence(q.Doc) + " Not every " + strings.Join(nouns, " or ") + " item is in the index."
}

func queryTable(p *page, s *schema.Schema) {
	if len(s.Queries) == 0 {
		return
	}
	p.heading(2, "Queries", "")
	var rows [][]string
	for _, q := range s.Queries {
		pk, sk := q.Keys()
		index := ""
		if q.Entry != nil {
			index = q.Entry.Index.Name
		}
		_, prefix := queryPrefix(q, pk, sk)
		if prefix != "" {
			prefix += "…"
		}
		rows = append(rows, []string{code(q.Func()), index, code(pk.Text), code(prefix), queryDoc(s, q)})
	}
	p.grid([]string{"Query", "Index", "Partition key", "Sort key", "Condition"}, rows)
}

// onEmpty says how an attribute without a value is stored.
var onEmpty = map[schema.Empty]string{
	schema.Required: "required",
	schema.Zero:     "zero",
	schema.Omit:     "absent",
	schema.Null:     "NULL",
	schema.Never:    "never written",
}

func attributeRow(name string, a *schema.Attribute) []string {
	empty, doc := onEmpty[a.Empty], upper(a.Doc)
	if a.From != nil {
		empty = "from " + code("{"+a.From.Name+"}")
	}
	if a.Wrap {
		doc += "; modulo 2^64"
	}
	if a.Clamp {
		doc += "; beyond 64 bits the nearest of them"
	}
	if a.Scale > 0 {
		doc += fmt.Sprintf("; up to %d decimal places", a.Scale)
	}
	return []string{code(name), string(a.Type), empty, doc}
}

func recordSection(p *page, r *schema.Record) {
	p.heading(2, upper(noun(r)), r.Doc)
	keys := [][]string{{"table", code(r.PK.Text), code(r.SK.Text), ""}}
	for _, e := range r.Entries {
		when := upper(e.Later)
		if e.When != nil {
			when = code(e.When.Name) + " is set"
		}
		keys = append(keys, []string{e.Index.Name, code(e.PK.Text), code(e.SK.Text), when})
	}
	p.grid([]string{"In", "Partition key", "Sort key", "When"}, keys)
	var rows [][]string
	for _, a := range r.Attributes {
		rows = append(rows, attributeRow(a.Name, a))
	}
	p.grid([]string{"Attribute", "Type", "Empty", "Meaning"}, rows)
	for _, f := range r.Families {
		p.paragraph("For each " + f.Var.Name + ": " + lower(f.Doc))
		rows = nil
		for _, a := range f.Fields {
			rows = append(rows, attributeRow(strings.ReplaceAll(f.Pattern, "{field}", a.Name), a))
		}
		p.grid([]string{"Attribute", "Type", "Empty", "Meaning"}, rows)
	}
	refusedTable(p, r)
}

// refusedTable writes the attributes by which items of a record are refused.
func refusedTable(p *page, r *schema.Record) {
	if len(r.Refused) == 0 {
		return
	}
	p.paragraph("One of these attributes makes it refused:")
	var rows [][]string
	for _, x := range r.Refused {
		name := x.Name
		if x.Prefix != "" {
			name = x.Prefix + "{…}_" + x.Name
		}
		unless := make([]string, len(x.Unless))
		for i, value := range x.Unless {
			unless[i] = code(value)
		}
		rows = append(rows, []string{code(name), string(x.Type), strings.ReplaceAll(x.Refuse.Name, "_", " "), strings.Join(unless, ", "), upper(x.Doc)})
	}
	p.grid([]string{"Attribute", "Type", "Feature", "But not with", "Meaning"}, rows)
}

func operationSection(p *page, op *schema.Operation) {
	p.heading(3, code(op.Func()), op.Doc)
	var names []string
	for _, r := range op.Records {
		names = append(names, noun(r))
	}
	subject := strings.Join(names, ", ")
	if op.Any {
		subject = "any record"
	}
	p.paragraph(upper(op.Write) + " of " + subject + ".")
	var changes []string
	for _, a := range op.Actions {
		changes = append(changes, code(a.String()))
	}
	if op.Keys {
		changes = append(changes, "set what follows from the key")
	}
	rows := [][]string{{"always", argDocs(op.Args), terms(op.Where), strings.Join(changes, ", "), ""}}
	for _, c := range op.Clauses {
		changes = nil
		for _, a := range c.Actions {
			changes = append(changes, code(a.String()))
		}
		rows = append(rows, []string{code(c.Name), argDocs(c.Args), terms(c.Where), strings.Join(changes, ", "), c.Doc})
	}
	p.grid([]string{"Part", "Arguments", "Condition", "Change", "What it does"}, rows)
}

func argDocs(args []*schema.Arg) string {
	var out []string
	for _, a := range args {
		out = append(out, code("$"+a.Name)+" "+a.Doc)
	}
	return strings.Join(out, "; ")
}

func terms(conditions []*schema.Condition) string {
	var out []string
	for _, c := range conditions {
		out = append(out, code(c.String()))
	}
	return strings.Join(out, ", ")
}
