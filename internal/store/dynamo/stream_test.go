package dynamo_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/compare"
	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
	"github.com/zlimit/zlimit-go/internal/proof/storetest"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/store/dynamo"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// sharded returns a store on a table of shards, and the faults that the calls of its stream pass through.
func sharded(shards *enginetest.Shards, options ...dynamo.Option) (*dynamo.Store, *enginetest.Faults) {
	faults := enginetest.NewFaults(shards)
	db, streams := shards.Clients(faults.AttachStreams)
	options = append([]dynamo.Option{dynamo.Streams(streams), dynamo.ReadInterval(0)}, options...)
	return dynamo.New(db, "shards", storetest.Table, enginetest.CreateSuiteTableWithStream, options...), faults
}

// fill records n changes of an item.
func fill(shards *enginetest.Shards, shard string, n int) {
	for i := range n {
		shards.Put(shard, "item", i, noon.Add(time.Duration(i)*time.Second))
	}
}

// page reads a page, and returns the values that the item takes on in it.
func page(t *testing.T, s *dynamo.Store, partition string, at store.Position, limit int) ([]int64, store.ChangePage) {
	t.Helper()
	p, err := s.Changes(t.Context(), partition, at, limit)
	if err != nil {
		t.Fatalf("Changes(%q) = %v", at.After, err)
	}
	var values []int64
	for _, c := range p.Changes {
		n, _ := c.New.Get("n").Int()
		values = append(values, n)
	}
	return values, p
}

func expectValues(t *testing.T, what string, got []int64, want ...int64) {
	t.Helper()
	compare.Equal(t, what, want, got)
}

func TestPartitions(t *testing.T) {
	shards := enginetest.NewShards()
	shards.PageSize = 2
	shards.Open("a", "trimmed")
	shards.Open("b", "a")
	shards.Open("c", "a")
	shards.Open("d", "")
	shards.Open("e", "d")
	s, faults := sharded(shards)
	got := check.Call(s.Partitions(t.Context())).Must(t, "Partitions()")
	name := shards.Partition
	want := []store.Partition{
		{ID: name("a"), Parent: name("trimmed")},
		{ID: name("b"), Parent: name("a")},
		{ID: name("c"), Parent: name("a")},
		{ID: name("d")},
		{ID: name("e"), Parent: name("d")},
	}
	compare.Equal(t, "Partitions()", want, got)
	if got := faults.Calls("DescribeStream"); got != 3 {
		t.Errorf("Partitions() made %d DescribeStream calls, want 3", got)
	}
}

// TestChildren asks for the children of a shard, whatever the service makes of the filter.
func TestChildren(t *testing.T) {
	for _, test := range []struct {
		filter       string
		first, again int // calls
	}{{"", 1, 1}, {"ignored", 3, 3}, {"refused", 4, 3}} {
		shards := enginetest.NewShards()
		shards.PageSize, shards.Filter = 2, test.filter
		for _, id := range []string{"b", "c", "d"} {
			shards.Open(id, "a")
		}
		shards.Open("e", "b")
		shards.Open("f", "c")
		s, faults := sharded(shards)
		name := shards.Partition
		for _, ask := range []struct {
			of    string
			want  []store.Partition
			calls int
		}{
			{name("b"), []store.Partition{{ID: name("e"), Parent: name("b")}}, test.first},
			{name("c"), []store.Partition{{ID: name("f"), Parent: name("c")}}, test.again},
			{name("e"), nil, test.again},
			{"log", nil, 0},
		} {
			faults.Reset()
			got, err := s.Children(t.Context(), ask.of)
			if diff := cmp.Diff(ask.want, got, cmpopts.EquateEmpty()); diff != "" || err != nil {
				t.Errorf("filter %q: Children(%s) = %v (-want +got):\n%s", test.filter, ask.of, err, diff)
			}
			if calls := faults.Calls("DescribeStream"); calls != ask.calls {
				t.Errorf("filter %q: Children(%s) made %d DescribeStream calls, want %d", test.filter, ask.of, calls, ask.calls)
			}
		}
		faults.Inject(enginetest.Fault{Kind: enginetest.ResourceNotFound, Operation: "DescribeStream"})
		if got, err := s.Children(t.Context(), name("b")); len(got) > 0 || err != nil {
			t.Errorf("filter %q: Children() of a stream that is gone = %v, %v", test.filter, got, err)
		}
	}
}

func TestNoStream(t *testing.T) {
	for _, view := range []string{"", "KEYS_ONLY", "NEW_IMAGE"} {
		shards := enginetest.NewShards()
		shards.View = view
		s, _ := sharded(shards)
		if err := s.StartStream(t.Context()); !errors.Is(err, store.ErrNoStream) {
			t.Errorf("StartStream() with a stream %q = %v, want %v", view, err, store.ErrNoStream)
		}
		if _, err := s.Partitions(t.Context()); !errors.Is(err, store.ErrNoStream) {
			t.Errorf("Partitions() with a stream %q = %v, want %v", view, err, store.ErrNoStream)
		}
	}
	shards := enginetest.NewShards()
	s, _ := sharded(shards, dynamo.Streams(nil))
	if err := s.StartStream(t.Context()); !errors.Is(err, store.ErrNoStream) {
		t.Errorf("StartStream() without a client = %v, want %v", err, store.ErrNoStream)
	}
	s, faults := sharded(shards)
	faults.Inject(enginetest.Fault{Kind: enginetest.ResourceNotFound, Operation: "DescribeStream"})
	if _, err := s.Partitions(t.Context()); !errors.Is(err, store.ErrNoStream) {
		t.Errorf("Partitions() of a stream that is gone = %v, want %v", err, store.ErrNoStream)
	}
	expectVerdict(t, "StartStream() without a table", dynamo.New(enginetest.Start(t).Client(), "none", storetest.Table,
		enginetest.CreateSuiteTableWithStream, dynamo.Streams(enginetest.Start(t).Streams())).StartStream(t.Context()), missing)
}

func TestRecord(t *testing.T) {
	shards := enginetest.NewShards()
	shards.Open("a", "")
	shards.Put("a", "item", 1, noon)
	shards.Put("a", "item", 2, noon.Add(time.Second))
	shards.Put("a", "item", 2, noon.Add(time.Second)) // no change
	shards.Expire("a", "item", noon.Add(time.Minute))
	s, _ := sharded(shards)
	_, got := page(t, s, shards.Partition("a"), store.Position{}, 10)
	k := store.Key{PK: "item", SK: "s"}
	image := func(n int) expr.Item { return k.Join(storetest.Item("n", n)) }
	const prefix = "0000000000000003" + "0000000000000000000000"
	label, _, _ := strings.Cut(shards.Partition("a"), "/")
	want := []store.Change{
		{Key: k, New: image(1), Sequence: prefix + "07", Stream: label, At: noon},
		{Key: k, Old: image(1), New: image(2), Sequence: prefix + "14", Stream: label, At: noon.Add(time.Second)},
		{Key: k, Old: image(2), Sequence: prefix + "28", Stream: label, At: noon.Add(time.Minute), Expired: true},
	}
	compare.Equal(t, "Changes()", want, got.Changes, storetest.Equal)
}

// TestShardToItsEnd reads a shard page by page, going on with and without the iterator.
func TestShardToItsEnd(t *testing.T) {
	shards := enginetest.NewShards()
	shards.Open("a", "")
	fill(shards, "a", 5)
	s, faults := sharded(shards)
	name := shards.Partition("a")
	values, first := page(t, s, name, store.Position{}, 2)
	expectValues(t, "first page", values, 0, 1)
	values, second := page(t, s, name, first.Next, 2)
	expectValues(t, "second page", values, 2, 3)
	if got := faults.Calls("GetShardIterator"); got != 1 {
		t.Errorf("two pages took %d iterators, want 1", got)
	}
	values, _ = page(t, s, name, store.Position{After: first.Next.After}, 2)
	expectValues(t, "second page without an iterator", values, 2, 3)
	values, third := page(t, s, name, second.Next, 2)
	expectValues(t, "third page", values, 4)
	values, empty := page(t, s, name, third.Next, 2)
	expectValues(t, "page after the last change", values)
	if third.End || empty.End || empty.Next.After != third.Next.After {
		t.Errorf("pages of an open shard = %+v, %+v; want no end", third, empty)
	}
	shards.Put("a", "item", 9, noon)
	shards.Close("a")
	values, last := page(t, s, name, empty.Next, 2)
	expectValues(t, "last page", values, 9)
	if !last.End || last.Gap {
		t.Errorf("last page of a closed shard = %+v, want its end", last)
	}
	values, again := page(t, s, name, store.Position{After: last.Next.After}, 2)
	expectValues(t, "page after the end", values)
	if !again.End || again.Gap {
		t.Errorf("page after the end = %+v, want the end", again)
	}
}

func TestTrimmed(t *testing.T) {
	shards := enginetest.NewShards()
	shards.Open("a", "")
	fill(shards, "a", 6)
	name := shards.Partition("a")
	s, _ := sharded(shards)
	_, start := page(t, s, name, store.Position{}, 2)
	shards.Trim("a", 4)
	for _, test := range []struct {
		name string
		at   store.Position
		want []int64
		gap  bool
	}{
		{"an iterator that is too old", start.Next, []int64{4, 5}, true},
		{"a sequence that is too old", store.Position{After: start.Next.After}, []int64{4, 5}, true},
		{"an iterator of the beginning", store.Position{Iterator: start.Next.Iterator}, []int64{4, 5}, true},
		{"the beginning", store.Position{}, []int64{4, 5}, false},
	} {
		values, got := page(t, s, name, test.at, 10)
		expectValues(t, test.name, values, test.want...)
		if got.Gap != test.gap || got.End {
			t.Errorf("page from %s tells of a gap: %t, of an end: %t; want %t, false", test.name, got.Gap, got.End, test.gap)
		}
	}
	fresh, faults := sharded(shards)
	faults.Inject(enginetest.Fault{Kind: enginetest.TrimmedData, Operation: "GetRecords", Times: 1})
	if _, got := page(t, fresh, name, store.Position{}, 10); got.Gap {
		t.Error("a page from the beginning tells of a gap, when the beginning moved while it was read")
	}
	shards.Trim("a", 6)
	values, got := page(t, s, name, start.Next, 10)
	expectValues(t, "page of a shard without records", values)
	if !got.Gap {
		t.Error("a gap is not reported when nothing is left")
	}
	if _, next := page(t, s, name, store.Position{After: got.Next.After}, 10); next.Gap {
		t.Error("a gap is reported twice")
	}
	shards.Forget("a")
	for _, at := range []store.Position{start.Next, {After: start.Next.After}, {}} {
		if _, got := page(t, s, name, at, 10); !got.End || !got.Gap {
			t.Errorf("page of a shard that is gone = %+v, want its end, after a gap", got)
		}
	}
}

func TestStreamFaults(t *testing.T) {
	shards := enginetest.NewShards()
	shards.Open("a", "")
	fill(shards, "a", 4)
	name := shards.Partition("a")
	for _, test := range []struct {
		name  string
		fault enginetest.Fault
		want  verdict
		gap   bool
	}{
		{"an expired iterator", enginetest.Fault{Kind: enginetest.ExpiredIterator, Operation: "GetRecords", Times: 2}, success, false},
		{"iterators that always expire", enginetest.Fault{Kind: enginetest.ExpiredIterator, Operation: "GetRecords"}, refusal, false},
		{"records trimmed while reading", enginetest.Fault{Kind: enginetest.TrimmedData, Operation: "GetRecords", Times: 1}, success, true},
		{"a limit, once", enginetest.Fault{Kind: enginetest.LimitExceeded, Operation: "GetRecords", Times: 1}, success, false},
		{"a limit that lasts", enginetest.Fault{Kind: enginetest.LimitExceeded, Operation: "GetRecords"}, unavailable, false},
		{"a throttle that lasts", enginetest.Fault{Kind: enginetest.Throttled, Operation: "GetShardIterator"}, unavailable, false},
		{"a lost reply", enginetest.Fault{Kind: enginetest.LostReply, Operation: "GetRecords", Times: 1}, success, false},
		{"replies that are always lost", enginetest.Fault{Kind: enginetest.LostReply, Operation: "GetRecords"}, unavailable, false},
		{"an internal error, once", enginetest.Fault{Kind: enginetest.InternalError, Operation: "GetShardIterator", Times: 1}, success, false},
		{"denied permission", enginetest.Fault{Kind: enginetest.AccessDenied, Operation: "GetRecords"}, refusal, false},
	} {
		s, faults := sharded(shards)
		_, start := page(t, s, name, store.Position{}, 2)
		faults.Inject(test.fault)
		got, err := s.Changes(t.Context(), name, store.Position{After: start.Next.After}, 10)
		expectVerdict(t, test.name, err, test.want)
		if err != nil {
			continue
		}
		want := 2
		if test.gap {
			want = 4 // from the oldest on
		}
		if len(got.Changes) != want || got.Gap != test.gap {
			t.Errorf("%s: %d changes, with a gap: %t; want %d, %t", test.name, len(got.Changes), got.Gap, want, test.gap)
		}
	}
	s, faults := sharded(shards)
	faults.Inject(enginetest.Fault{Kind: enginetest.LimitExceeded, Operation: "DescribeStream"})
	_, err := s.Partitions(t.Context())
	expectVerdict(t, "Partitions() at a limit", err, unavailable)
	if e := (*store.Error)(nil); !errors.As(err, &e) || !e.Throttled {
		t.Errorf("Partitions() at a limit = %v, want it throttled", err)
	}
}

// TestPace reads two shards as fast as it may.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shards := enginetest.NewShards()
		shards.Open("a", "")
		shards.Open("b", "")
		s, _ := sharded(shards, dynamo.ReadInterval(200*time.Millisecond))
		start := time.Now()
		for range 5 {
			page(t, s, shards.Partition("a"), store.Position{}, 1)
			page(t, s, shards.Partition("b"), store.Position{}, 1)
		}
		if got := time.Since(start); got != 800*time.Millisecond {
			t.Errorf("five reads of each of two shards took %v, want 800ms", got)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if _, err := s.Changes(ctx, shards.Partition("a"), store.Position{}, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Changes() with too little time = %v, want %v", err, context.DeadlineExceeded)
		}
	})
}

// TestOpenReadsTheStream opens a store by its configuration, against an engine whose streams are at the same endpoint.
func TestOpenReadsTheStream(t *testing.T) {
	engine := enginetest.Fresh(t)
	config := dynamo.ClientConfig{Region: enginetest.Region, Endpoint: engine.Endpoint()}
	s, err := dynamo.Open(t.Context(), config, engine.Table(t), storetest.Table, enginetest.CreateSuiteTableWithStream)
	check.Fatal(t, "dynamo.Open()", err)
	defer s.Close()
	check.Fatal(t, "Setup()", s.Setup(t.Context()))
	if _, err := s.Write(t.Context(), store.Write{Kind: store.Put, Key: one, Item: storetest.Item("n", 7)}); err != nil {
		t.Fatalf("Write() = %v", err)
	}
	partitions, err := s.Partitions(t.Context())
	if err != nil || len(partitions) != 1 {
		t.Fatalf("Partitions() = %v, %v; want one", partitions, err)
	}
	values, _ := page(t, s, partitions[0].ID, store.Position{}, 10)
	expectValues(t, "changes", values, 7)
}
