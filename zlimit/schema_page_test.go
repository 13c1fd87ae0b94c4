package zlimit_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A pageRecord is a record as docs/schema.md describes it.
type pageRecord struct {
	name   string
	pk, sk *regexp.Regexp
	always [][]string // attributes of each index that all items are in
	later  [][]string // and of those that the page names conditions for
}

// TestItemsAreInTheIndexesOfThePage compares the items of a table with docs/schema.md: each is in the indexes that the page names no
// condition for. The conditions of buckets and usage are no mere words: some of their items are not in these indexes.
func TestItemsAreInTheIndexesOfThePage(t *testing.T) {
	records := pageRecords(t)
	s := partitioned{store.Of(newMemory(t))}
	l := newLimiter(t, zlimit.StoreOn(s))
	setSystem(t, l, zlimit.PerMinute("rpm", 60))
	for _, e := range []zlimit.Entity{{ID: "org"}, {ID: "key-1", ParentID: "org"}, {ID: "own"}} {
		create(t, l, e)
	}
	setLimits(t, l, zlimit.Level{Entity: "own", Resource: "gpt-4"}, zlimit.PerMinute("rpm", 6))
	setLimits(t, l, zlimit.Level{Resource: "gpt-4"}, zlimit.PerMinute("rpm", 6))
	for _, entity := range []string{"key-1", "own"} {
		acquire(t, l, zlimit.Request{Entity: entity, Resource: "gpt-4", Consume: zlimit.Amounts{"rpm": 1}})
	}
	for window, kept := range map[string]layout.Kept{"hourly": {ExpiresAt: time.Now().Add(time.Hour).Unix(), Unlisted: true}, "monthly": {}} {
		d := layout.UsageDelta{NS: l.NS(), Entity: "own", Resource: "gpt-4", Window: window, Kept: kept, Events: 1, Consumed: []bucket.Amount{{Limit: "rpm", Tokens: 1000}}}
		w := check.Call(d.Write()).Must(t, "UsageDelta.Write()")
		check.Call(s.Write(t.Context(), w)).Must(t, "Write()")
	}
	page := check.Call(s.Store.(store.Scanner).Scan(t.Context(), store.Scan{})).Must(t, "Scan()")

	seen, lacks := map[string]bool{}, map[string]bool{}
	for _, item := range page.Items {
		key := store.KeyOf(item)
		r := pageRecordOf(records, key)
		if r == nil {
			t.Errorf("the page has no record of the key %v", key)
			continue
		}
		seen[r.name] = true
		for _, attributes := range r.always {
			if !hasAll(item, attributes) {
				t.Errorf("%s %v lacks %v, which the page promises", r.name, key, attributes)
			}
		}
		for _, attributes := range r.later {
			if !hasAll(item, attributes) {
				lacks[r.name+" "+attributes[0]] = true
			}
		}
	}
	for _, want := range []string{"Entity", "Child", "Bucket", "Usage", "Entity config", "Resource config", "System config", "Version", "Audit"} {
		if !seen[want] {
			t.Errorf("the table has no item of the record %s", want)
		}
	}
	for _, want := range []string{"Bucket GSI2PK", "Bucket GSI4PK", "Usage GSI4PK"} {
		if !lacks[want] {
			t.Errorf("all items are in the index of %s, for which the page has a condition", want)
		}
	}
}

func hasAll(item expr.Item, attributes []string) bool {
	for _, name := range attributes {
		if item.Index(name) < 0 {
			return false
		}
	}
	return true
}

// pageRecordOf returns the record of a key; nil for none.
func pageRecordOf(records []*pageRecord, key store.Key) *pageRecord {
	for _, r := range records {
		if r.pk.MatchString(key.PK) && r.sk.MatchString(key.SK) {
			return r
		}
	}
	return nil
}

// pageRecords reads the tables of keys in docs/schema.md.
func pageRecords(t *testing.T) (records []*pageRecord) {
	t.Helper()
	text := check.Call(os.ReadFile("../docs/schema.md")).Must(t, "os.ReadFile()")
	indexes := map[string][]string{}
	form := regexp.MustCompile(`\\\{[a-z_]+\\\}`)
	keyOf := func(cell string) *regexp.Regexp {
		return regexp.MustCompile("^" + form.ReplaceAllString(regexp.QuoteMeta(strings.Trim(cell, "`")), "[^#]+") + "$")
	}
	title := ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if heading, ok := strings.CutPrefix(line, "## "); ok {
			title = heading
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case title == "Indexes" && len(cells) == 5 && strings.HasPrefix(cells[1], "`"):
			indexes[cells[0]] = []string{strings.Trim(cells[1], "`"), strings.Trim(cells[2], "`")}
		case len(cells) == 4 && cells[0] == "table":
			records = append(records, &pageRecord{name: title, pk: keyOf(cells[1]), sk: keyOf(cells[2])})
		case len(cells) == 4 && indexes[cells[0]] != nil && strings.HasPrefix(cells[1], "`") && len(records) > 0 && records[len(records)-1].name == title:
			r := records[len(records)-1]
			if cells[3] == "" {
				r.always = append(r.always, indexes[cells[0]])
			} else {
				r.later = append(r.later, indexes[cells[0]])
			}
		}
	}
	if len(records) == 0 {
		t.Fatal("docs/schema.md describes no records")
	}
	return records
}
