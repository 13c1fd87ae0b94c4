package layout

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/proof/check"
)

// TestItemsOnTheWire compares items with what tables hold.
func TestItemsOnTheWire(t *testing.T) {
	s, n := expr.S, expr.N
	for name, c := range map[string]struct{ got, want expr.Item }{
		"a bucket": {
			(&Bucket{
				Key:        BucketKey{NS: "n", Entity: "e", Resource: "r", Shard: 1},
				RefilledAt: 5, ShardCount: 2, Cascade: true, Parent: "p", ExpiresAt: 9,
				Limits: []bucket.Limit{{
					Name: "my_limit", Tokens: -1, Capacity: 2, RefillAmount: 3, RefillPeriod: 4, Consumed: 5,
				}},
			}).Encode(),
			expr.Item{
				{Name: "entity_id", Value: s("e")},
				{Name: "resource", Value: s("r")},
				{Name: "rf", Value: n(5)},
				{Name: "shard_count", Value: n(2)},
				{Name: "cascade", Value: expr.Bool(true)},
				{Name: "parent_id", Value: s("p")},
				{Name: "ttl", Value: n(9)},
				{Name: "b_my_limit_tk", Value: n(-1)},
				{Name: "b_my_limit_cp", Value: n(2)},
				{Name: "b_my_limit_ra", Value: n(3)},
				{Name: "b_my_limit_rp", Value: n(4)},
				{Name: "b_my_limit_tc", Value: n(5)},
				{Name: "GSI2PK", Value: s("n/RESOURCE#r")},
				{Name: "GSI2SK", Value: s("BUCKET#e#1")},
				{Name: "GSI3PK", Value: s("n/ENTITY#e")},
				{Name: "GSI3SK", Value: s("BUCKET#r#1")},
				{Name: "GSI4PK", Value: s("n")},
				{Name: "GSI4SK", Value: s("BUCKET#e#r#1")},
			},
		},
		"a bucket of an entity without a parent, which stays": {
			(&Bucket{Key: BucketKey{NS: "n", Entity: "e", Resource: "r"}}).Encode(),
			expr.Item{
				{Name: "entity_id", Value: s("e")},
				{Name: "resource", Value: s("r")},
				{Name: "rf", Value: n(0)},
				{Name: "shard_count", Value: n(0)},
				{Name: "cascade", Value: expr.Bool(false)},
				{Name: "GSI2PK", Value: s("n/RESOURCE#r")},
				{Name: "GSI2SK", Value: s("BUCKET#e#0")},
				{Name: "GSI3PK", Value: s("n/ENTITY#e")},
				{Name: "GSI3SK", Value: s("BUCKET#r#0")},
				{Name: "GSI4PK", Value: s("n")},
				{Name: "GSI4SK", Value: s("BUCKET#e#r#0")},
			},
		},
		"an entity": {
			(&Entity{Key: EntityKey{NS: "n", Entity: "e"}, Name: "E", CreatedAt: "2026-01-02T03:04:05Z"}).Encode(),
			expr.Item{
				{Name: "entity_id", Value: s("e")},
				{Name: "name", Value: s("E")},
				{Name: "parent_id", Value: expr.Null()},
				{Name: "cascade", Value: expr.Bool(false)},
				{Name: "metadata", Value: expr.Map(nil)},
				{Name: "created_at", Value: s("2026-01-02T03:04:05Z")},
				{Name: "GSI4PK", Value: s("n")},
				{Name: "GSI4SK", Value: s("n/ENTITY#e")},
			},
		},
		"an entity with a parent": {
			(&Entity{Key: EntityKey{NS: "n", Entity: "e"}, Parent: "p"}).Encode(),
			expr.Item{
				{Name: "entity_id", Value: s("e")},
				{Name: "name", Value: s("")},
				{Name: "parent_id", Value: s("p")},
				{Name: "cascade", Value: expr.Bool(false)},
				{Name: "metadata", Value: expr.Map(nil)},
				{Name: "created_at", Value: s("")},
				{Name: "GSI1PK", Value: s("n/PARENT#p")},
				{Name: "GSI1SK", Value: s("CHILD#e")},
				{Name: "GSI4PK", Value: s("n")},
				{Name: "GSI4SK", Value: s("n/ENTITY#e")},
			},
		},
		"a config, from which the burst of older tables is gone": {
			(&ResourceConfig{
				Key: ResourceConfigKey{NS: "n", Resource: "r"}, ConfigVersion: 3,
				Limits: []bucket.StoredLimit{{Name: "rpm", Capacity: 1, RefillAmount: 2, RefillPeriod: 60, Burst: 9}},
			}).Encode(),
			expr.Item{
				{Name: "resource", Value: s("r")},
				{Name: "config_version", Value: n(3)},
				{Name: "l_rpm_cp", Value: n(1)},
				{Name: "l_rpm_ra", Value: n(2)},
				{Name: "l_rpm_rp", Value: n(60)},
				{Name: "GSI4PK", Value: s("n")},
				{Name: "GSI4SK", Value: s("n/RESOURCE#r")},
			},
		},
		"a usage snapshot": {
			(&Usage{
				Key:    UsageKey{NS: "n", Entity: "e", Resource: "r", WindowKey: "2026-01"},
				Window: "monthly", WindowStart: "2026-01-01T00:00:00Z", TotalEvents: 7, ExpiresAt: 8,
				Limits:  []UsageCount{{Name: "rpm", Consumed: 12_000}, {Name: "tpm", Consumed: 12_500}},
				Sources: []UsageSource{{Name: "31", Last: "0001"}},
			}).Encode(),
			expr.Item{
				{Name: "entity_id", Value: s("e")},
				{Name: "resource", Value: s("r")},
				{Name: "window", Value: s("monthly")},
				{Name: "window_start", Value: s("2026-01-01T00:00:00Z")},
				{Name: "total_events", Value: n(7)},
				{Name: "ttl", Value: n(8)},
				{Name: "rpm", Value: n(12)},
				{Name: "tpm", Value: expr.Decimal(125, 1)},
				{Name: "seq#31", Value: s("0001")},
				{Name: "GSI2PK", Value: s("n/RESOURCE#r")},
				{Name: "GSI2SK", Value: s("USAGE#2026-01#e")},
				{Name: "GSI4PK", Value: s("n")},
				{Name: "GSI4SK", Value: s("n/ENTITY#e")},
			},
		},
	} {
		if !c.got.Equal(c.want) {
			t.Errorf("%s:\n%v, want\n%v", name, c.got, c.want)
		}
	}
}

func TestItemsOfOlderTables(t *testing.T) {
	item := withKey(ResourceConfigKey{NS: "n", Resource: "r"}.Key(), expr.Item{
		{Name: "l_rpm_cp", Value: expr.N(1)},
		{Name: "l_rpm_ra", Value: expr.N(2)},
		{Name: "l_rpm_rp", Value: expr.N(60)},
		{Name: "l_rpm_bx", Value: expr.N(9)},
	})
	got, err := DecodeResourceConfig(item)
	want := []bucket.StoredLimit{{Name: "rpm", Capacity: 1, RefillAmount: 2, RefillPeriod: 60, Burst: 9}}
	if diff := cmp.Diff(want, got.Limits); err != nil || diff != "" {
		t.Errorf("error %v, limits (-want +got):\n%s", err, diff)
	}
}

func TestItemsThatAreMalformed(t *testing.T) {
	wide := check.Call(expr.ParseNumber("9223372036854775808")).Must(t, "expr.ParseNumber()")
	for want, change := range map[string]func(*expr.Item){
		`bucket item: lacks rf`:                                                    func(it *expr.Item) { it.Remove("rf") },
		`bucket item: attribute rf: want N, got S`:                                 func(it *expr.Item) { it.Set("rf", expr.S("1")) },
		`bucket item: attribute rf: want an integer of 64 bits, got 922`:           func(it *expr.Item) { it.Set("rf", wide) },
		`bucket item: limit "rpm" lacks cp`:                                        func(it *expr.Item) { it.Remove("b_rpm_cp") },
		`bucket item: limit "new" lacks tk`:                                        func(it *expr.Item) { it.Set("b_new_tc", expr.N(1)) },
		`bucket item: attribute b_rpm_tk: want N, got NULL`:                        func(it *expr.Item) { it.Set("b_rpm_tk", expr.Null()) },
		`bucket item: attribute cascade: want BOOL, got N`:                         func(it *expr.Item) { it.Set("cascade", expr.N(1)) },
		`bucket item: key "n/BUCKET#e#r#01", "#STATE" is of another form`:          func(it *expr.Item) { it.Set("PK", expr.S("n/BUCKET#e#r#01")) },
		`bucket item: key "Zm9vYmFyYmF/BUCKET#customer-4711#gpt-4o#3", "" is of a`: func(it *expr.Item) { it.Remove("SK") },
	} {
		item := storedBucket()
		change(&item)
		if _, err := DecodeBucket(item); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("error = %v, want %s", err, want)
		}
	}
	item := storedBucket()
	item.Set("b_rpm_tc", wide)
	if it, err := DecodeBucket(item); err != nil || it.Limits[0].Consumed != -1<<63 {
		t.Errorf("a counter of 2^63 reads as %+v, %v; want it modulo 2^64", it.Limits, err)
	}
	item.Set("b_rpm_tk", wide)
	if it, err := DecodeBucket(item); err != nil || it.Limits[0].Tokens != 1<<63-1 {
		t.Errorf("a balance of 2^63 reads as %+v, %v; want the greatest of 64 bits", it.Limits, err)
	}
}

func TestReservedNames(t *testing.T) {
	for name, want := range map[string]bool{
		"rpm": false, "window_": false, "window": true, "entity_id": true, "ttl": true, "PK": true, "LSI1SK": true, "GSI1PK": true,
	} {
		if got := UsageReserves(name); got != want {
			t.Errorf("usageReserves(%q) = %t, want %t", name, got, want)
		}
	}
	if EntityConfigRegistryReserves("gpt-4o") || !EntityConfigRegistryReserves("GSI4SK") {
		t.Error("entityConfigRegistryReserves is wrong about gpt-4o or GSI4SK")
	}
}

func TestHotPathAllocations(t *testing.T) {
	item := storedBucket()
	if got := testing.AllocsPerRun(100, func() {
		if _, err := DecodeBucket(item); err != nil {
			t.Fatalf("DecodeBucket() = %v", err)
		}
	}); got > 2 { // once, for the limits; the race detector adds one
		t.Errorf("decodeBucket allocates %v times, want at most 2", got)
	}
	if got := testing.AllocsPerRun(100, func() {
		call := Spend(1, 2)
		call.Plain()
		call.Take("rpm", 3)
		call.Take("tpm", 4)
		call.Take("wcu", 5)
		if _, err := call.Bind(); err != nil {
			t.Fatalf("Bind() = %v", err)
		}
	}); got > 1 {
		t.Errorf("spend allocates %v times, want once, for the call", got)
	}
	if got := testing.AllocsPerRun(100, func() {
		call := Advance(1, 2, -1, 0)
		for _, limit := range []string{"rpm", "wcu"} {
			call.Credit(limit, 3, 4)
			call.Cover(limit, 5)
			call.Count(limit, 6)
		}
		if _, err := call.Bind(); err != nil {
			t.Fatalf("Bind() = %v", err)
		}
	}); got > 1 {
		t.Errorf("advance allocates %v times, want once, for the call", got)
	}
}
