package enginetest

import (
	"bytes"
	"encoding/json"
)

// Units is an amount of capacity.
type Units struct {
	Read, Write float64
}

func (u Units) add(v Units) Units { return Units{Read: u.Read + v.Read, Write: u.Write + v.Write} }

// Capacity is what calls have consumed.
type Capacity struct {
	// Units is the sum of the table and its indexes.
	Units
	// Table is the table's part, for requests that ask for INDEXES.
	Table Units
	// Indexes holds the parts of the indexes, local and global, by name, for
	// requests that ask for INDEXES.
	Indexes map[string]Units
}

// add adds what other calls have consumed.
func (c *Capacity) add(more Capacity) {
	c.Units = c.Units.add(more.Units)
	c.Table = c.Table.add(more.Table)
	for name, units := range more.Indexes {
		if c.Indexes == nil {
			c.Indexes = map[string]Units{}
		}
		c.Indexes[name] = c.Indexes[name].add(units)
	}
}

// unitsJSON is an amount of capacity in a reply. Only transactions distinguish reads and
// writes; other operations are one or the other.
type unitsJSON struct {
	CapacityUnits                         float64
	ReadCapacityUnits, WriteCapacityUnits float64
}

// units returns the amount as reads and writes of an operation.
func (j unitsJSON) units(reads bool) Units {
	switch {
	case j.ReadCapacityUnits+j.WriteCapacityUnits > 0:
		return Units{Read: j.ReadCapacityUnits, Write: j.WriteCapacityUnits}
	case reads:
		return Units{Read: j.CapacityUnits}
	default:
		return Units{Write: j.CapacityUnits}
	}
}

// consumedJSON is one table's entry in a reply.
type consumedJSON struct {
	unitsJSON
	Table                  unitsJSON
	LocalSecondaryIndexes  map[string]unitsJSON
	GlobalSecondaryIndexes map[string]unitsJSON
}

// consumedList is the ConsumedCapacity of a reply: an object, or for operations
// on several tables a list of them.
type consumedList []consumedJSON

// UnmarshalJSON implements json.Unmarshaler.
func (l *consumedList) UnmarshalJSON(data []byte) error {
	if bytes.HasPrefix(data, []byte("[")) {
		return json.Unmarshal(data, (*[]consumedJSON)(l))
	}
	*l = make(consumedList, 1)
	return json.Unmarshal(data, &(*l)[0])
}

// consumed reads the capacity from an operation's reply, and reports whether the
// reply has it.
func consumed(operation string, body []byte) (Capacity, bool) {
	if !bytes.Contains(body, []byte(`"ConsumedCapacity"`)) {
		return Capacity{}, false
	}
	var reply struct{ ConsumedCapacity consumedList }
	if err := json.Unmarshal(body, &reply); err != nil || reply.ConsumedCapacity == nil {
		return Capacity{}, false
	}
	reads := isRead(operation)
	var sum Capacity
	for _, entry := range reply.ConsumedCapacity {
		part := Capacity{Units: entry.units(reads), Table: entry.Table.units(reads), Indexes: map[string]Units{}}
		for name, units := range entry.LocalSecondaryIndexes {
			part.Indexes[name] = units.units(reads)
		}
		for name, units := range entry.GlobalSecondaryIndexes {
			part.Indexes[name] = units.units(reads)
		}
		sum.add(part)
	}
	return sum, true
}

// isRead reports whether an operation's capacity units are read units.
func isRead(operation string) bool {
	switch operation {
	case "GetItem", "BatchGetItem", "Query", "Scan", "TransactGetItems":
		return true
	}
	return false
}
