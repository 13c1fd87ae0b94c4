package layout

import (
	"bytes"
	"encoding/json"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/expr"
)

// Repeated is the copy, in the first item of a bucket, of the levels stored for its entity. Processes share it as a
// memory, as good as a read by one of them at that time. No decision about tokens depends on it. Any write of the item
// may leave it as it is.
type Repeated struct {
	ReadAt int64  // epoch milliseconds
	Levels string // [EntityLevels] as JSON; "" for an entity with nothing of its own
}

// EntityLevels are the stored levels of an entity: its limits for a resource and for every resource, and its record.
type EntityLevels struct {
	Resource *LevelCopy `json:"resource,omitempty"`
	Default  *LevelCopy `json:"default,omitempty"`
	Cascade  bool       `json:"cascade,omitempty"`
	Parent   string     `json:"parent,omitempty"`
	Moved    int64      `json:"pgen,omitempty"` // generation of the parent
	Of       string     `json:"pinc,omitempty"` // incarnation of the entity
}

// A LevelCopy is a config of an entity, in the units of its item.
type LevelCopy struct {
	Version       int64                `json:"version"`
	OnUnavailable string               `json:"on_unavailable,omitempty"`
	Zone          string               `json:"zone,omitempty"`
	Limits        []bucket.StoredLimit `json:"limits,omitempty"`
	Disabled      *bool                `json:"disabled,omitempty"` // nil where the next level says it
	Bypass        bool                 `json:"bypass,omitempty"`   // requests are counted alone, and not disabled
	Cascade       *bool                `json:"cascade,omitempty"`  // whether parents are charged; nil where the next level says it
}

// Repeat returns levels as they were read at a time, in the form in which an item repeats them.
func (l *EntityLevels) Repeat(readAt int64) (*Repeated, error) {
	r := &Repeated{ReadAt: readAt}
	if *l == (EntityLevels{}) {
		return r, nil
	}
	text, err := json.Marshal(l)
	r.Levels = string(text)
	return r, err
}

// RepeatedBy returns the levels that an item repeats, and when they were read, in epoch milliseconds. It returns nil
// for an item that repeats nothing, and for one of a later version, whose levels say more than this version knows.
func RepeatedBy(item expr.Item) (levels *EntityLevels, readAt int64) {
	at, ok := item.Lookup(AttrBucketLevelsReadAt)
	if !ok {
		return nil, 0
	}
	if readAt, ok = at.Int(); !ok {
		return nil, 0
	}
	levels = &EntityLevels{}
	if text, ok := item.Lookup(AttrBucketLevels); ok {
		d := json.NewDecoder(bytes.NewReader([]byte(text.Text())))
		d.DisallowUnknownFields()
		if err := d.Decode(levels); err != nil {
			return nil, 0
		}
	}
	return levels, readAt
}

// spareBytes is the part of a write unit that an item keeps free, for its entry in an index and for growing numbers.
const spareBytes = 160

// Fits reports whether an item of a size, in bytes, takes no more write units when it repeats the levels, too.
func (r *Repeated) Fits(size int) bool {
	return (size+len(r.Levels)+spareBytes+1023)/1024 <= max(size+1023, 1024)/1024
}

func (r *Repeated) append(item expr.Item) expr.Item {
	item = append(item, expr.Attribute{Name: AttrBucketLevelsReadAt, Value: expr.N(r.ReadAt)})
	if r.Levels != "" {
		item = append(item, expr.Attribute{Name: AttrBucketLevels, Value: expr.S(r.Levels)})
	}
	return item
}
