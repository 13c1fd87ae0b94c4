package layout

import (
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/proof/check"
)

// TestBucketReader reads items one after the other with one reader. They have attributes in other places, more and
// fewer of them, values of other kinds, and numbers beyond 64 bits. The reader always returns what ReadState does.
func TestBucketReader(t *testing.T) {
	key := BucketKey{NS: "ns", Entity: "e", Resource: "r"}
	big := check.Call(expr.ParseNumber("18446744073709551617")).Must(t, "expr.ParseNumber()")
	rapid.Check(t, func(t *rapid.T) {
		var r BucketReader
		r.Init(key, key.Key())
		var item expr.Item
		fresh := func() {
			of := key
			of.Shard = rapid.SampledFrom([]int{0, 0, 0, 1}).Draw(t, "shard")
			mixed := rapid.Bool().Draw(t, "mixed")
			b := Bucket{Key: of, RefilledAt: rapid.Int64Range(1, 9).Draw(t, "rf"), ShardCount: 1}
			for _, name := range []string{"rpm", "tpm", "wcu"}[:rapid.IntRange(0, 3).Draw(t, "limits")] {
				l := bucket.Limit{Name: name}
				for i, figures := 0, reflect.ValueOf(&l).Elem(); i < figures.NumField(); i++ { // also those that are to come
					if f := figures.Field(i); f.CanInt() && (figures.Type().Field(i).Name != "Known" || mixed) {
						f.SetInt(int64(7 + i))
					}
				}
				if rapid.Bool().Draw(t, "rare") {
					l.Change(func(r *bucket.Rare) {
						for i, figures := 0, reflect.ValueOf(r).Elem(); i < figures.NumField(); i++ {
							if f, name := figures.Field(i), figures.Type().Field(i).Name; f.CanInt() && name != "FromNarrower" && name != "FromChildren" && (name != "Known" || mixed) {
								f.SetInt(int64(47 + i))
							}
						}
					})
				}
				if name == "tpm" && rapid.Bool().Draw(t, "quota") {
					l.RefillAmount, b.Zone, b.ValidUntil = 0, "Europe/Berlin", 13
					l.SetResetTimes("1m0h0")
				}
				b.Limits = append(b.Limits, l)
			}
			if rapid.Bool().Draw(t, "expires") {
				b.ExpiresAt = 12
			}
			item = of.Key().Join(b.Encode())
		}
		fresh()
		values := rapid.SampledFrom([]expr.Value{expr.N(5), expr.N(-1), expr.N(0), big, expr.S("text"), expr.Bool(true), expr.Null()})
		at := func() int { return rapid.IntRange(0, len(item)-1).Draw(t, "at") }
		t.Repeat(map[string]func(*rapid.T){
			"again": func(*rapid.T) { fresh() },
			"set":   func(t *rapid.T) { item = item.Clone(); item[at()].Value = values.Draw(t, "value") },
			"count": func(t *rapid.T) {
				item = item.Clone()
				item.Set("b_rpm_tk", expr.N(rapid.Int64().Draw(t, "tokens")))
			},
			"swap": func(*rapid.T) {
				item = item.Clone()
				a, b := at(), at()
				item[a], item[b] = item[b], item[a]
			},
			"kind": func(t *rapid.T) {
				item = item.Clone()
				item.Set("cascade", values.Draw(t, "value"))
			},
			"times": func(t *rapid.T) {
				name := rapid.SampledFrom([]string{"b_rpm_rsched", "b_tpm_rsched", "rsched", "sched_tz", "vu"}).Draw(t, "name")
				item = item.Clone()
				item.Set(name, rapid.SampledFrom([]expr.Value{
					expr.S("1m0h0"), expr.S("1m0h0w1"), expr.S("-"), expr.S("UTC"), expr.S("Asia/Tokyo"), expr.S(""), expr.N(0), expr.N(5),
				}).Draw(t, "times"))
			},
			"add":    func(t *rapid.T) { item = item.Clone(); item.Set("b_new_tk", values.Draw(t, "value")) },
			"remove": func(*rapid.T) { item = item.Clone(); item.Remove(item[at()].Name) },
			"": func(t *rapid.T) {
				if len(item) == 0 {
					fresh()
				}
				var space [4]bucket.Limit
				want, wantErr := ReadState(item)
				forms := rapid.SampledFrom([]*expr.Forms{nil, expr.FormsOf(item)}).Draw(t, "forms")
				got, err := r.State(item, forms, space[:0])
				if (err == nil) != (wantErr == nil) || err != nil && err.Error() != wantErr.Error() {
					t.Fatalf("State(%v) = error %v, want %v", item, err, wantErr)
				}
				if err != nil {
					return
				}
				if diff := cmp.Diff(want, got, cmp.FilterValues(func(a, b []bucket.Limit) bool { return len(a)+len(b) == 0 }, cmp.Ignore()), cmpopts.IgnoreFields(bucket.State{}, "Shape")); diff != "" {
					t.Fatalf("State(%v) (-want +got):\n%s", item, diff)
				}
			},
		})
	})
}

// TestBucketReaderAllocates counts the allocations of a reader that knows the places.
func TestBucketReaderAllocates(t *testing.T) {
	key := BucketKey{NS: "ns", Entity: "e", Resource: "r"}
	b := Bucket{Key: key, RefilledAt: 1, Limits: []bucket.Limit{{Name: "rpm", RefillPeriod: 1}, {Name: "tpm", RefillPeriod: 1}}}
	item := key.Key().Join(b.Encode())
	var r BucketReader
	r.Init(key, key.Key())
	var space [4]bucket.Limit
	if got := testing.AllocsPerRun(100, func() {
		if _, err := r.State(item, nil, space[:0]); err != nil {
			t.Errorf("State() = %v", err)
		}
	}); got != 0 {
		t.Errorf("State allocates %v times, want 0", got)
	}
}
