package protocol

import "context"

// A SlotChange reports what happened to slots of this process.
type SlotChange struct {
	Entity, Resource, Limit string
	Slots                   int64
	Fate                    SlotFate
}

// A SlotFate is what happened to slots.
type SlotFate uint8

// The fates of slots. Each slot that is taken is later either released or lost, once.
const (
	SlotsTaken     SlotFate = iota
	SlotsGivenBack          // or no write could release them, and they become free within two terms
	SlotsLost               // the holder is notified
)

// note notes the fate of a hold, which [slotKeeper.reportSlots] reports. The tended slots are locked.
func (d *tended) note(h *Hold, fate SlotFate) {
	d.news = append(d.news, SlotChange{h.bucket.Entity, h.bucket.Resource, h.limit, h.amount, fate})
}

// reportSlots counts and reports the fates of slots of a bucket since the last call. The tended slots are not locked.
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
