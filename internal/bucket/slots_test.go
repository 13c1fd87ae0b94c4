package bucket

import (
	"slices"
	"testing"
)

// TestOpens begins the epochs of a bucket after pauses. The counter of the older epoch is set to nothing before the other one, since a
// counter below zero has its part in the newer one.
func TestOpens(t *testing.T) {
	for _, test := range []struct {
		name      string
		even, odd int64 // held in epoch 80 and before
		now       int64 // in epochs
		want      []int64
	}{
		{"the same epoch", 1, 0, 80, nil},
		{"an epoch before", 1, 0, 79, nil},
		{"the next epoch", 1, 1, 81, []int64{81}},
		{"two later", 1, 1, 82, []int64{81, 82}},
		{"three later", 1, -1, 83, []int64{81, 82, 83}},
		{"four later", 1, -1, 84, []int64{83, 84}},
		{"five later, nothing held as last seen", 0, 0, 85, []int64{83, 84, 85}},
	} {
		s := Slots{Capacity: 1, Free: 1 - test.even - test.odd, Even: test.even, Odd: test.odd, Epoch: 80, Term: 1000}
		var got []int64
		for {
			epoch, ok := s.Opens(test.now*1000 + 999)
			if !ok {
				break
			}
			got, s.Epoch = append(got, epoch), epoch
			s.Free, *s.counter(epoch) = s.Free+*s.counter(epoch), 0
			if s.Free > s.Capacity {
				t.Errorf("%s: %d of %d slots are free in epoch %d", test.name, s.Free, s.Capacity, epoch)
			}
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: epochs %v begin, want %v", test.name, got, test.want)
		}
	}
}

// In TestHeldSlotsKeepTheirItem, an item with slots is written near its expiry. It is kept for four terms more, and that once a term.
func TestHeldSlotsKeepTheirItem(t *testing.T) {
	const now, term = 1_700_000_000, 30 // seconds
	for _, test := range []struct{ expires, want int64 }{
		{0, 0}, // never
		{now + 1, now + 4*term + 1},
		{now + 3*term, now + 4*term + 1},
		{now + 3*term + 1, 0}, // written within the term
		{now + 1000, 0},
	} {
		s := State{ExpiresAt: test.expires, Notes: &Notes{Slots: []Slots{{Name: "short", Term: 1000}, {Name: "slots", Term: term * 1000}}}}
		if got, prolongs := s.SlotsUntil(now * 1000); got != test.want || prolongs != (test.want > 0) {
			t.Errorf("an item that expires at %d is kept until %d, %t, want %d", test.expires, got, prolongs, test.want)
		}
	}
}
