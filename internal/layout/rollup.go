package layout

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/store"
)

// A Carried is the part of an hour's figures that its day and its month get when the hour ends.
type Carried struct {
	Events   int64           // changes
	Consumed []bucket.Amount // of each limit, net, sorted by name
}

// carriedText is the form of a Carried in an item.
type carriedText struct {
	Events   int64            `json:"events"`
	Consumed map[string]int64 `json:"consumed"` // millitokens
	Children map[string]int64 `json:"children,omitempty"`
	Narrower map[string]int64 `json:"narrower,omitempty"`
}

// ParseCarried returns the amounts in a text of [Usage.Carried]; none for "".
func ParseCarried(text string) (Carried, error) {
	if text == "" {
		return Carried{}, nil
	}
	var t carriedText
	if err := json.Unmarshal([]byte(text), &t); err != nil {
		return Carried{}, fmt.Errorf("rollup_carried: %w", err)
	}
	c := Carried{Events: t.Events}
	for _, limit := range slices.Sorted(maps.Keys(t.Consumed)) {
		c.Consumed = append(c.Consumed, bucket.Amount{
			Limit: limit, Tokens: t.Consumed[limit], FromChildren: t.Children[limit], FromNarrower: t.Narrower[limit],
		})
	}
	return c, nil
}

// Text returns the text of [Usage.Carried].
func (c *Carried) Text() string {
	t := carriedText{Events: c.Events, Consumed: make(map[string]int64, len(c.Consumed))}
	for _, a := range c.Consumed {
		t.Consumed[a.Limit] = a.Tokens
		note(&t.Children, a.Limit, a.FromChildren)
		note(&t.Narrower, a.Limit, a.FromNarrower)
	}
	text, _ := json.Marshal(t) // numbers and names always have a form
	return string(text)
}

// note puts the figure of a limit into a map, which is made for the first one; 0 is left out.
func note(to *map[string]int64, limit string, figure int64) {
	if figure == 0 {
		return
	}
	if *to == nil {
		*to = map[string]int64{}
	}
	(*to)[limit] = figure
}

// Plus returns the sum of carried amounts and changes; false when it does not fit 64 bits.
func (c *Carried) Plus(d *UsageDelta) (Carried, bool) {
	sums, err := bucket.Sum(c.Consumed, d.Consumed)
	slices.SortFunc(sums, func(a, b bucket.Amount) int { return strings.Compare(a.Limit, b.Limit) })
	return Carried{Events: c.Events + d.Events, Consumed: sums}, err == nil
}

// An HourState is the state that a write of an hour of usage asks for.
type HourState struct {
	Exists  bool
	Carried string // as the item has it; "" for an hour that carries nothing
	Closed  bool
}

// HourStateOf returns the state of the item of an hour, nil for none.
func HourStateOf(snapshot expr.Item) HourState {
	return HourState{
		Exists:  snapshot != nil,
		Carried: snapshot.Get(AttrUsageCarried).Text(),
		Closed:  snapshot.Get(AttrUsageClosed).Kind() != expr.KindNone,
	}
}

// Carry returns the write that adds the changes to the snapshot of an hour and to its carried amounts. Its condition:
// the snapshot contains none of them, and the hour is as it was seen, not closed. The hour expires when [WriteClose]
// says so.
func (d *UsageDelta) Carry(seen HourState, carried Carried) (store.Write, error) {
	key := d.key()
	call := CarryUsage(key, d.Window, FormatTime(d.Start), d.Events, carried.Text())
	consume(call, d.Consumed)
	for _, s := range d.Shards {
		call.Follow(strconv.Itoa(s.Shard), string(s.First), string(s.Last))
	}
	d.list(call, key)
	if seen.Exists {
		call.Proceed(seen.Carried)
	} else {
		call.Begin()
	}
	bound, err := call.Bind()
	return store.Write{Kind: store.Update, Key: key.Key(), Expr: bound}, err
}

// WriteClose returns the write that closes an hour at a time, given the key of its snapshot. From then on the snapshot expires
// at another time, in epoch seconds, or never for 0.
func WriteClose(key store.Key, at time.Time, expiresAt int64) (store.Write, error) {
	call := CloseHour(FormatTime(at))
	if expiresAt > 0 {
		call.Expire(expiresAt)
	}
	bound, err := call.Bind()
	return store.Write{Kind: store.Update, Key: key, Expr: bound}, err
}

// An HourDelta is the addition of an hour to the snapshot of its day or its month.
type HourDelta struct {
	NS, Entity, Resource string
	Window               string    // daily or monthly
	Start                time.Time // of the window
	Hour                 time.Time // start of the hour
	Kept
	Carried Carried
}

// Write returns the write that adds the hour to the snapshot. Its condition: the snapshot contains the hours of the day
// that were seen, see [HoursContained]. These must not contain the hour.
func (d *HourDelta) Write(seen string) (store.Write, error) {
	key := UsageKey{NS: d.NS, Entity: d.Entity, Resource: d.Resource, WindowKey: WindowKey(d.Window, d.Start)}
	bits, err := hourBits(seen)
	if err != nil {
		return store.Write{}, err
	}
	contained := fmt.Sprintf("%06x", bits|hourBit(d.Hour))
	call := AddHour(key, d.Window, FormatTime(d.Start), d.Carried.Events)
	consume(call, d.Carried.Consumed)
	d.say(call, key)
	if day := dayOf(d.Hour); seen == "" {
		call.First(day, contained)
	} else {
		call.Later(day, seen, contained)
	}
	bound, err := call.Bind()
	return store.Write{Kind: store.Update, Key: key.Key(), Expr: bound}, err
}

// HoursContained returns the hours contained in the snapshot of a day or a month, for the day of one hour; "" for none.
func HoursContained(snapshot expr.Item, hour time.Time) string {
	return snapshot.Get(AttrUsageHoursContained.Name(dayOf(hour))).Text()
}

// ContainsHour reports whether hours of a day, as an item has them, contain one.
func ContainsHour(hours string, hour time.Time) (bool, error) {
	bits, err := hourBits(hours)
	return bits&hourBit(hour) != 0, err
}

// hourBits returns the hours that a text says.
func hourBits(text string) (uint32, error) {
	if text == "" {
		return 0, nil
	}
	bits, err := strconv.ParseUint(text, 16, 24)
	if err != nil {
		return 0, fmt.Errorf("hours of a day: %w", err)
	}
	return uint32(bits), nil
}

func hourBit(hour time.Time) uint32 { return 1 << hour.UTC().Hour() }

func dayOf(hour time.Time) string { return fmt.Sprintf("%02d", hour.UTC().Day()) }
