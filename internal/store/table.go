package store

// A Table describes the keys and indexes of the table. The attributes of its own key are [PK] and [SK].
type Table struct {
	Indexes []Index
	TTL     string // the attribute that holds the time of expiry, in epoch seconds
}

// Index returns the index of a name; nil when the table has none.
func (t *Table) Index(name string) *Index {
	for i := range t.Indexes {
		if t.Indexes[i].Name == name {
			return &t.Indexes[i]
		}
	}
	return nil
}

// An Index is a secondary index. It holds only items that have both of its attributes.
type Index struct {
	Name     string
	PK, SK   string // its key attributes
	KeysOnly bool   // it holds the keys of the table and its own, not whole items
	Mixed    bool   // it holds whole items in a table that is made for a mixed fleet
	Local    bool   // it shares the table's partition key; PK is then [PK]
}
