package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// A rule is a rule of waiting, of credit, of rollover or of slots, and how a mutant breaks it. The tests are built once with all mutants in
// place, as for mutants of conditions.
type rule struct {
	name     string
	file     string
	old, new string // parts of the source; in the new one, «broken» is true while the mutant is alive
	test     string // that is known to notice the mutant: a package and a name
}

// In place of an expression e that a mutant makes wrong, source has either(«broken», wrong, e).
const brokenMark = "«broken»"

// rules are the rules of reservations, by the numbers of the design, of takes on credit, of rollover, and of slots, by the steps of a holder.
var rules = []rule{
	{
		"wait 1: the depth is what flows in within twice the wait", "internal/bucket/wait.go",
		"signed(r.within(s, p.Name, now, d.Wait))", "signed(r.within(s, p.Name, now, either(«broken», 2*d.Wait, d.Wait)))",
		"./zlimit TestWaitFailsAtOnce",
	},
	{
		"wait 1: the deadline bounds no wait", "zlimit/wait.go",
		"w.longest = max(min(w.longest, time.Until(deadline)), 0)", "w.longest = either(«broken», w.longest, max(min(w.longest, time.Until(deadline)), 0))",
		"./zlimit TestWaitFailsAtOnce",
	},
	{
		"wait 2: a write that moves the stamp asks for no balance", "internal/bucket/decide.go",
		"		case checked:\n			p.step(Cover, l.Name, sub(required, refill))", "		case checked && «broken»:\n		case checked:\n			p.step(Cover, l.Name, sub(required, refill))",
		"./zlimit TestAdvanceAsksForTheBalance",
	},
	{
		"wait 3: due by the balance before the write", "internal/protocol/wait.go",
		"max(b.image.Due(amounts, b.after)", "max(b.image.Due(amounts, either(«broken», amounts, b.after))",
		"./zlimit TestWaitersComeInOrder",
	},
	{
		"wait 4: a stamp that is ahead does not count", "internal/protocol/wait.go",
		"-b.image.timeAt(now), 0), true", "-either(«broken», now, b.image.timeAt(now)), 0), true",
		"./internal/protocol TestBookingsOfOneWrite",
	},
	{
		"wait 5: a shared write asks for its callers as if each were alone", "internal/bucket/wait.go",
		"			ahead = add(ahead, amount)", "			ahead = either(«broken», 0, add(ahead, amount))",
		"./internal/bucket TestOneWriteAsOneAfterAnother",
	},
	{
		"wait 5: those behind in a shared write are waited for", "internal/protocol/party.go",
		"			bookings[0].after = after", "			bookings[0].after = either(«broken», nil, after)",
		"./internal/protocol TestBookingsOfOneWrite",
	},
	{
		"wait 6: requests that do not wait go into debt", "internal/bucket/wait.go",
		"	if d.Wait > 0 {\n", "	if «broken» {\n		least = sub(least, 60_000_000)\n	}\n	if d.Wait > 0 {\n",
		"./zlimit TestNobodyOvertakes",
	},
	{
		"wait 7: limits that were changed are not looked at", "internal/protocol/wait.go",
		"if len(t.bookings()) == 0 || w.limits[at].Own {", "if len(t.bookings()) == 0 || w.limits[at].Own || «broken» {",
		"./zlimit TestLimitsChangeWhileAsleep",
	},
	{
		"wait 8: who gives up gives nothing back", "zlimit/wait.go",
		"	le.limiter.engine.Undo(ctx, &le.receipt)", "	if !«broken» {\n		le.limiter.engine.Undo(ctx, &le.receipt)\n	}",
		"./zlimit TestGivingUp",
	},
	{
		"wait 8: who gives up gives back twice", "internal/protocol/engine.go",
		"	e.admitter.returnAll(ctx, r.levels)", "	e.admitter.returnAll(ctx, r.levels)\n	if «broken» {\n		e.admitter.returnAll(ctx, r.levels)\n	}",
		"./zlimit TestGivingUp",
	},
	{
		"wait 9: admitted immediately after an unknown outcome", "zlimit/wait.go",
		"	l.engine.Waits.Delay(&lease.receipt, rest, until)", "	l.engine.Waits.Delay(&lease.receipt, either(«broken», 0, rest), until)",
		"./zlimit TestUnknownBookingsWait",
	},
	{
		"wait 10: an item with a debt expires as if there were none", "internal/bucket/wait.go",
		"	p.Now = max(p.Now, r.paid(", "	p.Now = max(p.Now, either[int64](«broken», 0, 1)*r.paid(",
		"./internal/bucket TestDebtsKeepTheirItem",
	},
	{
		"expiry: a settlement asks for no balance if the image shows no debt", "internal/bucket/spend.go",
		"case c.ExpiryFactor > 0 && !s.sharded() && !l.isQuota():", "case c.ExpiryFactor > 0 && !s.sharded() && !l.isQuota() && !(«broken» && balance >= 0):",
		"./internal/bucket TestExpiryOfStaleImages",
	},
	{
		"expiry: a refill that shortens the life asks for no balance", "internal/bucket/decide.go",
		"if expires > 0 && (expires < s.ExpiresAt ||", "if !«broken» && expires > 0 && (expires < s.ExpiresAt ||",
		"./internal/bucket TestExpiryOfStaleImages",
	},
	{
		"wait 11: looks ask for the whole amount", "internal/bucket/status.go",
		"checked && v.required(p, d) > v.available(", "checked && either(«broken», Of(d.Amounts, p.Name), v.required(p, d)) > v.available(",
		"./internal/bucket TestDebtsKeepTheirItem",
	},
	{
		"wait 12: a wait goes on over the edge of a quota", "internal/protocol/families.go",
		"		longest = min(longest, levels[i].limits.Config.UntilEdge(states, now))", "		longest = either(«broken», longest, min(longest, levels[i].limits.Config.UntilEdge(states, now)))",
		"./zlimit TestNoWaitPastAnEdge",
	},
	{
		"wait, shards: who comes to a shard that was split stays there", "internal/protocol/shards.go",
		"return i.Count() == 1 || ", "return i.Count() == 1 || «broken» || ",
		"./internal/protocol TestLotsFindTheirShards",
	},
	{
		"wait, shards: a shard with a long queue is split", "internal/protocol/resize.go",
		"queue <= longQueue.Milliseconds()", "(«broken» || queue <= longQueue.Milliseconds())",
		"./internal/protocol TestLongQueueIsNotSplit",
	},

	{
		"slots, open: an epoch begins half a term early", "internal/bucket/slots.go",
		"	own := now / s.Term\n	switch", "	own := either(«broken», now+s.Term/2, now) / s.Term\n	switch", ofSlots,
	},
	{
		"slots, open: the newer counter is emptied first", "internal/bucket/slots.go",
		"return own - 1 - (own-1-s.Epoch+1)%2, true", "return own - 1 - either(«broken», 0, (own-1-s.Epoch+1)%2), true", ofSlots,
	},
	{
		"slots, take: it counts as heard of in the next epoch", "internal/protocol/slots_take.go",
		"h.heard(sk.core, s.Epoch, g.now, g.sent)", "h.heard(sk.core, s.Epoch+either[int64](«broken», 1, 0), g.now, g.sent)", ofSlots,
	},
	{
		"slots, beat: one slot moves, however many are held", "internal/protocol/slots_tend.go",
		"beat(limit, former, to, s.Enrolled)", "beat(limit, either(«broken», 1, former), to, s.Enrolled)", "./zlimit TestSlotsOfAFleet",
	},
	{
		"slots, beat: who begins an epoch keeps none of its own", "internal/protocol/slots_tend.go",
		"open(&bt.call, s, to, current)", "open(&bt.call, s, to, either(«broken», 0, current))", ofSlots,
	},
	{
		"slots, lost beat: one without a reply counts as done", "internal/protocol/slots_tend.go",
		"		if err != nil {\n			bt.postpone()\n			return\n		}\n		if applied {", "		if err != nil && !«broken» {\n			bt.postpone()\n			return\n		}\n		if applied || err != nil {", ofSlots,
	},
	{
		"slots, release: one without a reply is repeated", "internal/protocol/slots_leave.go",
		"		if applied || err != nil {\n			return err\n		}\n		if i = next; i != nil {", "		if applied || err != nil && !(«broken» && IsUnknown(err)) {\n			return err\n		}\n		if i = next; i != nil {", ofSlots,
	},
	{
		"slots, release: it goes on after the slots are free by themselves", "internal/protocol/slots_leave.go",
		"give(h.limit, amount, h.epoch, h.epoch+2, h.enrolled)", "give(h.limit, amount, h.epoch, h.epoch+either[int64](«broken», 4, 2), h.enrolled)", ofSlots,
	},
	{
		"slots, lost: no allowance for clocks", "internal/bucket/slots.go",
		"return mul(epoch+2, s.Term) - s.Term/earlyTermPart }", "return mul(epoch+2, s.Term) - either(«broken», 0, s.Term/earlyTermPart) }", ofSlots,
	},
	{
		"slots, lost: holders wait for a store that does not answer", "internal/protocol/slots_tend.go",
		"beat(ctx context.Context, b *Bucket) {\n\tctx, cancel := context.WithTimeout(ctx, sk.untilLost(b))",
		"beat(ctx context.Context, b *Bucket) {\n\tctx, cancel := context.WithTimeout(ctx, either(«broken», time.Hour, sk.untilLost(b)))", ofSlots,
	},
	{
		"slots, clock: held by a clock of any error", "internal/protocol/slots_clock.go",
		"if !known || wrong > milliseconds(term)/bucket.SlotClockError {", "if !«broken» && (!known || wrong > milliseconds(term)/bucket.SlotClockError) {",
		"./zlimit TestSlotsNeedAClock",
	},
	{
		"slots, suspended: fencing numbers start over", "internal/bucket/slots.go",
		"Fence: mul(now, 1000), Enrolled", "Fence: either(«broken», 0, mul(now, 1000)), Enrolled", ofSlots,
	},
	{
		"slots, suspended: callers who share a write have one fencing number", "internal/protocol/slots_take.go",
		"fence: g.fences[i] - behind", "fence: g.fences[i] - either(«broken», 0, behind)", "./zlimit TestSlotsShareWrites",
	},
	{
		"slots, term: it changes while some are held", "internal/bucket/slots.go",
		"return s.Even == 0 && s.Odd == 0 }", "return «broken» || s.Even == 0 && s.Odd == 0 }", ofSlots,
	},
	{
		"slots, expiry: an item expires while some are held", "internal/bucket/slots.go",
		"	if s.ExpiresAt <= 0 {", "	if s.ExpiresAt <= 0 || «broken» {", "./internal/bucket TestHeldSlotsKeepTheirItem",
	},

	{
		"credit: a take on credit does not require the stamp", "internal/bucket/spend.go",
		"		p.step(Unmoved, \"\", s.RefilledAt)\n	}\n	requires", "		if !«broken» {\n			p.step(Unmoved, \"\", s.RefilledAt)\n		}\n	}\n	requires",
		"./internal/bucket TestCreditIsExact",
	},
	{
		"credit: a limit that has been full counts its overflow", "internal/bucket/credit.go",
		"		p.step(Below, l.Name, ceiling)", "		p.step(Below, l.Name, either[int64](«broken», 1<<62, ceiling))",
		"./internal/bucket TestCreditIsExact",
	},
	{
		"credit: a full limit is left at its ceiling by a take", "internal/bucket/credit.go",
		"sub(brink, max(amount, 0))", "either(«broken», brink, sub(brink, max(amount, 0)))",
		"./internal/bucket TestCreditIsExact",
	},
	{
		"credit: a refund fills a limit that has no room to fill", "internal/bucket/credit.go",
		"add(brink, min(amount, 0))", "add(brink, either[int64](«broken», 2, 1)*min(amount, 0))",
		"./internal/layout TestPlaceAsks",
	},
	{
		"credit: a full shard keeps what others could hold", "internal/bucket/credit.go",
		"if amount < 0 && s.sharded() {", "if amount < 0 && s.sharded() && !«broken» {",
		"./internal/bucket TestFullShardsPassRefundsOn",
	},
	{
		"credit: full limits leave no floor to others", "internal/bucket/credit.go",
		"checked && p.least(s, l, c, d, amount, now) > ch.ceiling", "checked && either(«broken», amount, p.least(s, l, c, d, amount, now)) > ch.ceiling",
		"./internal/layout TestPlaceLeavesFloors",
	},

	{
		"rollover: an item that carries expires at its edge", "internal/bucket/expiry.go",
		"case p.Times != nil && p.Carry > 0:", "case p.Times != nil && p.Carry > 0 && !«broken»:",
		"./zlimit TestCarry",
	},
	{
		"rollover: a bucket that carries is split", "internal/bucket/carry.go",
		"r != nil && r.Carry > 0 {", "r != nil && r.Carry > 0 && !«broken» {",
		"./zlimit TestCarryIsNotSplit",
	},
	{
		"rollover: a busy process tries to split a bucket that carries", "internal/protocol/resize.go",
		"!i.Changed && !i.Carries() &&", "!i.Changed && (!i.Carries() || «broken») &&",
		"./internal/protocol TestQuotaThatCarriesIsNotSplit",
	},
	{
		"rollover: the aggregator tries to split a bucket that carries", "aggregator/tend.go",
		"td.options.maxShards && !s.state.Carries():", "td.options.maxShards && (!s.state.Carries() || «broken»):",
		"./aggregator TestBusyQuotaThatCarries",
	},
	{
		"rollover: clients that do not know it may start", "internal/layout/version.go",
		"{AttrConfigLimitCarry, nil, \"0.17.1\"}", "{AttrConfigLimitCarry, nil, either(«broken», \"0.5.0\", \"0.17.1\")}",
		"./zlimit TestKindsAskForClients",
	},

	{
		"MaxWait: the context of a call has no end", "internal/protocol/wait.go",
		"if ws.options.Sleeper != nil || ws.table.Immediate() {", "if ws.options.Sleeper != nil || ws.table.Immediate() || «broken» {",
		"./zlimit TestMaxWaitBoundsTheCall",
	},
	{
		"MaxWait: lost time does not count", "internal/protocol/wait.go",
		"	if now <= a.at {", "	if now <= a.at || «broken» {",
		"./internal/protocol TestLostTime",
	},
	{
		"MaxWait, several requests: they sleep beyond it", "zlimit/together.go",
		"		if pause > rest {", "		if pause > rest && !«broken» {",
		"./zlimit TestAcquireAllWaits",
	},
	{
		"MaxWait, several requests: a try has no end", "zlimit/together.go",
		"joint, until, wait)", "joint, until+either(«broken», time.Hour, 0), wait)",
		"./zlimit TestMaxWaitBoundsAcquireAll",
	},
	{
		"close, several requests: a try under way is not waited for", "zlimit/together.go",
		"	defer l.engine.End()\n", "	if «broken» {\n		l.engine.End()\n	} else {\n		defer l.engine.End()\n	}\n",
		"./zlimit TestCloseDuringAcquireAll",
	},
	{
		"close, wait: who gives up is not waited for", "zlimit/wait.go",
		"	go func() {\n		defer l.engine.End()\n", "	go func() {\n		if «broken» {\n			l.engine.End()\n		} else {\n			defer l.engine.End()\n		}\n",
		"./zlimit TestCloseReturnsWhatWaits",
	},
	{
		"close, slots: a take under way is not waited for", "internal/protocol/admit.go",
		"	defer ad.background.End()\n	holds, errs :=", "	if «broken» {\n		ad.background.End()\n	} else {\n		defer ad.background.End()\n	}\n	holds, errs :=",
		"./zlimit TestCloseDuringATake",
	},
	{
		"sleepers: a rejection of all requests wakes no one", "internal/protocol/sleepers.go",
		"if refuses || changed", "if refuses && !«broken» || changed",
		"./zlimit TestSleepersHear",
	},
	{
		"sleepers: changed limits wake no one", "internal/protocol/sleepers.go",
		"|| changed && !s.own", "|| changed && !s.own && !«broken»",
		"./zlimit TestSleepersHear",
	},
	{
		"sleepers: tokens that come earlier wake no one", "internal/protocol/sleepers.go",
		"|| s.isEarly() {", "|| s.isEarly() && !«broken» {",
		"./zlimit TestSleepersHear",
	},

	{
		"stall: it has no end for requests", "internal/protocol/stall.go",
		"return over != 0 && int64(now) >= over", "return over != 0 && int64(now) >= over && !«broken»",
		"./zlimit TestThrottledBucket",
	},
	{
		"stall: a hot key is one after a second", "internal/protocol/stall.go",
		"if isHotKey(err) {", "if isHotKey(err) && !«broken» {",
		"./zlimit TestThrottledBucket",
	},
	{
		"stall: answers do not end it", "internal/protocol/image.go",
		"	s.bucket.stall.answered(it.core)", "	if !«broken» {\n		s.bucket.stall.answered(it.core)\n	}",
		"./zlimit TestThrottledBucket",
	},
	{
		"stall: a pause does not end it", "internal/protocol/stall.go",
		"int64(now)-d.last.Load() < int64(stallQuiet)", "(int64(now)-d.last.Load() < int64(stallQuiet) || «broken»)",
		"./zlimit TestThrottledBucketRejects",
	},
	{
		"stall: what is known to be rejected is admitted", "zlimit/acquire.go",
		"isDecision(err) || !errors.Is(err, table.ErrWithheld)", "isDecision(err) && !«broken» || err != nil && !errors.Is(err, table.ErrWithheld) && !«broken»",
		"./zlimit TestThrottledBucketRejects",
	},

	{
		"slots, handed: callers have one fencing number", "internal/protocol/slots_hand.go",
		"fence: fence - int64(len(h.to)-1-at)", "fence: fence - either(«broken», 0, int64(len(h.to)-1-at))",
		"./zlimit TestSlotsAreHandedOn",
	},
	{
		"slots, handed: to more callers than there are slots", "internal/protocol/slots_hand.go",
		"			left -= p.asks[0].Tokens", "			left -= either(«broken», 0, p.asks[0].Tokens)",
		"./internal/proof/explore TestSlotsAreHandedOn",
	},
	{
		"slots, waits: free slots wake no one", "internal/protocol/slots_wait.go",
		"i.Disabled || i.hasSlots(p.asks, p.slotNow())", "i.Disabled || i.hasSlots(p.asks, p.slotNow()) && !«broken»",
		"./internal/proof/explore TestWaitsForSlots",
	},
	{
		"slots, handed: another process's claim does not count", "internal/protocol/slots_hand.go",
		"left := min(amount, amount+s.Free-s.KeptAt(now))", "left := either(«broken», amount, min(amount, amount+s.Free-s.KeptAt(now)))",
		"./zlimit TestSlotsAreSharedAmongProcesses",
	},
	{
		"slots, handed: a caller that has left keeps them", "internal/protocol/slots_hand.go",
		"	if hold != nil && isGone {", "	if hold != nil && isGone && !«broken» {",
		"./zlimit TestSlotsAreHandedOn",
	},
	{
		"slots, handed: who declines them gets them again", "internal/protocol/slots_hand.go",
		"	p.declined = true", "	p.declined = !«broken»",
		"./zlimit TestOtherLevelsKeepNoSlots",
	},
	{
		"slots, handed: callers pass the first one without end", "internal/protocol/slots_hand.go",
		"case fits, at == 0 && l.isDue(c):", "case fits, at == 0 && l.isDue(c) && !«broken»:",
		"./zlimit TestLargeRequestsForSlots",
	},
	{
		"slots, handed: slots of a closed engine stay held", "internal/protocol/slots_hand.go",
		"		_ = sk.writeRound(ctx, b, holds) //", "		if «broken» {\n			return\n		}\n		_ = sk.writeRound(ctx, b, holds) //",
		"./zlimit TestCloseWhileSlotsMove",
	},
}

// witness returns the test that is known to notice the mutant.
func (r *rule) witness() witness {
	pkg, test, _ := strings.Cut(r.test, " ")
	return witness{pkg, test}
}

// ofSlots is the test of most rules of slots.
const ofSlots = "./internal/protocol TestSlotsAgainstASet"

// ruleUsers are the packages whose tests use the rules.
var ruleUsers = []string{"./internal/bucket", "./internal/layout", "./internal/protocol", "./zlimit", "./aggregator", "./internal/proof/explore"}

// breakRules returns an overlay of the sources of the rules, by path, that has all mutants in place.
func breakRules(root string, rules []rule) (map[string][]byte, error) {
	overlay := map[string][]byte{}
	var errs []error
	for _, r := range rules {
		file := filepath.Join(root, r.file)
		source, ok := overlay[file]
		if !ok {
			var err error
			if source, err = os.ReadFile(file); err != nil {
				return nil, err
			}
		}
		if n := strings.Count(string(source), r.old); n != 1 {
			errs = append(errs, fmt.Errorf("%s: %s has %q %d times, want it once", r.name, r.file, r.old, n))
			continue
		}
		broken := strings.ReplaceAll(r.new, brokenMark, fmt.Sprintf("isBroken(%q)", r.name))
		overlay[file] = []byte(strings.Replace(string(source), r.old, broken, 1))
		dir := filepath.Dir(file)
		overlay[filepath.Join(dir, "broken.go")] = []byte(brokenFunctions(filepath.Base(dir)))
	}
	return overlay, errors.Join(errs...)
}

// brokenFunctions is the source of what broken rules call, in a package.
func brokenFunctions(pkg string) string {
	return `package ` + pkg + `

import "os"

var brokenRule = os.Getenv("` + env + `")

func isBroken(rule string) bool { return brokenRule == rule }

func either[T any](chosen bool, wrong, right T) T {
	if chosen {
		return wrong
	}
	return right
}
`
}
