package memory

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/compare"
	"github.com/zlimit/zlimit-go/internal/proof/storetest"
	"github.com/zlimit/zlimit-go/internal/store"
)

func ready(t *testing.T) *Store {
	t.Helper()
	s := check.Call(New(storetest.Table)).Must(t, "New()")
	check.Fatal(t, "Setup()", s.Setup(t.Context()))
	return s
}

// sound compares the parts of a table at rest with each other.
func sound(t *testing.T, s *Store) {
	t.Helper()
	table := s.table.Load()
	type place struct {
		index int
		pk    string
		entry
	}
	want := map[place]bool{} // in indexes; -1 for the table
	for i := range table.shards {
		sh := &table.shards[i]
		for at, r := range sh.records {
			if r.place != at || r.shard != sh || sh.find(r.key) != r || store.KeyOf(r.item) != r.key {
				t.Errorf("record %v at %d of shard %d is not where it says: %d", r.key, at, i, r.place)
			}
			if size := store.Size(r.item); size > r.bound {
				t.Errorf("item %v has %d bytes, more than %d", r.key, size, r.bound)
			}
			want[place{-1, r.key.PK, entry{r.key.SK, r}}] = true
			for n := range s.schema.Indexes {
				if pk, sk, ok := keysIn(&s.schema.Indexes[n], r.item); ok {
					want[place{n, pk, entry{sk, r}}] = true
				}
			}
		}
	}
	look := func(index int, pk string, l *list) {
		for _, e := range slices.Concat(l.chunks...) {
			if p := (place{index, pk, e}); !want[p] {
				t.Errorf("index %d has %q of %v under %q", index, e.sort, e.key, pk)
			} else {
				delete(want, p)
			}
		}
	}
	for i := range table.shards {
		for pk, p := range table.shards[i].partitions {
			if p.items.empty() {
				t.Errorf("partition %q is empty", pk)
			}
			look(-1, pk, &p.items)
			for n := range p.local {
				look(n, pk, &p.local[n])
			}
		}
	}
	for n := range table.global {
		for pk, l := range table.global[n].partitions {
			if l.empty() {
				t.Errorf("index %d has an empty partition %q", n, pk)
			}
			look(n, pk, l)
		}
	}
	for p := range want {
		t.Errorf("index %d lacks %q of %v", p.index, p.sort, p.key)
	}
}

// TestEverythingAtOnce lets goroutines do every sort of call on a few items, and then looks whether the table is sound.
func TestEverythingAtOnce(t *testing.T) {
	s := ready(t)
	check.Fatal(t, "StartStream()", s.StartStream(t.Context()))
	const goroutines, steps = 8, 600
	text := func(r *rand.Rand) string { return string(rune('a' + r.IntN(4))) }
	write := func(r *rand.Rand) store.Write {
		w := store.Write{Key: store.Key{PK: text(r), SK: text(r)}, Kind: store.Put}
		switch r.IntN(5) {
		case 0:
			w.Kind = store.Delete
		case 1:
			w.Kind, w.Expr = store.Update, storetest.Bind(t, nil, []expr.Action{expr.Set(expr.Attr("owner"), 0), expr.Add(expr.Attr("n"), 1)}, text(r), 1)
		case 2:
			w.Kind, w.Expr = store.Update, storetest.Bind(t, nil, []expr.Action{expr.Remove(expr.Attr("date")), expr.Add(expr.Attr("n"), 0)}, 1)
		default:
			w.Item = storetest.Item("owner", text(r), "since", text(r), "kind", text(r), "rank", text(r), "date", text(r), "ttl", 500+r.IntN(1000))
		}
		return w
	}
	group, ctx := errgroup.WithContext(t.Context())
	for g := range goroutines {
		group.Go(func() error {
			r := rand.New(rand.NewPCG(3, uint64(g)))
			var kept []expr.Item // images, and what they were
			var were []string
			for range steps {
				var err error
				switch r.IntN(8) {
				case 0, 1, 2:
					var result store.Result
					if result, err = s.Write(ctx, write(r)); result.Forms != nil && !result.Forms.Fit(result.Item) {
						return fmt.Errorf("%v has other forms than the result says", result.Item)
					}
					if result.Item != nil {
						kept, were = append(kept, result.Item), append(were, result.Item.String())
					}
				case 3:
					writes := []store.Write{write(r), write(r), write(r)}
					if writes[0].Key != writes[1].Key && writes[1].Key != writes[2].Key && writes[0].Key != writes[2].Key {
						_, err = s.Transact(ctx, writes)
					}
				case 4:
					err = s.Delete(ctx, []store.Key{{PK: text(r), SK: text(r)}, {PK: text(r), SK: text(r)}})
				case 5:
					err = s.Expire(ctx, 700)
				case 6:
					q := store.Query{Index: "ByOwner", PK: text(r), Reverse: r.IntN(2) == 0}
					var page store.Page
					if page, err = s.Query(ctx, q); err == nil {
						err = expect(page, q.PK)
					}
				default:
					_, err = s.Query(ctx, store.Query{Index: "ByDate", PK: text(r)})
				}
				if err != nil {
					return err
				}
			}
			for i := range kept {
				if now := kept[i].String(); now != were[i] {
					return fmt.Errorf("an image changed from %s to %s", were[i], now)
				}
			}
			return nil
		})
	}
	done := make(chan struct{})
	chains := map[store.Key]expr.Item{}
	var reader errgroup.Group
	reader.Go(func() error { return follow(s, chains, done) })
	err := group.Wait()
	close(done)
	check.Fatal(t, "Wait()", errors.Join(err, reader.Wait()))
	for k, last := range chains {
		now, err := s.Read(t.Context(), []store.Key{k}, true)
		if err != nil || !now[0].Equal(last) {
			t.Errorf("the changes of %v end with %v, and it is %v, %v", k, last, now, err)
		}
	}
	sound(t, s)
}

// follow reads the log, in which the changes of each item are a chain, up to its end when done is closed. It leaves the
// ends of the chains.
func follow(s *Store, chains map[store.Key]expr.Item, done <-chan struct{}) error {
	var at store.Position
	for {
		last := false
		select {
		case <-done:
			last = true
		default:
		}
		page, err := s.Changes(context.Background(), partitionID, at, 50)
		if err != nil || page.Gap {
			return fmt.Errorf("a gap: %t, %w", page.Gap, err)
		}
		for _, c := range page.Changes {
			if !c.Old.Equal(chains[c.Key]) {
				return fmt.Errorf("a change of %v starts from %v, the one before ended with %v", c.Key, c.Old, chains[c.Key])
			}
			chains[c.Key] = c.New
		}
		if at = page.Next; last && len(page.Changes) == 0 {
			return nil
		}
	}
}

// expect returns an error for a page of ByOwner that has items of another owner, or one twice.
func expect(page store.Page, owner string) error {
	seen := map[store.Key]bool{}
	for _, item := range page.Items {
		if k := store.KeyOf(item); seen[k] || item.Get("owner").Text() != owner {
			return fmt.Errorf("the page of owner %q has %v, which it had before: %t", owner, item, seen[k])
		}
		seen[store.KeyOf(item)] = true
	}
	return nil
}

// TestPagesAreMoments moves amounts between the items of a partition in transactions: every page has the same sum.
func TestPagesAreMoments(t *testing.T) {
	s := ready(t)
	n := expr.Attr("n")
	at := func(i int) store.Key { return store.Key{PK: "p", SK: fmt.Sprint(i)} }
	const accounts = 5
	for i := range accounts {
		item := storetest.Item("n", 100, "date", fmt.Sprint(9-i))
		if _, err := s.Write(t.Context(), store.Write{Kind: store.Put, Key: at(i), Item: item}); err != nil {
			t.Fatalf("Write() = %v", err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	group, ctx := errgroup.WithContext(ctx)
	for g := range 2 {
		r := rand.New(rand.NewPCG(4, uint64(g)))
		group.Go(func() error {
			for ctx.Err() == nil {
				from := r.IntN(accounts)
				to, amount := (from+1)%accounts, r.IntN(10)
				_, err := s.Transact(ctx, []store.Write{
					{Key: at(from), Expr: storetest.Bind(t, nil, []expr.Action{expr.Add(n, 0)}, -amount)},
					{Key: at(to), Expr: storetest.Bind(t, nil, []expr.Action{expr.Add(n, 0)}, amount)},
				})
				if err != nil && ctx.Err() == nil {
					return err
				}
			}
			return nil
		})
	}
	for i := range 2000 {
		page := check.Call(s.Query(t.Context(), store.Query{PK: "p", Index: []string{"", "ByDate"}[i%2]})).Must(t, "Query()")
		sum := int64(0)
		for _, item := range page.Items {
			have, _ := item.Get("n").Int()
			sum += have
		}
		if sum != accounts*100 {
			t.Fatalf("page %d has the sum %d, want %d", i, sum, accounts*100)
		}
	}
	stop()
	check.Fatal(t, "Wait()", group.Wait())
}

// TestItemsLeaveAnIndexUnderAQuery changes items between the two steps of a query of a global index.
func TestItemsLeaveAnIndexUnderAQuery(t *testing.T) {
	s := ready(t)
	at := func(i int) store.Key { return store.Key{PK: "p", SK: fmt.Sprint(i)} }
	write := func(w store.Write) {
		t.Helper()
		if _, err := s.Write(t.Context(), w); err != nil {
			t.Fatalf("Write() = %v", err)
		}
	}
	for i := range 5 {
		write(store.Write{Kind: store.Put, Key: at(i), Item: storetest.Item("owner", "o", "since", "s")})
	}
	q := &store.Query{Index: "ByOwner", PK: "o"}
	x := check.Call(s.schema.Lookup(q)).Must(t, "Lookup()")
	found := s.table.Load().global[0].page(q, x)
	set := func(name, to string) expr.Bound {
		return storetest.Bind(t, nil, []expr.Action{expr.Set(expr.Attr(name), 0)}, to)
	}
	write(store.Write{Kind: store.Delete, Key: at(0)})
	write(store.Write{Key: at(1), Expr: set("owner", "another")})
	write(store.Write{Key: at(2), Expr: set("since", "t")})
	write(store.Write{Key: at(3), Expr: set("name", "n")})
	var left []string
	for _, item := range imagesOf(q, x, found) {
		left = append(left, item.Get(store.SK).Text()+item.Get("name").Text())
	}
	if want := []string{"3n", "4"}; !slices.Equal(left, want) {
		t.Errorf("the page has %q, want %q: what is where it was found", left, want)
	}
	sound(t, s)
}

// TestImagesAreTheCallers appends to images of one item.
func TestImagesAreTheCallers(t *testing.T) {
	s := ready(t)
	k := store.Key{PK: "p", SK: "s"}
	grow := store.Write{Key: k, Expr: storetest.Bind(t, nil, []expr.Action{expr.Set(expr.Attr("n"), 0)}, 1)}
	var images []expr.Item
	for range 2 {
		grown := check.Call(s.Write(t.Context(), grow)).Must(t, "Write()")
		read := check.Call(s.Read(t.Context(), []store.Key{k}, true)).Must(t, "Read()")
		page := check.Call(s.Query(t.Context(), store.Query{PK: "p"})).Must(t, "Query()")
		images = append(images, grown.Item, grown.Item, read[0], page.Items[0])
	}
	for i := range images {
		images[i] = append(images[i], expr.Attribute{Name: "i", Value: expr.N(int64(i))})
	}
	for i, image := range images {
		if got, _ := image.Get("i").Int(); got != int64(i) {
			t.Errorf("image %d has what was appended to image %d", i, got)
		}
	}
}

// TestCloseBesideCalls closes a store under way: calls succeed or say that it is closed.
func TestCloseBesideCalls(t *testing.T) {
	s := ready(t)
	var group, busy sync.WaitGroup
	for i := range 4 {
		busy.Add(1)
		group.Go(func() {
			for step := 0; ; step++ {
				if step == 100 {
					busy.Done()
				}
				k := store.Key{PK: fmt.Sprint(i, step%10), SK: "s"}
				_, err := s.Write(t.Context(), store.Write{Kind: store.Put, Key: k})
				if errors.Is(err, store.ErrClosed) {
					return
				}
				if err != nil {
					t.Errorf("Write() beside Close = %v", err)
					return
				}
				if err := s.Setup(t.Context()); err != nil && !errors.Is(err, store.ErrClosed) {
					t.Errorf("Setup() beside Close = %v", err)
				}
			}
		})
	}
	busy.Wait()
	check.Fatal(t, "Close()", s.Close())
	group.Wait()
	if s.table.Load() != nil {
		t.Error("a closed store holds its table")
	}
}

// TestInABubble runs callers that wait for one another under synctest: the store waits for nothing, and has the time of
// the bubble.
func TestInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := ready(t)
		check.Fatal(t, "StartStream()", s.StartStream(t.Context()))
		start := time.Now()
		for i := range 3 {
			go func() {
				time.Sleep(time.Duration(i) * time.Hour)
				w := store.Write{Key: store.Key{PK: "p", SK: "s"}, Expr: storetest.Bind(t, nil, []expr.Action{expr.Add(expr.Attr("n"), 0)}, 1)}
				if _, err := s.Write(t.Context(), w); err != nil {
					t.Errorf("Write() = %v", err)
				}
			}()
		}
		time.Sleep(3 * time.Hour)
		synctest.Wait()
		page, err := s.Changes(t.Context(), partitionID, store.Position{}, 10)
		if err != nil || len(page.Changes) != 3 {
			t.Fatalf("Changes() = %v, %v; want 3", page.Changes, err)
		}
		for i, c := range page.Changes {
			if got := c.At.Sub(start); got != time.Duration(i)*time.Hour {
				t.Errorf("change %d was made after %v, want %d hours", i, got, i)
			}
		}
	})
}

// TestForms: the forms of an item are known once it was updated, as long as updates change numbers alone.
func TestForms(t *testing.T) {
	s := ready(t)
	k := store.Key{PK: "p", SK: "s"}
	n := expr.Attr("n")
	update := func(where []expr.Condition, values ...any) store.Result {
		t.Helper()
		b := storetest.Bind(t, where, []expr.Action{expr.Add(n, 0)}, values...)
		return check.Call(s.Write(t.Context(), store.Write{Key: k, Expr: b})).Must(t, "Write()")
	}
	if r := update(nil, 1); r.Forms != nil {
		t.Errorf("the forms of a new item are known")
	}
	known := update(nil, 1)
	short := update([]expr.Condition{expr.GE(n, 1)}, 1, 1<<60)
	if known.Forms == nil || !known.Forms.Fit(known.Item) || short.Applied || short.Forms != known.Forms {
		t.Errorf("the forms of %v are known: %t, after a failed condition: %t", known.Item, known.Forms != nil, short.Forms != nil)
	}
	if r := check.Call(s.Write(t.Context(), store.Write{Kind: store.Put, Key: k, Item: storetest.Item("n", "x")})).Must(t, "Write()"); r.Forms != nil {
		t.Error("the forms of an item that was put are known")
	}
}

// TestAllocations counts those of the calls that an acquire makes.
func TestAllocations(t *testing.T) {
	s := ready(t)
	put := store.Write{Kind: store.Put, Key: storetest.BucketKey, Item: storetest.Bucket}
	if _, err := s.Write(t.Context(), put); err != nil {
		t.Fatalf("Write() = %v", err)
	}
	tokens := expr.Attr("b_rpm_tk")
	spend := func(least int) store.Write {
		b := storetest.Bind(t, []expr.Condition{expr.GE(tokens, 0)}, []expr.Action{expr.Add(tokens, 1)}, least, -1)
		return store.Write{Key: storetest.BucketKey, Expr: b}
	}
	ctx := t.Context()
	many, few := spend(1), spend(1<<60)
	if got := testing.AllocsPerRun(100, func() {
		r, err := s.Write(ctx, many)
		if err != nil || !r.Applied {
			t.Error(r, err)
		}
		r.Release()
	}); got != 0 {
		t.Errorf("an update whose result is released allocates %v times, want 0", got)
	}
	if got := testing.AllocsPerRun(100, func() {
		if r, err := s.Write(ctx, many); err != nil || !r.Applied {
			t.Error(r, err)
		}
	}); got > 2 {
		t.Errorf("an update allocates %v times, want at most 2: the item, and who may look at it", got)
	}
	if got := testing.AllocsPerRun(100, func() {
		if _, err := s.Read(ctx, []store.Key{storetest.BucketKey}, true); err != nil {
			t.Errorf("Read() = %v", err)
		}
	}); got != 1 {
		t.Errorf("a read allocates %v times, want 1: what it returns", got)
	}
	if got := testing.AllocsPerRun(100, func() {
		if r, err := s.Write(ctx, few); err != nil || r.Applied {
			t.Error(r, err)
		}
	}); got != 0 {
		t.Errorf("a failed condition allocates %v times, want 0", got)
	}
}

// TestLentItems keeps results of writes, reads, queries and the log while other results are released. The kept items
// stay as they were through all later writes.
func TestLentItems(t *testing.T) {
	s := ready(t)
	ctx := t.Context()
	key := storetest.BucketKey
	update := func() store.Result {
		t.Helper()
		tokens := expr.Attr("b_rpm_tk")
		r, err := s.Write(ctx, store.Write{Key: key, Expr: storetest.Bind(t, nil, []expr.Action{expr.Add(tokens, 0)}, -1)})
		if err != nil || !r.Applied {
			t.Fatalf("Write() = %v, %v", r, err)
		}
		return r
	}
	if _, err := s.Write(ctx, store.Write{Kind: store.Put, Key: key, Item: storetest.Bucket}); err != nil {
		t.Fatalf("Write() = %v", err)
	}
	var kept, want []expr.Item
	keep := func(item expr.Item) { kept, want = append(kept, item), append(want, item.Clone()) }
	for range 3 {
		r := update()
		r.Release()
		keep(update().Item)
		items := check.Call(s.Read(ctx, []store.Key{key}, true)).Must(t, "Read()")
		keep(items[0])
		r = update()
		r.Release()
		page, err := s.Query(ctx, store.Query{PK: key.PK})
		if err != nil || len(page.Items) != 1 {
			t.Fatalf("Query() = %v, %v", page, err)
		}
		keep(page.Items[0])
		refused, err := s.Write(ctx, store.Write{Key: key, Expr: storetest.Bind(t,
			[]expr.Condition{expr.Absent(expr.Attr(store.PK))}, []expr.Action{expr.Set(expr.Attr("x"), 0)}, 1)})
		if err != nil || refused.Applied {
			t.Fatalf("Write() = %v, %v; want a condition that fails", refused, err)
		}
		keep(refused.Item)
	}
	check.Fatal(t, "StartStream()", s.StartStream(ctx))
	for range 5 {
		r := update()
		r.Release()
	}
	compare.Equal(t, "items that were kept", want, kept, storetest.Equal)
	page, err := s.Changes(ctx, partitionID, store.Position{}, 100)
	if err != nil || len(page.Changes) != 5 {
		t.Fatalf("Changes() = %v, %v; want 5", page, err)
	}
	for i, c := range page.Changes {
		before, _ := c.Old.Get("b_rpm_tk").Int()
		after, _ := c.New.Get("b_rpm_tk").Int()
		if first, _ := page.Changes[0].Old.Get("b_rpm_tk").Int(); before != first-int64(i) || after != before-1 {
			t.Errorf("change %d is from %d to %d, want from %d by -1", i, before, after, first-int64(i))
		}
	}
	last := page.Changes[4].New
	before := last.Clone()
	s.table.Load().log.on.Store(false) // as when no one has read it for long
	for range 3 {
		r := update()
		r.Release()
	}
	if !last.Equal(before) {
		t.Errorf("the last change of the log became %v, was %v", last, before)
	}
}
