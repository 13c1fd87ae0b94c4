package explore

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/soak"
	"github.com/zlimit/zlimit-go/zlimit"
)

// limits returns the limits of an entity.
func limits(l ...zlimit.Limit) []zlimit.Limit { return l }

func rpm(n int64) zlimit.Amounts { return zlimit.Amounts{"rpm": n} }

// A showing is a program that shows a defect, and the broken rule.
type showing struct {
	defect  string
	rule    string
	program Program
}

// pending are programs that show defects which the limiter has. An order of each breaks its rule, and no sweep is held to the
// rule where faults of the same kind may happen. With the defect mended, its program is no longer found, and goes to known.
var pending []showing

// tolerated returns the rules not held against a program with some faults. A pending program with no other faults
// breaks them.
func tolerated(faults Faults) (rules []string) {
	for _, k := range pending {
		if !slices.ContainsFunc(k.program.Faults.Fates, func(f Fate) bool { return !slices.Contains(faults.Fates, f) }) {
			rules = append(rules, k.rule)
		}
	}
	return rules
}

// known are programs that each show a former defect of the limiter, and the broken rule. No order breaks any.
var known = []showing{
	{"a rejection never brings an item in line with raised limits", "in line", Program{
		Initial: Initial{Limits: map[string][]zlimit.Limit{"c": limits(zlimit.PerSecond("rpm", 10))}},
		Actors: []Actor{
			{Process: 0, Ops: []Op{{Kind: Set, Entity: "c", Limits: limits(zlimit.PerSecond("rpm", 1000))}}},
			{Process: 1, Ops: []Op{{Kind: Take, Entity: "c", Amounts: rpm(1)}}},
		},
	}},
	{"a lowered rate takes no effect on an empty bucket", "in line", Program{
		Initial: Initial{Limits: map[string][]zlimit.Limit{"c": limits(zlimit.PerMinute("rpm", 60))}},
		Actors: []Actor{
			{Process: 0, Ops: []Op{{Kind: Set, Entity: "c", Limits: limits(zlimit.PerDay("rpm", 60))}}},
			{Process: 1, Ops: []Op{{Kind: Take, Entity: "c", Amounts: rpm(60)}}},
		},
	}},
	{"a session is handed out twice in one millisecond, where one of three quotas stays closed", "minted", Program{
		Initial: Initial{Timed: true, Limits: map[string][]zlimit.Limit{"c": {
			zlimit.Session("rpm", 10, length), zlimit.Session("tpm", 10, length), zlimit.Session("upm", 10, length),
		}}},
		Actors: []Actor{
			{Process: 0, Warm: []Op{{Kind: Take, Entity: "c", Amounts: rpm(1)}}, Ops: []Op{{Kind: Take, Entity: "c", Amounts: zlimit.Amounts{"tpm": 6}}}},
			{Process: 1, Warm: []Op{{Kind: Take, Entity: "c", Amounts: rpm(1)}}, Ops: []Op{{Kind: Take, Entity: "c", Amounts: zlimit.Amounts{"tpm": 6}}}},
		},
	}},
	{"a conflict fails a plain write", "error", Program{
		Initial: Initial{Limits: map[string][]zlimit.Limit{"c": limits(zlimit.PerHour("rpm", 10))}},
		Faults:  Faults{Fates: []Fate{Conflict}, Most: 1},
		Actors: []Actor{
			{Process: 0, Ops: []Op{{Kind: Take, Entity: "c", Amounts: rpm(1)}, {Kind: Adjust, Amounts: rpm(2)}}},
			{Process: 1, Ops: []Op{{Kind: Take, Entity: "c", Amounts: rpm(1)}, {Kind: Rollback}}},
		},
	}},
	{"a rejection counts the tokens of a shard that was merged", "rejection", Program{
		Initial: Initial{Limits: map[string][]zlimit.Limit{"c": limits(zlimit.PerDay("rpm", 10))}},
		Actors: []Actor{
			{
				Process: 0, Warm: []Op{{Kind: Take, Entity: "c", Amounts: rpm(1)}, {Kind: Split, Entity: "c"}},
				Ops: []Op{{Kind: Merge, Entity: "c"}, {Kind: Take, Entity: "c", Amounts: rpm(6)}},
			},
			{
				Process: 1, Warm: []Op{{Kind: Take, Entity: "c", Amounts: rpm(1)}, {Kind: Take, Entity: "c", Amounts: rpm(5)}, {Kind: Rollback}},
				Ops: []Op{{Kind: Take, Entity: "c", Amounts: rpm(5)}},
			},
		},
	}},
	{"a lease gives back to a parent what it never took", "return", Program{
		Initial: Initial{Family: true, Limits: map[string][]zlimit.Limit{
			"":  limits(zlimit.PerHour("rpm", 100), zlimit.PerHour("tpm", 1000)),
			"p": limits(zlimit.PerHour("rpm", 100)),
		}},
		Actors: []Actor{
			{Process: 0, Ops: []Op{
				{Kind: Set, Entity: "p", Limits: limits(zlimit.PerHour("rpm", 100), zlimit.PerHour("tpm", 1000))},
				{Kind: Take, Entity: "d", Amounts: zlimit.Amounts{"rpm": 1, "tpm": 10}},
			}},
			{Process: 1, Warm: []Op{{Kind: Take, Entity: "c", Amounts: rpm(1)}, {Kind: Rest, For: 2 * time.Second}}, Ops: []Op{
				{Kind: Take, Entity: "c", Amounts: zlimit.Amounts{"rpm": 1, "tpm": 100}},
				{Kind: Adjust, Amounts: zlimit.Amounts{"tpm": -100}},
			}},
		},
	}},
	{"a split bucket loses refill", "lost refill", Program{
		Initial: Initial{Limits: map[string][]zlimit.Limit{"c": limits(zlimit.PerSecond("rpm", 1000, zlimit.Burst(10_000)))}},
		Actors: []Actor{
			{
				Process: 0, Warm: []Op{{Kind: Take, Entity: "c", Amounts: rpm(1)}, {Kind: Split, Entity: "c"}, {Kind: Rest, For: 20 * time.Second}},
				Ops: []Op{{Kind: Take, Entity: "c", Amounts: rpm(4900)}, {Kind: Rest, For: 4 * time.Second}, {Kind: Take, Entity: "c", Amounts: rpm(8500)}}, // not what flows in within a second of the take
			},
		},
	}},
	{"a wait is reported from what is remembered of a parent", "wait", Program{
		Initial: Initial{Family: true, Limits: map[string][]zlimit.Limit{
			"c": limits(zlimit.PerMinute("rpm", 10)), "d": limits(zlimit.PerMinute("rpm", 10)), "p": limits(zlimit.PerDay("rpm", 20)),
		}},
		Actors: []Actor{
			{Process: 0, Ops: []Op{{Kind: Take, Entity: "d", Amounts: rpm(10)}}},
			{Process: 1, Warm: []Op{{Kind: Take, Entity: "c", Amounts: rpm(1)}}, Ops: []Op{{Kind: Take, Entity: "c", Amounts: rpm(9)}}},
		},
	}},
	{"a request is invalid because its parent loses a limit", "error", Program{
		Initial: Initial{Family: true, Limits: map[string][]zlimit.Limit{
			"":  limits(zlimit.PerHour("rpm", 100), zlimit.PerHour("tpm", 1000)),
			"p": limits(zlimit.PerHour("rpm", 100), zlimit.PerHour("tpm", 1000)),
		}},
		Actors: []Actor{
			{Process: 0, Ops: []Op{
				{Kind: Set, Entity: "p", Limits: limits(zlimit.PerHour("rpm", 100))},
				{Kind: Take, Entity: "d", Amounts: rpm(1)},
			}},
			{Process: 1, Warm: []Op{{Kind: Take, Entity: "c", Amounts: rpm(1)}, {Kind: Rest, For: 2 * time.Second}}, Ops: []Op{
				{Kind: Take, Entity: "c", Amounts: zlimit.Amounts{"rpm": 1, "tpm": 100}},
			}},
		},
	}},
	{"a rejected request is admitted because giving back met an outage", "degraded", Program{
		Initial: Initial{Family: true, Limits: map[string][]zlimit.Limit{"": limits(zlimit.PerDay("rpm", 10)), "p": limits(zlimit.PerDay("rpm", 10))}},
		Faults:  Faults{Fates: []Fate{Throttle}, Most: 1},
		Actors: []Actor{
			{Process: 0, Ops: []Op{{Kind: Take, Entity: "d", Amounts: rpm(9)}}},
			{Process: 1, Warm: []Op{{Kind: Take, Entity: "c", Amounts: rpm(1)}}, Ops: []Op{{Kind: Take, Entity: "c", Amounts: rpm(2), Allow: true}}},
		},
	}},
	{"a raised limit of a parent never takes effect", "in line", Program{
		Initial: Initial{Family: true, Limits: map[string][]zlimit.Limit{"": limits(zlimit.PerDay("rpm", 10)), "p": limits(zlimit.PerDay("rpm", 10))}},
		Actors: []Actor{
			{Process: 0, Ops: []Op{{Kind: Set, Entity: "p", Limits: limits(zlimit.PerDay("rpm", 10, zlimit.Burst(20)))}}},
			{Process: 1, Ops: []Op{{Kind: Take, Entity: "c", Amounts: rpm(8)}}},
		},
	}},
	{"a raised rate never takes effect on a bucket in debt", "in line", Program{
		Initial: Initial{Limits: map[string][]zlimit.Limit{"c": limits(zlimit.PerDay("rpm", 10))}},
		Actors: []Actor{
			{Process: 0, Ops: []Op{{Kind: Set, Entity: "c", Limits: limits(zlimit.PerMinute("rpm", 10))}}},
			{Process: 1, Ops: []Op{{Kind: Take, Entity: "c", Amounts: rpm(8)}, {Kind: Adjust, Amounts: rpm(8)}}},
		},
	}},
	{"limits that are read again lag, and undo a change", "back", Program{
		Initial: Initial{Limits: map[string][]zlimit.Limit{"c": limits(zlimit.PerDay("rpm", 10))}},
		Faults:  Faults{Fates: []Fate{Lag}, Most: 1},
		Actors: []Actor{
			{Process: 0, Ops: []Op{set("c", zlimit.PerDay("rpm", 20)), take("c", 1)}},
			{Process: 1, Warm: []Op{take("c", 1), rest(2 * time.Second)}, Ops: []Op{take("c", 1)}},
		},
	}},
	{"a gather undoes a change of limits", "back", Program{
		Initial: Initial{Limits: map[string][]zlimit.Limit{"c": limits(zlimit.PerDay("rpm", 10))}},
		Actors: []Actor{
			{
				Process: 0, Warm: []Op{take("c", 1), {Kind: Split, Entity: "c"}},
				Ops: []Op{set("c", zlimit.PerDay("rpm", 20)), take("c", 1)},
			},
			{Process: 1, Warm: []Op{take("c", 1), rest(2 * time.Second)}, Ops: []Op{take("c", 6)}},
		},
	}},
	{"what is taken after a change of limits is taken for the change, and lost", "charge", Program{
		Initial: Initial{Family: true, Limits: map[string][]zlimit.Limit{
			"": limits(zlimit.PerDay("rpm", 10), zlimit.PerDay("tpm", 100)), "p": limits(zlimit.PerDay("rpm", 12), zlimit.PerDay("tpm", 100)),
		}},
		Actors: []Actor{
			{Process: 0, Ops: []Op{takeBoth("c")}},
			{Process: 1, Ops: []Op{
				takeBoth("c"), set("p", zlimit.PerDay("rpm", 20), zlimit.PerDay("tpm", 100), zlimit.PerDay("ppm", 10)), takeBoth("c"),
			}},
		},
	}},
	{"raised limits of requests never take effect", "wait", Program{
		Initial: Initial{Limits: map[string][]zlimit.Limit{"c": limits(zlimit.PerSecond("rpm", 10))}},
		Actors: []Actor{
			{Process: 0, Ops: []Op{
				{Kind: Take, Entity: "c", Amounts: rpm(10)},
				{Kind: Take, Entity: "c", Amounts: rpm(500), Own: limits(zlimit.PerSecond("rpm", 1000)), Insist: true},
			}},
		},
	}},
	{"a request for slots of a divided bucket is refused by no slots that a reading shows, and tries again and again", "error", Program{
		Initial: Initial{Limits: map[string][]zlimit.Limit{"c": limits(zlimit.PerDay("rpm", 10), slotsOf(2))}},
		Actors: []Actor{
			{Process: 0, Warm: []Op{holdAnd(1), {Kind: Split, Entity: "c"}}, Ops: []Op{holdAnd(2)}},
			{Process: 1, Warm: []Op{take("c", 1)}, Ops: []Op{holdAnd(2)}},
		},
	}},
	{"the limits of a bucket are read again between two requests that are admitted together, which fail", "error", Program{
		Initial: Initial{Family: true, Limits: map[string][]zlimit.Limit{
			"": limits(zlimit.PerDay("rpm", 10), zlimit.PerDay("tpm", 100)), "p": limits(zlimit.PerDay("rpm", 12), zlimit.PerDay("tpm", 100)),
		}},
		Actors: []Actor{
			{Process: 0, Ops: []Op{asking(takeBoth("c"), takeBoth("d"))}},
			{Process: 0, Ops: []Op{set("p", zlimit.PerDay("rpm", 12))}},
		},
	}},
	{"a conflict fails all requests that share a write", "error", Program{
		Initial: Initial{Coalescing: true, Limits: map[string][]zlimit.Limit{"c": limits(zlimit.PerHour("rpm", 10))}},
		Faults:  Faults{Fates: []Fate{Conflict}, Most: 1},
		Actors: []Actor{
			{Process: 0, Warm: []Op{{Kind: Take, Entity: "c", Amounts: rpm(1)}}, Ops: []Op{{Kind: Take, Entity: "c", Amounts: rpm(1)}}},
			{Process: 0, Ops: []Op{{Kind: Take, Entity: "c", Amounts: rpm(1)}}},
			{Process: 0, Ops: []Op{{Kind: Take, Entity: "c", Amounts: rpm(1)}}},
		},
	}},
	{"large and small requests that share a write: one is rejected that fits", "unjustified", Program{
		Initial: Initial{Coalescing: true, Limits: map[string][]zlimit.Limit{"c": limits(zlimit.PerDay("rpm", 10))}},
		Actors: []Actor{
			{Process: 0, Warm: []Op{{Kind: Take, Entity: "c", Amounts: rpm(1)}}, Ops: []Op{{Kind: Take, Entity: "c", Amounts: rpm(1)}}},
			{Process: 0, Ops: []Op{{Kind: Take, Entity: "c", Amounts: rpm(7)}}},
			{Process: 0, Ops: []Op{{Kind: Take, Entity: "c", Amounts: rpm(2)}}},
			{Process: 1, Ops: []Op{{Kind: Take, Entity: "c", Amounts: rpm(1)}}},
		},
	}},
	{"two writes of their own under way beside one that is shared, which takes too much", "charge", Program{
		Initial: Initial{Coalescing: true, AtOnce: 2, Limits: map[string][]zlimit.Limit{"c": limits(zlimit.PerDay("rpm", 10))}},
		Actors: []Actor{
			{Process: 0, Warm: []Op{{Kind: Take, Entity: "c", Amounts: rpm(1)}}, Ops: []Op{{Kind: Take, Entity: "c", Amounts: rpm(2)}}},
			{Process: 0, Ops: []Op{{Kind: Take, Entity: "c", Amounts: rpm(3)}, {Kind: Rollback}}},
			{Process: 0, Ops: []Op{{Kind: Take, Entity: "c", Amounts: rpm(4)}}},
			{Process: 0, Ops: []Op{{Kind: Take, Entity: "c", Amounts: rpm(5)}}},
		},
	}},
	{"what is given back to a split bucket is lost", "lost refill", Program{
		Initial: Initial{Limits: map[string][]zlimit.Limit{"c": limits(zlimit.PerDay("rpm", 10))}},
		Actors: []Actor{
			{Process: 0, Warm: []Op{{Kind: Take, Entity: "c", Amounts: rpm(1)}}, Ops: []Op{{Kind: Rollback}, {Kind: Take, Entity: "c", Amounts: rpm(10)}}},
			{Process: 1, Ops: []Op{{Kind: Split, Entity: "c"}}},
		},
	}},
	{"shards that are read one after another are rejected while they are merged", "unjustified", Program{
		Initial: Initial{Limits: map[string][]zlimit.Limit{"c": limits(zlimit.PerDay("rpm", 10))}},
		Actors: []Actor{
			{
				Process: 0, Warm: []Op{{Kind: Take, Entity: "c", Amounts: rpm(1)}, {Kind: Split, Entity: "c"}},
				Ops: []Op{{Kind: Take, Entity: "c", Amounts: rpm(4)}},
			},
			{
				Process: 1, Warm: []Op{{Kind: Take, Entity: "c", Amounts: rpm(1)}, {Kind: Take, Entity: "c", Amounts: rpm(5)}, {Kind: Rollback}},
				Ops: []Op{{Kind: Merge, Entity: "c"}},
			},
		},
	}},
	{"shards that are read one after another are rejected while they are merged and split", "unjustified", Program{
		Initial: Initial{Limits: map[string][]zlimit.Limit{"c": limits(zlimit.PerDay("rpm", 10))}},
		Actors: []Actor{
			{
				Process: 0, Warm: []Op{take("c", 1), {Kind: Split, Entity: "c"}},
				Ops: []Op{take("c", 4), take("c", 4)},
			},
			{Process: 1, Ops: []Op{{Kind: Merge, Entity: "c"}, {Kind: Split, Entity: "c"}}},
		},
	}},
	{"shards that are read one after another are rejected while tokens come back to one", "unjustified", Program{
		Initial: Initial{Limits: map[string][]zlimit.Limit{"c": limits(zlimit.PerDay("rpm", 10))}},
		Actors: []Actor{
			{
				Process: 0, Warm: []Op{take("c", 1), {Kind: Split, Entity: "c"}},
				Ops: []Op{take("c", 4)},
			},
			{
				Process: 1, Warm: []Op{take("c", 4)},
				Ops: []Op{{Kind: Rollback}, take("c", 4)},
			},
		},
	}},
	{"shards that two goroutines read are rejected while tokens come back to one", "unjustified", Program{
		Initial: Initial{Limits: map[string][]zlimit.Limit{"c": limits(zlimit.PerDay("rpm", 10))}},
		Actors: []Actor{
			{Process: 0, Warm: []Op{take("c", 1), {Kind: Split, Entity: "c"}}, Ops: []Op{take("c", 4)}},
			{Process: 0, Ops: []Op{take("c", 4)}},
			{Process: 1, Warm: []Op{take("c", 4)}, Ops: []Op{{Kind: Rollback}, take("c", 4)}},
		},
	}},
	{"a gather takes by limits that another process replaced while the shards were brought in line", "back", Program{
		Initial: Initial{Limits: map[string][]zlimit.Limit{"c": limits(zlimit.PerDay("rpm", 10))}},
		Actors: []Actor{
			{
				Process: 0, Warm: []Op{take("c", 1), {Kind: Split, Entity: "c"}},
				Ops: []Op{set("c", zlimit.PerDay("rpm", 20)), take("c", 8)},
			},
			{Process: 1, Ops: []Op{set("c", zlimit.PerDay("rpm", 6)), take("c", 4)}},
		},
	}},
	{"shards are merged and split while they are brought in line, again and again from what was read before", "error", Program{
		Initial: Initial{Limits: map[string][]zlimit.Limit{"c": limits(zlimit.PerDay("rpm", 10))}},
		Actors: []Actor{
			{
				Process: 0, Warm: []Op{take("c", 1), {Kind: Split, Entity: "c"}},
				Ops: []Op{set("c", zlimit.PerDay("rpm", 20)), take("c", 8)},
			},
			{Process: 1, Ops: []Op{{Kind: Merge, Entity: "c"}, {Kind: Split, Entity: "c"}}},
		},
	}},
	{"a call that began long before it read the shard sets the refill stamp back", "stamp", Program{
		Initial: Initial{Limits: map[string][]zlimit.Limit{"c": limits(zlimit.PerDay("rpm", 10))}},
		Actors: []Actor{ // the orders in which the first one is held back come first
			{Process: 0, Ops: []Op{take("c", 2)}},
			{
				Process: 1, Warm: []Op{take("c", 1), {Kind: Split, Entity: "c"}},
				Ops: []Op{take("c", 8), rest(11 * time.Second), {Kind: Rollback}},
			},
		},
	}},
	{"a lowered rate holds for the one shard that was met", "shard by shard", Program{
		Initial: Initial{Limits: map[string][]zlimit.Limit{"c": limits(zlimit.PerSecond("rpm", 10))}},
		Actors: []Actor{
			{
				Process: 0, Warm: []Op{take("c", 8), {Kind: Split, Entity: "c"}},
				Ops: []Op{set("c", zlimit.PerDay("rpm", 10)), take("c", 1), rest(2 * time.Second)},
			},
		},
	}},
	{"a raised rate holds for the one shard that was met", "shard by shard", Program{
		Initial: Initial{Limits: map[string][]zlimit.Limit{"c": limits(zlimit.PerDay("rpm", 10))}},
		Actors: []Actor{
			{
				Process: 0, Warm: []Op{take("c", 8), {Kind: Split, Entity: "c"}},
				Ops: []Op{set("c", zlimit.PerSecond("rpm", 10)), take("c", 1), rest(2 * time.Second)},
			},
		},
	}},
	{"limits that are changed and changed back do not bind the process that knew the bucket by them", "in line", Program{
		Initial: Initial{Limits: map[string][]zlimit.Limit{"c": limits(zlimit.PerDay("rpm", 10))}},
		Actors: []Actor{
			{Process: 0, Warm: []Op{take("c", 1)}, Ops: []Op{take("c", 1)}},
			{
				Process: 1, Warm: []Op{set("c", zlimit.PerMinute("rpm", 10)), take("c", 1)},
				Ops: []Op{set("c", zlimit.PerDay("rpm", 10))},
			},
		},
	}},
	{"what a lowered capacity cut is there again", "shard by shard", Program{
		Initial: Initial{Limits: map[string][]zlimit.Limit{"c": limits(zlimit.PerDay("rpm", 10))}},
		Actors: []Actor{
			{
				Process: 0, Warm: []Op{take("c", 1), {Kind: Split, Entity: "c"}},
				Ops: []Op{set("c", zlimit.PerDay("rpm", 2)), take("c", 1), set("c", zlimit.PerDay("rpm", 20)), take("c", 1)},
			},
		},
	}},
	{"an item that cannot be decoded fails what was written", "error", Program{
		Initial: Initial{Limits: map[string][]zlimit.Limit{"c": limits(zlimit.PerDay("rpm", 10))}},
		Faults:  Faults{Fates: []Fate{Garbled}, Most: 1},
		Actors:  []Actor{{Process: 0, Warm: []Op{take("c", 1)}, Ops: []Op{take("c", 1)}}},
	}},
	{"what is given back after a split is lost beyond the shard's share", "lost", Program{
		Initial: Initial{Limits: map[string][]zlimit.Limit{"c": limits(zlimit.PerDay("rpm", 10))}},
		Actors: []Actor{
			{Process: 0, Warm: []Op{take("c", 5)}, Ops: []Op{{Kind: Rollback}}},
			{Process: 1, Ops: []Op{{Kind: Split, Entity: "c"}}},
		},
	}},
	{"a commit of less than was taken loses it after a split", "lost", Program{
		Initial: Initial{Limits: map[string][]zlimit.Limit{"c": limits(zlimit.PerDay("rpm", 10))}},
		Actors: []Actor{
			{Process: 0, Warm: []Op{take("c", 2)}, Ops: []Op{adjust(-2)}},
			{Process: 1, Ops: []Op{{Kind: Split, Entity: "c"}}},
		},
	}},
	{"what was taken of a limit comes back to the one that was made anew", "given twice", Program{
		Initial: Initial{Limits: map[string][]zlimit.Limit{"c": limits(zlimit.PerDay("rpm", 10), zlimit.PerDay("tpm", 100))}},
		Actors: []Actor{
			{Process: 0, Warm: []Op{takeBoth("c")}, Ops: []Op{{Kind: Rollback}}},
			{
				Process: 1, Warm: []Op{set("c", zlimit.PerDay("rpm", 10)), take("c", 1)},
				Ops: []Op{set("c", zlimit.PerDay("rpm", 10), zlimit.PerDay("tpm", 100)), takeBoth("c")},
			},
		},
	}},
	{"what was taken of a deleted entity comes back to the bucket that was made anew", "given twice", Program{
		Initial: Initial{Limits: map[string][]zlimit.Limit{"": limits(zlimit.PerDay("rpm", 10))}},
		Actors: []Actor{
			{Process: 0, Warm: []Op{take("c", 2)}, Ops: []Op{{Kind: Rollback}}},
			{Process: 1, Ops: []Op{{Kind: Delete, Entity: "c"}, take("c", 4)}},
		},
	}},
	{"a reply from before the bucket, which comes late, drops what is given back", "settle", Program{
		Initial: Initial{Limits: map[string][]zlimit.Limit{"c": limits(zlimit.PerDay("rpm", 10))}},
		Faults:  Faults{Fates: []Fate{LateReply}, Most: 1},
		Actors: []Actor{
			{Process: 0, Ops: []Op{take("c", 5), {Kind: Rollback}}},
			{Process: 0, Ops: []Op{{Kind: Look, Entity: "c"}}},
		},
	}},
	{"a shard that was missing long ago is taken for lost in a read that is torn", "unjustified", Program{
		Initial: Initial{Limits: map[string][]zlimit.Limit{"c": limits(zlimit.PerDay("rpm", 10))}},
		Faults:  Faults{Fates: []Fate{Torn}, Most: 1},
		Actors: []Actor{
			{
				Process: 0,
				Warm:    []Op{take("c", 1), {Kind: Split, Entity: "c"}, take("c", 8), {Kind: Merge, Entity: "c"}, {Kind: Rollback}},
				Ops:     []Op{take("c", 7)},
			},
			{Process: 1, Ops: []Op{{Kind: Split, Entity: "c"}, {Kind: Merge, Entity: "c"}}},
		},
	}},
	{"a rejected request keeps what it took of a child, since giving it back was throttled", "kept", Program{
		Initial: Initial{Family: true, Limits: map[string][]zlimit.Limit{"": limits(zlimit.PerDay("rpm", 10)), "p": limits(zlimit.PerDay("rpm", 10))}},
		Faults:  Faults{Fates: []Fate{Throttle}, Most: 1},
		Actors: []Actor{
			{Process: 0, Ops: []Op{take("d", 9)}},
			{Process: 1, Warm: []Op{take("c", 1)}, Ops: []Op{take("c", 2)}},
		},
	}},
	{"a change of limits that failed on one of two shards is never completed", "in line", Program{
		Initial: Initial{Limits: map[string][]zlimit.Limit{"c": limits(zlimit.PerDay("rpm", 10))}},
		Faults:  Faults{Fates: []Fate{Conflict, Throttle}, Most: 2},
		Actors: []Actor{
			{
				Process: 0, Warm: []Op{take("c", 1), {Kind: Split, Entity: "c"}},
				Ops: []Op{set("c", zlimit.PerDay("rpm", 20)), take("c", 1), take("c", 1)},
			},
		},
	}},
	{"what is given back to a split bucket ends with an untyped error while its write is under way for long", "error", Program{
		Initial: Initial{Limits: map[string][]zlimit.Limit{"c": limits(zlimit.PerDay("rpm", 10))}},
		Actors: []Actor{
			{Process: 0, Warm: []Op{take("c", 1), {Kind: Split, Entity: "c"}}, Ops: []Op{adjust(-1)}},
			{Process: 1, Ops: []Op{rest(11 * time.Second)}},
		},
	}},
	{"a throttle of which the store tells no reason fails a request of a scarce bucket, whatever the failure policy", "error", Program{
		Initial: Initial{Limits: map[string][]zlimit.Limit{"c": limits(zlimit.PerDay("rpm", 10))}},
		Faults:  Faults{Fates: []Fate{Throttle}, Most: 1},
		Actors: []Actor{
			{
				Process: 0, Warm: []Op{take("c", 1), {Kind: Split, Entity: "c"}},
				Ops: []Op{{Kind: Take, Entity: "c", Amounts: rpm(4), Allow: true}},
			},
			{
				Process: 1, Warm: []Op{take("c", 1), take("c", 5), {Kind: Rollback}},
				Ops: []Op{{Kind: Merge, Entity: "c"}},
			},
		},
	}},
	{"after one throttled look and a pause, a split bucket is rejected by what was seen before", "wait", Program{
		Initial: Initial{Limits: map[string][]zlimit.Limit{"c": limits(zlimit.PerSecond("rpm", 10))}},
		Faults:  Faults{Fates: []Fate{Throttle}, Most: 1},
		Actors: []Actor{
			{Process: 0, Warm: []Op{take("c", 8), {Kind: Split, Entity: "c"}}, Ops: []Op{take("c", 1)}},
			{Process: 1, Warm: []Op{take("c", 1)}, Ops: []Op{set("c", zlimit.PerDay("rpm", 10)), take("c", 1)}},
		},
	}},
	{"after a throttled look, a split bucket is rejected by shards that were seen long before", "wait", Program{
		Initial: Initial{Memory: time.Second, Limits: map[string][]zlimit.Limit{"c": limits(zlimit.PerDay("rpm", 8))}},
		Faults:  Faults{Fates: []Fate{Throttle}, Most: 1},
		Actors: []Actor{
			{Process: 0, Warm: []Op{take("c", 2), {Kind: Split, Entity: "c", Twice: true}}, Ops: []Op{{Kind: Rollback}}},
			{Process: 1, Warm: []Op{take("c", 2)}, Ops: []Op{take("c", 2)}},
		},
	}},
	{"a request that a view of all shards covers is judged by the time when it came, and ends as contended", "error", Program{
		Initial: Initial{Limits: map[string][]zlimit.Limit{"c": limits(zlimit.PerSecond("rpm", 8))}},
		Faults:  Faults{Fates: []Fate{Throttle}, Most: 1},
		Actors: []Actor{
			{Process: 0, Warm: []Op{take("c", 2), {Kind: Split, Entity: "c", Twice: true}}},
			{Process: 1, Ops: []Op{take("c", 2)}},
		},
	}},
	{"a request whose caller gives up keeps what it took of one of two levels", "kept", Program{
		Initial: Initial{Family: true, Limits: map[string][]zlimit.Limit{"": limits(zlimit.PerDay("rpm", 10)), "p": limits(zlimit.PerDay("rpm", 12))}},
		Faults:  Faults{Fates: []Fate{CancelFirst, CancelAfter}, Most: 1},
		Actors: []Actor{
			{Process: 0, Warm: []Op{take("c", 1), {Kind: Rest, For: 2 * time.Second}}, Ops: []Op{{Kind: Take, Entity: "c", Amounts: rpm(8), Cancel: true}}},
		},
	}},
}

// knownTimed are known programs with limits that reset at times.
var knownTimed = []showing{
	{"a lease that several shards gave together, at a reset, keeps what it gives back", "lost", Program{
		Initial: Initial{Timed: true, Limits: map[string][]zlimit.Limit{"c": limits(zlimit.Cron("rpm", 10, "*/2 * * * *", "UTC"))}},
		Actors: []Actor{
			{Process: 0, Warm: []Op{{Kind: Take, Entity: "c", Amounts: rpm(1)}, {Kind: Split, Entity: "c"}}, Ops: []Op{{Kind: Reset, Entity: "c", ID: "two"}}},
			{Process: 1, Ops: []Op{{Kind: Take, Entity: "c", Amounts: rpm(8)}, {Kind: Rollback}}},
		},
	}},
}

// knownOrders bounds the orders of a program in a long test run. Four programs have more, and make explore goes through them. Each of
// those shows its defect within the bound as well, which depends on the order of its actors. A usual run has a quarter of the orders.
const knownOrders = 4000

// exploreShowing explores the program of a showing, in every order or in the first ones.
func exploreShowing(t *testing.T, k *showing, ignored []string) (Report, Program) {
	t.Helper()
	p := k.program
	if p.Name = k.defect; testing.Short() && (len(p.Actors) > 3 || p.size() > 3) {
		t.Skip("has orders for seconds")
	}
	bounds := Bounds{Ignored: ignored, Orders: knownOrders}
	switch {
	case *whole:
		bounds.Orders = 0
	case testing.Short():
		bounds.Orders /= 10
	case !soak.Runs():
		bounds.Orders /= 4
	}
	report := Explore(t, &p, bounds)
	t.Logf("%d orders, %d of which came to a state seen before; %d calls", report.Orders, report.Cut, report.Events)
	return report, p
}

func (f *Finding) in(p *Program) string {
	return fmt.Sprintf("%s, in %d orders: %s\n%s%s", f.Rule, f.Times, f.Text, p.String(), timeline(f.log))
}

func TestKnownDefects(t *testing.T) {
	for _, k := range slices.Concat(known, knownTimed, knownMoves) {
		t.Run(k.defect, func(t *testing.T) {
			report, p := exploreShowing(t, &k, tolerated(k.program.Faults))
			for i := range report.Found {
				t.Error(report.Found[i].in(&p))
			}
		})
	}
}

// TestPendingDefects holds that each pending program still shows its defect, and breaks no other rule.
func TestPendingDefects(t *testing.T) {
	for _, k := range pending {
		t.Run(k.defect, func(t *testing.T) {
			ignored := slices.DeleteFunc(tolerated(k.program.Faults), func(rule string) bool { return rule == k.rule })
			report, p := exploreShowing(t, &k, ignored)
			shown := false
			for i := range report.Found {
				if f := &report.Found[i]; f.Rule == k.rule {
					shown = true
					t.Log(f.in(&p))
				} else {
					t.Error(f.in(&p))
				}
			}
			if !shown {
				t.Errorf("no order breaks the rule %q any more: the defect is mended. Move the program from pending to known.", k.rule)
			}
		})
	}
}
