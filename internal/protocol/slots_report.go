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

// note notes what became of a hold, which [slotKeeper.reportSlots] reports. The tended slots are locked.
func (d *tended) note(h *Hold, fate SlotFate) {
	d.news = append(d.news, SlotChange{h.bucket.Entity, h.bucket.Resource, h.limit, h.amount, fate})
}

// reportSlots counts what became of slots of a bucket since the last call, and reports it. The tended slots are not locked.
func (sk *slotKeeper) reportSlots(ctx context.Context, b *Bucket) {
	d := &b.tended
	d.mu.Lock()
	news := d.news
	d.news = nil
	d.mu.Unlock()
	for _, n := range news {
		switch n.Fate {
		case SlotsTaken:
			sk.SlotsHeld.Add(n.Slots)
			sk.SlotsTaken.Add(uint64(n.Slots))
		case SlotsLost:
			sk.SlotsHeld.Add(-n.Slots)
			sk.SlotsLost.Add(uint64(n.Slots))
		case SlotsGivenBack:
			sk.SlotsHeld.Add(-n.Slots)
		}
		if sk.options.SlotsChanged != nil {
			sk.options.SlotsChanged(ctx, n)
		}
	}
}
