package storetest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
)

// testScan reads a table part by part, in small pages. Every item comes once, and the items of a partition in one part.
func testScan(t *testing.T, s store.Store) {
	scanner, ok := s.(store.Scanner)
	if !ok {
		t.Skip("the store has no scan")
	}
	var want []store.Key
	for p := range 9 {
		for i := range p + 1 {
			k := store.Key{PK: fmt.Sprintf("p%d", p), SK: fmt.Sprintf("s%d", i)}
			put(t, s, k, "n", i)
			want = append(want, k)
		}
	}
	for _, segments := range []int{0, 1, 4} {
		var got []store.Key
		of := map[string]int{}
		for segment := range max(1, segments) {
			q := store.Scan{Segment: segment, Segments: segments, Limit: 4, Consistent: true}
			for pages := 0; ; pages++ {
				page, err := scanner.Scan(t.Context(), q)
				if err != nil {
					t.Fatalf("Scan(%+v) = %v", q, err)
				}
				if len(page.Items) > 4 {
					t.Errorf("Scan(%+v) = %d items, want 4 at most", q, len(page.Items))
				}
				for _, item := range page.Items {
					k := store.KeyOf(item)
					if other, ok := of[k.PK]; ok && other != segment {
						t.Errorf("partition %s is in the parts %d and %d", k.PK, other, segment)
					}
					of[k.PK] = segment
					got = append(got, k)
				}
				if q.Continue = page.Next; page.Next == nil {
					break
				}
			}
		}
		slices.SortFunc(got, func(a, b store.Key) int { return cmp.Or(strings.Compare(a.PK, b.PK), strings.Compare(a.SK, b.SK)) })
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Errorf("a scan in %d parts (-want +got):\n%s", segments, diff)
		}
	}
	var got []store.Key
	for q := (store.Scan{Prefix: "p7", Limit: 5, Consistent: true}); ; {
		page, err := scanner.Scan(t.Context(), q)
		check.Fatal(t, "Scan()", err)
		for _, item := range page.Items {
			got = append(got, store.KeyOf(item))
		}
		if q.Continue = page.Next; page.Next == nil {
			break
		}
	}
	if of := slices.DeleteFunc(slices.Clone(want), func(k store.Key) bool { return k.PK != "p7" }); len(got) != len(of) {
		t.Errorf("a scan by a prefix finds %v, want %v", got, of)
	}
	_, err := scanner.Scan(t.Context(), store.Scan{Segment: 4, Segments: 4})
	refused(t, "a scan of a part that there is not", err)
	if items, bytes, err := scanner.Estimate(t.Context()); err != nil || items < 0 || bytes < 0 {
		t.Errorf("Estimate() = %d, %d, %v", items, bytes, err)
	}
}
