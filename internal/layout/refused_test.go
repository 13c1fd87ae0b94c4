package layout

import (
	"errors"
	"testing"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/store"
)

// TestReaderLooksAtValues reads items whose attributes are in the same places with values of the same kinds. What they grant, and whether
// their limits were changed, depends on the values alone.
func TestReaderLooksAtValues(t *testing.T) {
	k := BucketKey{NS: "ns", Entity: "e", Resource: "r"}
	item := func(topUp, vu int64) expr.Item {
		return k.Key().Join(expr.Item{
			{Name: "rf", Value: expr.N(1)},
			{Name: "b_rpm_tk", Value: expr.N(1)},
			{Name: "b_rpm_cp", Value: expr.N(1)},
			{Name: "b_rpm_ra", Value: expr.N(1)},
			{Name: "b_rpm_rp", Value: expr.N(1)},
			{Name: "b_rpm_tu", Value: expr.N(topUp)},
			{Name: "b_rpm_tx", Value: expr.N(topUp)},
			{Name: "vu", Value: expr.N(vu)},
		})
	}
	var r BucketReader
	r.Init(k, k.Key())
	for range 3 {
		for _, test := range []struct {
			item           expr.Item
			granted, until int64
		}{{item(0, 0), 0, 0}, {item(5, 0), 5, 0}, {item(0, 5), 0, 5}, {item(0, 0), 0, 0}} {
			s, err := r.State(test.item, nil, nil)
			if err != nil || s.ValidUntil != test.until || s.Changed != (test.until == 0) || s.Limits[0].Granted() != test.granted || s.Limits[0].Until() != test.granted {
				t.Errorf("State(%v) = %+v, %v", test.item, s, err)
			}
		}
	}
}

// TestRefusedIsWhole decodes a refused item: the rest of it is there, and so are its other errors.
func TestRefusedIsWhole(t *testing.T) {
	key := ResourceConfigKey{NS: "ns", Resource: "r"}.Key()
	item := key.Join(expr.Item{
		{Name: "l_rpm_cp", Value: expr.N(1)},
		{Name: "l_rpm_ra", Value: expr.N(2)},
		{Name: "l_rpm_rp", Value: expr.N(3)},
		{Name: "l_rpm_rsa", Value: expr.N(5)},
		{Name: "l_rpm_soft", Value: expr.Bool(true)},
	})
	it, err := DecodeResourceConfig(item)
	var refused *RefusedError
	if !errors.As(err, &refused) || len(refused.Refused) != 1 || refused.Key != key || Readable(err) != nil || len(it.Limits) != 1 || it.Limits[0].RefillAmount != 2 {
		t.Errorf("DecodeResourceConfig() = %+v, %v", it, err)
	}
	_, err = DecodeResourceConfig(append(item, expr.Attribute{Name: "l_tpm_cp", Value: expr.N(1)}))
	if !errors.As(err, &refused) || Readable(err) == nil {
		t.Errorf("DecodeResourceConfig() of an item that lacks something = %v", err)
	}
}

// TestResizesAskForMarks splits and merges shards that were marked since they were seen: no write of the transaction may hold.
func TestResizesAskForMarks(t *testing.T) {
	k := BucketKey{NS: "ns", Entity: "e", Resource: "r"}
	whole := k.Key().Join(expr.Item{
		{Name: "rf", Value: expr.N(1000)},
		{Name: "shard_count", Value: expr.N(2)},
		{Name: "b_rpm_tk", Value: expr.N(1000)},
		{Name: "b_rpm_cp", Value: expr.N(10_000)},
		{Name: "b_rpm_ra", Value: expr.N(1000)},
		{Name: "b_rpm_rp", Value: expr.N(1000)},
	})
	low := check.Call(ReadState(whole)).Must(t, "ReadState()")
	high := low
	high.Shard = 1
	other := k
	other.Shard = 1
	writes := check.Call(k.Merge(other, &low, &high, 1000)).Must(t, "Merge()")
	split := check.Call(k.Split(&low, nil, Lineage{})).Must(t, "Split()")
	list := check.Call(k.List()).Must(t, "List()")
	for name, w := range map[string]store.Write{"merge low": writes[0], "merge high": writes[1], "split": split[0], "list": list} {
		if !w.Expr.Holds(whole) {
			t.Errorf("%s does not hold for the shard as it was", name)
		}
		for _, mark := range []expr.Attribute{{Name: "disabled", Value: expr.Bool(true)}, {Name: "cg", Value: expr.N(5)}, {Name: "vu", Value: expr.N(0)}, {Name: "vu", Value: expr.N(7000)}} {
			if w.Expr.Holds(append(whole.Clone(), mark)) && name != "list" {
				t.Errorf("%s holds for a shard with %s", name, mark.Name)
			}
		}
	}
}

// TestTimedItemsWithoutTheirMark reads items whose limits follow the time, from which another program has taken the note until when they
// are valid: they count as changed. Other items without the note do not.
func TestTimedItemsWithoutTheirMark(t *testing.T) {
	k := BucketKey{NS: "ns", Entity: "e", Resource: "r"}
	for name, test := range map[string]struct {
		attribute expr.Attribute
		changed   bool
	}{
		"a session quota":        {expr.Attribute{Name: "b_rpm_rsa", Value: expr.N(300)}, true},
		"a quota with times":     {expr.Attribute{Name: "b_rpm_rsched", Value: expr.S("1m0h0")}, true},
		"a limit with windows":   {expr.Attribute{Name: "b_rpm_sched", Value: expr.S("1h9-17s500")}, true},
		"a limit that is simple": {expr.Attribute{Name: "b_rpm_fc", Value: expr.N(1)}, false},
	} {
		item := k.Key().Join(expr.Item{
			{Name: "rf", Value: expr.N(1)},
			{Name: "b_rpm_tk", Value: expr.N(1)},
			{Name: "b_rpm_cp", Value: expr.N(1)},
			{Name: "b_rpm_ra", Value: expr.N(1)},
			{Name: "b_rpm_rp", Value: expr.N(1)},
			test.attribute,
		})
		var r BucketReader
		r.Init(k, k.Key())
		read, err := r.State(item, nil, nil)
		whole, wholeErr := ReadState(item)
		if err != nil || wholeErr != nil || read.Changed != test.changed || whole.Changed != test.changed {
			t.Errorf("%s: changed %t by the reader, %t by the decoder, want %t; %v, %v", name, read.Changed, whole.Changed, test.changed, err, wholeErr)
		}
	}
}
