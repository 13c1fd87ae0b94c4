package protocol

import "context"

// A SlotChange is what became of slots that this process takes.
type SlotChange struct {
	Entity, Resource, Limit string
	Slots                   int64
	Fate                    SlotFate
}

// A SlotFate says what became of slots.
type SlotFate uint8

// The fates of slots. Each that is taken is given back or lost later, once.
const (
	SlotsTaken     SlotFate = iota
	SlotsGivenBack          // or free by themselves within two terms, where no write could give them back
	SlotsLost               // as the holder is notified
)

// note notes what became of a hold, which [tender.tellSlots] reports. The tended slots are locked.
func (d *tended) note(h *Hold, fate SlotFate) {
	d.news = append(d.news, SlotChange{h.bucket.Entity, h.bucket.Resource, h.limit, h.amount, fate})
}

// tellSlots counts what became of slots of a bucket since the last call, and reports it. The tended slots are not locked.
func (td *tender) tellSlots(ctx context.Context, b *Bucket) {
	d := &b.tended
	d.mu.Lock()
	news := d.news
	d.news = nil
	d.mu.Unlock()
	for _, n := range news {
		switch n.Fate {
		case SlotsTaken:
			td.SlotsHeld.Add(n.Slots)
			td.SlotsTaken.Add(uint64(n.Slots))
		case SlotsLost:
			td.SlotsHeld.Add(-n.Slots)
			td.SlotsLost.Add(uint64(n.Slots))
		case SlotsGivenBack:
			td.SlotsHeld.Add(-n.Slots)
		}
		if td.options.SlotsChanged != nil {
			td.options.SlotsChanged(ctx, n)
		}
	}
}
