package migrate

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
	"github.com/zlimit/zlimit-go/internal/proof/sibling"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/store/dynamo"
	"github.com/zlimit/zlimit-go/zlimit"
	zdynamo "github.com/zlimit/zlimit-go/zlimit/dynamo"
)

// began is when zae-limiter writes its table: a Monday.
var began = time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)

// An author writes the table with zae-limiter.
type author struct {
	*testing.T
	by    *sibling.Process
	table store.Store
	ns    string
}

func (w *author) call(method string, arguments ...any) {
	w.Helper()
	w.by.Call(w.T, began, method, arguments...)
}

func (w *author) take(entity, resource string, consume map[string]int64) {
	w.Helper()
	if got := w.by.Take(w.T, began, sibling.Take{Entity: entity, Resource: resource, Consume: consume}); got != "admitted" {
		w.Fatalf("zae-limiter has %s %s for %s: %v", got, entity, resource, consume)
	}
}

func (w *author) has(key store.Key) bool {
	items := check.Call(w.table.Read(w.Context(), []store.Key{key}, true)).Must(w, "Read()")
	return items[0] != nil
}

// A user takes from the table later: a limiter of this module, or zae-limiter again.
type user struct {
	*testing.T
	now time.Time
	l   *zlimit.RateLimiter // nil for zae-limiter
	by  *sibling.Process
}

func (u *user) take(entity, resource string, consume map[string]int64) string {
	u.Helper()
	if u.l == nil {
		return u.by.Take(u.T, u.now, sibling.Take{Entity: entity, Resource: resource, Consume: consume})
	}
	lease, err := u.l.Acquire(u.Context(), zlimit.Request{Entity: entity, Resource: resource, Consume: zlimit.Amounts(consume)})
	switch {
	case errors.As(err, new(*zlimit.ExceededError)):
		return "rejected"
	case errors.Is(err, zlimit.ErrDisabled):
		return "disabled"
	case err != nil:
		return err.Error()
	}
	check.Error(u, "Commit()", lease.Commit(u.Context()))
	return "admitted"
}

func (u *user) wants(want, entity, resource, limit string, amount int64) {
	u.Helper()
	if got := u.take(entity, resource, map[string]int64{limit: amount}); got != want {
		u.Errorf("%d %s of %s for %s are %s, want %s", amount, limit, entity, resource, got, want)
	}
}

// holds takes all that a limit has left, and asks for one more before.
func (u *user) holds(entity, resource, limit string, left int64) {
	u.Helper()
	u.wants("rejected", entity, resource, limit, left+1)
	if left > 0 {
		u.wants("admitted", entity, resource, limit, left)
	}
}

// drains takes all that the items of a bucket have left, one by one. Where zae-limiter has not made one of two items yet, this module leaves
// the balance above the share of the other one.
func (u *user) drains(entity, resource, limit string, left, share int) {
	u.Helper()
	got, least, rejected := 0, left, 0
	for got <= left && rejected < 3 {
		if u.take(entity, resource, map[string]int64{limit: 1}) == "admitted" {
			got++
		} else {
			rejected++
		}
	}
	if u.l != nil {
		least = min(left, share)
	}
	if got > left || got < least {
		u.Errorf("%d %s of %s for %s are left, want %d", got, limit, entity, resource, left)
	}
}

// told checks the status of a limit. zae-limiter has none.
func (u *user) told(entity, resource, limit string, check func(zlimit.Status) bool) {
	u.Helper()
	if u.l == nil {
		return
	}
	all, err := u.l.Available(u.Context(), zlimit.AvailableQuery{Entity: entity, Resource: resource})
	if err != nil {
		u.Errorf("Available() = %v", err)
		return
	}
	if s, ok := all.Limit(limit); !ok || !check(s) {
		u.Errorf("%s of %s for %s is told to be %+v", limit, entity, resource, s)
	}
}

func (u *user) resets(entity, resource, limit string, at time.Time) {
	u.Helper()
	u.told(entity, resource, limit, func(s zlimit.Status) bool { return s.ResetsAt.Equal(at) })
}

func (u *user) sleep(d time.Duration) { u.now = u.now.Add(d) }

type amounts = map[string]int64

// perMinute, monthly and session describe limits of zae-limiter.
func perMinute(name string, amount int) sibling.Limit {
	return sibling.Limit{"name": name, "amount": amount}
}

func monthly(name string, amount int) sibling.Limit {
	return sibling.Limit{"name": name, "amount": amount, "cron": "0 0 1 * *", "zone": "America/New_York"}
}

func session(name string, amount int) sibling.Limit {
	return sibling.Limit{"name": name, "amount": amount, "session": 6 * 3600}
}

func with(l sibling.Limit, name string, value any) sibling.Limit {
	l[name] = value
	return l
}

func limits(l ...sibling.Limit) []sibling.Limit { return l }

// nextMonth is when monthly quotas reset.
var nextMonth = time.Date(2026, 4, 1, 4, 0, 0, 0, time.UTC)

type window = map[string]any

// A feature is what zae-limiter 0.17 writes, and what holds then.
type feature struct {
	name  string
	write func(*author)
	holds func(*user)
}

// features are those of limits. Entities and resources are of one feature each.
var features = []feature{
	{"levels", func(w *author) {
		w.call("set_system_defaults", limits(with(perMinute("sys", 22), "windows", []window{{"cron": "* 10-11 * * *", "tz": "UTC", "scale": 0.5}})), "block")
		w.call("set_resource_defaults", "lv", limits(perMinute("rpm", 12)))
		w.call("set_limits", "lv-1", limits(perMinute("rpm", 13)))
		w.call("set_limits", "lv-1", limits(perMinute("rpm", 14)), "lv")
	}, func(u *user) {
		u.holds("lv-2", "lv-any", "sys", 11)
		u.holds("lv-2", "lv", "rpm", 12)
		u.holds("lv-1", "lv-any", "rpm", 13)
		u.holds("lv-1", "lv", "rpm", 14)
		u.sleep(4 * time.Hour)
		u.holds("lv-2", "lv-any", "sys", 22)
	}},
	{"disabled entity", func(w *author) {
		w.take("de-1", "de", amounts{"sys": 1})
		w.call("disable_entity", "de-1")
	}, func(u *user) {
		u.wants("disabled", "de-1", "de", "sys", 1)
		u.wants("disabled", "de-1", "de-b", "sys", 1)
	}},
	{"disabled entity for a resource", func(w *author) {
		w.take("dp-1", "dp", amounts{"sys": 1})
		w.call("disable_entity", "dp-1", "dp")
		w.call("disable_entity", "dp-2", "dp")
		w.call("enable_entity", "dp-2", "dp")
		w.call("disable_entity", "dp-3", "dp")
		w.call("clear_entity_disabled", "dp-3", "dp")
	}, func(u *user) {
		u.wants("disabled", "dp-1", "dp", "sys", 1)
		u.wants("admitted", "dp-1", "dp-b", "sys", 1)
		u.holds("dp-2", "dp", "sys", 11)
		u.holds("dp-3", "dp", "sys", 11)
	}},
	{"disabled resource", func(w *author) {
		w.take("dr-1", "dr", amounts{"sys": 1})
		w.call("disable_resource", "dr")
		w.call("enable_entity", "dr-2", "dr")
		w.call("enable_entity", "dr-3")
	}, func(u *user) {
		u.wants("disabled", "dr-1", "dr", "sys", 1)
		u.wants("disabled", "dr-4", "dr", "sys", 1)
		u.holds("dr-2", "dr", "sys", 11)
		u.holds("dr-3", "dr", "sys", 11)
	}},
	{"disabled parent", func(w *author) {
		w.call("create_entity", "do-org")
		w.call("create_entity", "do-1", sibling.Named{"parent_id": "do-org", "cascade": true})
		w.take("do-1", "do", amounts{"sys": 1})
		w.call("disable_entity", "do-org")
	}, func(u *user) {
		u.wants("disabled", "do-1", "do", "sys", 1)
	}},
	{"bypass", func(w *author) {
		w.call("set_resource_defaults", "by", limits(perMinute("rpm", 5)))
		w.take("by-1", "by", amounts{"rpm": 1})
		w.call("bypass_resource", "by")
		w.call("enable_entity", "by-2", "by")
		w.call("bypass_entity", "by-3")
		w.call("bypass_entity", "by-4", "by-b")
	}, func(u *user) {
		for range 2 {
			u.wants("admitted", "by-1", "by", "rpm", 1000)
			u.holds("by-2", "by", "rpm", 5)
			u.wants("admitted", "by-3", "by-c", "sys", 1000)
			u.wants("admitted", "by-4", "by-b", "sys", 1000)
			u.holds("by-4", "by-c", "sys", 11)
			u.sleep(10 * time.Minute) // past the stamps
		}
	}},
	{"windows", func(w *author) {
		w.call("set_resource_defaults", "wi", limits(perMinute("tpm", 100), with(perMinute("rpm", 20), "windows", []window{
			{"cron": "* 9-17 * * MON-FRI", "tz": "Europe/Berlin", "scale": 0.5},
			{"cron": "* 18-23,0-8 * * *", "tz": "Europe/Berlin", "capacity": 8, "refill_amount": 4, "refill_period_seconds": 30},
		})))
		w.take("wi-1", "wi", amounts{"rpm": 1, "tpm": 1})
	}, func(u *user) {
		u.sleep(time.Minute)
		u.holds("wi-1", "wi", "rpm", 10)
		u.holds("wi-2", "wi", "rpm", 10)
		u.holds("wi-1", "wi", "tpm", 100)
		u.sleep(9 * time.Hour)
		u.holds("wi-1", "wi", "rpm", 8)
		u.sleep(30 * time.Second)
		u.holds("wi-1", "wi", "rpm", 4)
		u.sleep(4*24*time.Hour + 16*time.Hour) // Saturday at noon
		u.holds("wi-1", "wi", "rpm", 20)
	}},
	{"calendar quota", func(w *author) {
		w.call("set_resource_defaults", "ca", limits(monthly("day", 10), perMinute("rpm", 60)))
		w.take("ca-1", "ca", amounts{"day": 4, "rpm": 1})
	}, func(u *user) {
		u.resets("ca-1", "ca", "day", nextMonth)
		u.holds("ca-1", "ca", "day", 6)
		u.holds("ca-2", "ca", "day", 10)
		u.now = nextMonth.Add(-time.Millisecond)
		u.wants("rejected", "ca-1", "ca", "day", 1)
		u.now = nextMonth
		u.holds("ca-1", "ca", "day", 10)
	}},
	{"calendar quota with windows", func(w *author) {
		w.call("set_limits", "cw-1", limits(with(monthly("day", 10), "windows", []window{{"cron": "* 2-11 * * *", "tz": "America/New_York", "scale": 0.5}})), "cw")
		w.take("cw-1", "cw", amounts{"day": 2})
	}, func(u *user) {
		u.holds("cw-1", "cw", "day", 3)
		u.now = nextMonth.Add(time.Hour)
		u.holds("cw-1", "cw", "day", 10)
	}},
	{"session quota", func(w *author) {
		w.call("set_resource_defaults", "se", limits(session("msgs", 10), perMinute("rpm", 60)))
		w.take("se-1", "se", amounts{"msgs": 7, "rpm": 1})
	}, func(u *user) {
		u.resets("se-1", "se", "msgs", began.Add(6*time.Hour))
		u.holds("se-1", "se", "msgs", 3)
		u.holds("se-2", "se", "msgs", 10)
		u.now = began.Add(6*time.Hour - time.Millisecond)
		u.wants("rejected", "se-1", "se", "msgs", 1)
		u.now = began.Add(8 * time.Hour)
		u.holds("se-1", "se", "msgs", 10)
		u.resets("se-1", "se", "msgs", began.Add(14*time.Hour))
	}},
	{"session quota with windows", func(w *author) {
		w.call("set_limits", "sw-1", limits(with(session("msgs", 10), "windows", []window{{"cron": "* 0-11 * * *", "tz": "UTC", "scale": 0.5}})), "sw")
		w.take("sw-1", "sw", amounts{"msgs": 2})
	}, func(u *user) {
		u.holds("sw-1", "sw", "msgs", 3)
		u.now = began.Add(7 * time.Hour)
		u.holds("sw-1", "sw", "msgs", 10)
	}},
	{"soft limit", func(w *author) {
		w.call("set_resource_defaults", "so", limits(with(perMinute("rpm", 5), "soft", true), monthly("day", 100)))
		w.call("set_resource_defaults", "so-q", limits(with(session("msgs", 5), "soft", true), with(monthly("day", 5), "soft", true)))
		w.take("so-1", "so", amounts{"rpm": 50, "day": 1})
		w.take("so-1", "so-q", amounts{"msgs": 50, "day": 50})
	}, func(u *user) {
		for range 2 {
			u.wants("admitted", "so-1", "so", "rpm", 50)
			u.wants("admitted", "so-1", "so-q", "msgs", 50)
			u.wants("admitted", "so-1", "so-q", "day", 50)
			u.wants("rejected", "so-1", "so", "day", 100)
			u.sleep(10 * time.Minute)
		}
	}},
	{"cascade policy", func(w *author) {
		for _, resource := range []string{"cp", "cp-never"} {
			w.call("set_limits", "cp-org", limits(monthly("sys", 10)), resource)
		}
		w.call("create_entity", "cp-org")
		w.call("create_entity", "cp-1", sibling.Named{"parent_id": "cp-org", "cascade": true})
		w.call("create_entity", "cp-2", sibling.Named{"parent_id": "cp-org"})
		w.call("set_resource_cascade", "cp-never", false)
		w.call("set_entity_cascade", "cp-2", true)
		w.call("set_entity_cascade", "cp-1", true, "cp-never")
		w.call("set_entity_cascade", "cp-1", false, "cp")
		w.call("clear_entity_cascade", "cp-1", "cp")
		w.take("cp-1", "cp", amounts{"sys": 1})
	}, func(u *user) {
		u.wants("admitted", "cp-1", "cp", "sys", 1)       // by the record of the entity
		u.wants("admitted", "cp-2", "cp", "sys", 1)       // by the entity's policy
		u.wants("admitted", "cp-1", "cp-never", "sys", 1) // by that for the resource
		u.wants("admitted", "cp-2", "cp-never", "sys", 1) // by the entity's, before the resource's
		u.holds("cp-org", "cp", "sys", 7)
		u.holds("cp-org", "cp-never", "sys", 8)
	}},
	{"resource that charges no parent", func(w *author) {
		w.call("set_limits", "cn-org", limits(monthly("sys", 10)))
		w.call("create_entity", "cn-org")
		w.call("create_entity", "cn-1", sibling.Named{"parent_id": "cn-org", "cascade": true})
		w.take("cn-1", "cn", amounts{"sys": 1})
		w.call("set_resource_cascade", "cn", false)
	}, func(u *user) {
		u.wants("admitted", "cn-1", "cn", "sys", 2)
		u.wants("admitted", "cn-1", "cn-b", "sys", 2)
		u.holds("cn-org", "cn", "sys", 9)
		u.holds("cn-org", "cn-b", "sys", 8)
	}},
	{"moved parent", func(w *author) {
		for _, org := range []string{"mo-a", "mo-b"} {
			w.call("create_entity", org)
			w.call("set_limits", org, limits(monthly("sys", 10)))
		}
		for _, child := range []string{"mo-1", "mo-2", "mo-3"} {
			w.call("create_entity", child, sibling.Named{"parent_id": "mo-a", "cascade": true})
			w.take(child, "mo", amounts{"sys": 1})
		}
		w.call("set_parent", "mo-1", "mo-b")
		w.call("set_parent", "mo-2", nil)
		w.call("set_parent", "mo-3", "mo-b")
		w.call("set_parent", "mo-3", "mo-a")
	}, func(u *user) {
		u.wants("admitted", "mo-1", "mo", "sys", 2)
		u.wants("admitted", "mo-2", "mo", "sys", 3)
		u.wants("admitted", "mo-3", "mo", "sys", 1)
		u.holds("mo-b", "mo", "sys", 8)
		u.holds("mo-a", "mo", "sys", 6)
	}},
	{"entity created again", func(w *author) {
		for _, org := range []string{"an-a", "an-b"} {
			w.call("create_entity", org)
			w.call("set_limits", org, limits(monthly("sys", 10)))
		}
		w.call("create_entity", "an-1", sibling.Named{"parent_id": "an-a", "cascade": true})
		w.take("an-1", "an", amounts{"sys": 1})
		w.call("delete_entity", "an-1")
		w.call("create_entity", "an-1", sibling.Named{"parent_id": "an-b", "cascade": true, "metadata": map[string]string{"team": "blue"}})
	}, func(u *user) {
		u.wants("admitted", "an-1", "an", "sys", 2)
		u.holds("an-b", "an", "sys", 8)
		u.holds("an-a", "an", "sys", 9)
	}},
	{"top-up", func(w *author) {
		w.call("set_resource_defaults", "tu", limits(monthly("day", 10), session("msgs", 10), perMinute("rpm", 10)))
		w.take("tu-1", "tu", amounts{"day": 4, "msgs": 4, "rpm": 4})
		w.call("top_up", "tu-1", "tu", amounts{"day": 50, "msgs": 20, "rpm": 3})
		w.call("top_up", "tu-2", "tu", amounts{"day": 5})
	}, func(u *user) {
		u.told("tu-1", "tu", "day", func(s zlimit.Status) bool {
			return s.Granted == 50 && s.GrantEnds.IsZero() && s.ResetsAt.Equal(nextMonth)
		})
		u.holds("tu-1", "tu", "day", 56)
		u.holds("tu-1", "tu", "msgs", 26)
		u.holds("tu-1", "tu", "rpm", 9)
		u.holds("tu-2", "tu", "day", 15)
		u.now = nextMonth
		u.holds("tu-1", "tu", "day", 10)
		u.holds("tu-1", "tu", "msgs", 10)
		u.holds("tu-2", "tu", "day", 10)
	}},
	{"reset by hand", func(w *author) {
		w.call("set_resource_defaults", "re", limits(monthly("day", 10), session("msgs", 10), perMinute("rpm", 10)))
		w.take("re-1", "re", amounts{"day": 4, "msgs": 4, "rpm": 4})
		w.call("reset_bucket", "re-1", "re", sibling.Named{"idempotency_key": "op-1"})
	}, func(u *user) {
		if u.l == nil {
			u.by.Call(u.T, u.now, "reset_bucket", "re-1", "re", sibling.Named{"idempotency_key": "op-1"})
		} else if change, err := u.l.Limits.Reset(u.Context(), zlimit.ResetRequest{Entity: "re-1", Resource: "re", OperationID: "op-1"}); err != nil || !change.Repeated {
			u.Errorf("Reset() = %+v, %v, want that of zae-limiter", change, err)
		}
		u.holds("re-1", "re", "day", 10)
		u.holds("re-1", "re", "msgs", 10)
		u.holds("re-1", "re", "rpm", 10)
	}},
	{"changed limits", func(w *author) {
		for _, entity := range []string{"ch-lower", "ch-raise", "ch-more", "ch-less", "ch-none", "ch-kind"} {
			w.call("set_limits", entity, limits(perMinute("rpm", 20), perMinute("tpm", 20)), "ch")
			w.take(entity, "ch", amounts{"rpm": 1, "tpm": 1})
		}
		w.call("set_limits", "ch-lower", limits(perMinute("rpm", 5), perMinute("tpm", 20)), "ch")
		w.call("set_limits", "ch-raise", limits(perMinute("rpm", 60), perMinute("tpm", 20)), "ch")
		w.call("set_limits", "ch-more", limits(perMinute("rpm", 20), perMinute("tpm", 20), perMinute("new", 30), session("msgs", 7), monthly("day", 8)), "ch")
		w.call("set_limits", "ch-less", limits(perMinute("rpm", 20)), "ch")
		w.call("set_limits", "ch-kind", limits(monthly("rpm", 20), session("tpm", 20)), "ch")
		w.call("delete_limits", "ch-none", "ch")
	}, func(u *user) {
		u.holds("ch-lower", "ch", "rpm", 5)
		u.holds("ch-raise", "ch", "rpm", 20)
		u.sleep(time.Minute)
		u.holds("ch-raise", "ch", "rpm", 60)
		u.holds("ch-more", "ch", "new", 30)
		u.holds("ch-more", "ch", "msgs", 7)
		u.holds("ch-more", "ch", "day", 8)
		u.holds("ch-more", "ch", "rpm", 20)
		u.holds("ch-less", "ch", "rpm", 20)
		u.holds("ch-none", "ch", "sys", 11)
		u.holds("ch-kind", "ch", "tpm", 20)
		u.now = nextMonth
		u.holds("ch-kind", "ch", "rpm", 20)
	}},
	{"shards of a quota", func(w *author) {
		w.call("set_resource_defaults", "sh", limits(monthly("day", 8)))
		for _, entity := range []string{"sh-1", "sh-2"} {
			w.take(entity, "sh", amounts{"day": 2})
			w.call("bump_shard_count", entity, "sh", 1)
		}
		for range 4 { // of which some come to the new shard
			w.take("sh-2", "sh", amounts{"day": 1})
		}
	}, func(u *user) {
		u.drains("sh-1", "sh", "day", 6, 4)
		u.drains("sh-2", "sh", "day", 2, 8)
		u.now = nextMonth
		u.drains("sh-2", "sh", "day", 8, 8)
	}},
	{"shards of a session", func(w *author) {
		w.call("set_resource_defaults", "ss", limits(session("msgs", 8)))
		for _, entity := range []string{"ss-1", "ss-2"} {
			w.take(entity, "ss", amounts{"msgs": 2})
			w.call("bump_shard_count", entity, "ss", 1)
		}
		for range 4 {
			w.take("ss-2", "ss", amounts{"msgs": 1})
		}
		second := layout.BucketKey{NS: w.ns, Entity: "ss-2", Resource: "ss", Shard: 1}.Key()
		for !w.has(second) { // zae-limiter makes a shard when it first draws it
			w.by.Take(w.T, began, sibling.Take{Entity: "ss-2", Resource: "ss", Consume: amounts{"msgs": 1}, Back: amounts{"msgs": 1}})
		}
	}, func(u *user) {
		u.drains("ss-1", "ss", "msgs", 6, 4)
		u.drains("ss-2", "ss", "msgs", 2, 8)
		u.sleep(7 * time.Hour)
		u.drains("ss-2", "ss", "msgs", 8, 8)
	}},
}

// records are the other items that zae-limiter 0.17 keeps. Its aggregator and its provisioner write two of them.
func records(w *author) {
	w.call("register_namespace", "staging")
	w.call("register_namespace", "former")
	w.call("delete_namespace", "former")
	w.call("put_provisioner_state", map[string]any{
		"managed_system": true, "managed_resources": []string{"lv"}, "managed_entities": map[string][]string{"lv-1": {"lv"}},
		"last_applied": "2026-03-02T09:00:00Z", "applied_hash": "abc",
	})
	usage := layout.UsageKey{NS: w.ns, Entity: "so-1", Resource: "so", WindowKey: "2026-03-02T09:00:00Z"}
	spent := layout.Usage{Key: usage, Window: "hourly", WindowStart: usage.WindowKey, TotalEvents: 1, Limits: []layout.UsageCount{{Name: "rpm", Consumed: 50_000}}}
	overdrawn := usage.Key().Join(spent.Encode())
	overdrawn.Set("rpm#od", expr.N(1))
	owed := store.Key{PK: w.ns + "/SYSTEM#", SK: "#PROVISIONER#PENDING#soft#resource#so"}.Join(expr.Item{
		{Name: "token", Value: expr.S("a")}, {Name: "full", Value: expr.Bool(true)}, {Name: "GSI4PK", Value: expr.S(w.ns)}, {Name: "GSI4SK", Value: expr.S(w.ns + "/SYSTEM#")},
	})
	fill(w.T, w.table, []expr.Item{overdrawn, owed})
}

// hasRecords checks what a limiter shows of them.
func hasRecords(u *user) {
	if u.l == nil {
		return
	}
	ctx := u.Context()
	shows := func(what string, want, got any, err error) {
		u.Helper()
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			u.Errorf("%s: %v, (-want +got):\n%s", what, err, diff)
		}
	}
	e, err := u.l.Entities.Get(ctx, "an-1")
	shows("metadata", map[string]string{"team": "blue"}, e.Metadata, err)
	config, err := u.l.Limits.Get(ctx, zlimit.Level{})
	shows("failure policy", zlimit.PolicyBlock, config.OnUnavailable, err)
	var children, actions, namespaces, orphans []string
	for e, err := range u.l.Entities.Children(ctx, "mo-a") {
		children = append(children, e.ID)
		shows("child", "mo-a", e.ParentID, err)
	}
	shows("children", []string{"mo-3"}, children, nil)
	for _, entity := range []string{"mo-1", "re-1", "tu-1"} {
		for e, err := range u.l.Audit.Events(ctx, entity, zlimit.AuditQuery{Reverse: true, Limit: 1}) {
			actions = append(actions, string(e.Action))
			shows("event", entity, e.Entity, err)
		}
	}
	shows("actions", []string{"entity_parent_changed", "bucket_reset", "bucket_topped_up"}, actions, nil)
	for n, err := range u.l.Namespaces.List(ctx) {
		namespaces = append(namespaces, n.Name)
		shows("namespace", zlimit.NamespaceActive, n.Status, err)
	}
	for n, err := range u.l.Namespaces.Orphans(ctx) {
		orphans = append(orphans, n.Name)
		shows("former namespace", zlimit.NamespaceDeleted, n.Status, err)
	}
	slices.Sort(namespaces)
	shows("namespaces", []string{"default", "staging"}, namespaces, nil)
	shows("former namespaces", []string{"former"}, orphans, nil)
	for s, err := range u.l.Usage.Snapshots(ctx, zlimit.UsageQuery{Entity: "so-1", Resource: "so", Window: zlimit.WindowHourly}) {
		shows("usage", map[string]zlimit.Quantity{"rpm": 50_000}, s.Consumed, err)
	}
}

// In TestSiblingTable, zae-limiter 0.17 writes a table with all of its features. The table is opened as it is, and copied to a new one. What
// zae-limiter guarantees itself, on another copy, holds there too.
func TestSiblingTable(t *testing.T) {
	engine := enginetest.Start(t)
	source := engine.Table(t)
	open := func(table string) *dynamo.Store {
		return dynamo.New(engine.Client(), table, layout.Table, withoutStream(zdynamo.CreateTableInput))
	}
	w := &author{t, sibling.Create(t, source, zlimit.DefaultNamespace), open(source), ""}
	var err error
	if w.ns, _, err = NamespaceIn(t.Context(), Config{Source: w.table}, zlimit.DefaultNamespace); err != nil {
		t.Fatalf("NamespaceIn() = %v", err)
	}
	features := append(features, feature{"records", records, hasRecords})
	for _, f := range features {
		f.write(w)
	}
	later := began.Add(time.Second)
	migrated := func() string {
		table := engine.Table(t)
		c := Config{
			Source: open(source), Target: open(table), SourceName: "dynamodb:" + source, Offline: true,
			SchemaVersion: zlimit.SchemaVersion, ClientMinVersion: zlimit.ClientMinVersion, ClientVersion: zlimit.Version,
			Now: func() time.Time { return later },
		}
		check.Fatal(t, "Target.Setup()", c.Target.Setup(t.Context()))
		m := check.Call(Start(t.Context(), c)).Must(t, "Start()")
		v, err := m.Finish(t.Context())
		if err != nil {
			t.Fatalf("Finish() = %v, %+v", err, v)
		}
		if len(v.Losses) > 0 {
			t.Errorf("the migration loses %v", v.Losses)
		}
		return table
	}
	theirs, copied := migrated(), migrated()
	place := Config{Source: w.table, InPlace: true, Namespace: zlimit.DefaultNamespace, Offline: true, SchemaVersion: zlimit.SchemaVersion, ClientVersion: zlimit.Version}
	if _, err := Start(t.Context(), place); !errors.Is(err, ErrNotEmpty) {
		t.Errorf("Start() in place = %v, want ErrNotEmpty", err)
	}
	back := sibling.Start(t, theirs, zlimit.DefaultNamespace)
	for _, f := range features {
		t.Run(f.name, func(t *testing.T) {
			t.Run("zae-limiter", func(t *testing.T) { f.holds(&user{T: t, now: later, by: back}) })
			for name, table := range map[string]string{"as it is": source, "copied": copied} {
				t.Run(name, func(t *testing.T) {
					u := &user{T: t, now: later}
					l, err := zlimit.New(t.Context(), zdynamo.New(engine.Client(), table), zlimit.WithClock(func() time.Time { return u.now }))
					check.Fatal(t, "zlimit.New()", err)
					u.l = l
					f.holds(u)
					check.Error(t, "Close()", l.Close())
				})
			}
		})
	}
}
