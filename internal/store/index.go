package store

import "context"

// An Indexer is a store whose table may lack indexes that its description has, as one of another program does.
type Indexer interface {
	// CompareIndexes compares the indexes of the table with those that it would be created with.
	CompareIndexes(ctx context.Context) (IndexDifferences, error)
	// AddIndexes adds the global indexes that are missing, one after the other, and waits for each until it can be used.
	// That takes DynamoDB as long as reading and writing all of the table's items does.
	AddIndexes(ctx context.Context) error
}

// IndexDifferences are the names of indexes in which a table is not as it would be created.
type IndexDifferences struct {
	Missing    []string `json:"indexes_to_add"`                 // missing global indexes, which can be added
	Local      []string `json:"local_indexes_missing"`          // missing local indexes, which cannot be added to a table
	Projecting []string `json:"indexes_with_other_projections"` // indexes that project other attributes, which cannot be changed
}

// NoDifferences returns the differences of a table that is as it would be created. None of the lists is nil.
func NoDifferences() IndexDifferences { return IndexDifferences{[]string{}, []string{}, []string{}} }
