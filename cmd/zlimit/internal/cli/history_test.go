package cli

import (
	"context"
	"errors"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/grammar"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/tool/wait"
	"github.com/zlimit/zlimit-go/zlimit"
)

// historyNow is the time at which the scripts about the past run.
var historyNow = time.Date(2026, time.March, 15, 9, 30, 0, 0, time.UTC)

// TestScriptsOnHistory runs scripts on a store that has been in use for a year, at a time that stands still.
func TestScriptsOnHistory(t *testing.T) {
	p := scripts("testdata/history", "sqlite:$WORK/limits.db")
	setup := p.Setup
	p.Setup = func(env *testscript.Env) error {
		if err := setup(env); err != nil {
			return err
		}
		return fillHistory(env.T(), env.WorkDir+"/limits.db")
	}
	p.Cmds["zlimit"] = func(ts *testscript.TestScript, neg bool, args []string) {
		sh := &shell.Shell{
			Stdin: strings.NewReader(""), Stdout: ts.Stdout(), Stderr: ts.Stderr(), Env: ts.Getenv,
			Now: func() time.Time { return historyNow }, Sleep: wait.For,
		}
		code := Run(context.Background(), sh, args)
		*ts.Value(lastCode{}).(*int) = code
		if neg == (code == shell.ExitOK) {
			ts.Fatalf("zlimit %s: exit code %d", strings.Join(args, " "), code)
		}
	}
	p.UpdateScripts = os.Getenv("ZLIMIT_UPDATE") != ""
	testscript.Run(t, p)
}

// fillHistory makes changes, uses limits, and writes what an aggregator would have summed up. Entity acme has a curve
// of hours, days and months, globex a day here and there, and initech a day without requests.
func fillHistory(t testscript.T, path string) (err error) {
	ctx := context.Background()
	s, err := zlimit.SQLite(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	now := historyNow.AddDate(0, 0, -2)
	l, err := zlimit.New(ctx, s, zlimit.WithClock(func() time.Time { return now }), zlimit.WithPrincipal("alice"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	for _, do := range []func() error{
		func() error {
			_, err := l.Entities.Create(ctx, zlimit.Entity{ID: "acme", Name: "Acme, \"Inc\""})
			return err
		},
		func() error {
			return l.Limits.Set(ctx, zlimit.Level{Resource: "gpt"}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 60), zlimit.PerDay("tpd", 100_000)}})
		},
		func() error {
			return l.Limits.Set(ctx, zlimit.Level{Entity: "acme", Resource: "gpt"}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerDay("tpd", 1_000_000)}})
		},
		func() error {
			return l.Limits.Set(ctx, zlimit.Level{}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 6)}})
		},
	} {
		now = now.Add(6 * time.Hour)
		if err := do(); err != nil {
			return err
		}
	}
	now = historyNow
	for entity, tokens := range map[string]int64{"acme": 250_000, "globex": 100_000, "initech": 40_000} {
		lease, err := l.Acquire(ctx, zlimit.Request{Entity: entity, Resource: "gpt", Consume: zlimit.Amounts{"tpd": tokens}})
		if err == nil && entity == "globex" {
			if err = lease.Adjust(zlimit.Amounts{"tpd": 2500}); err == nil {
				err = lease.Commit(ctx)
			}
		}
		if err != nil {
			return err
		}
	}

	ns, err := l.Namespaces.Get(ctx, zlimit.DefaultNamespace)
	if err != nil {
		return err
	}
	put := func(entity string, window zlimit.Window, at time.Time, rpm, tpd int64) {
		u := layout.UsageDelta{
			NS: ns.ID, Entity: entity, Resource: "gpt", Window: string(window), Start: window.Start(at),
			Events: 2*rpm + 1, Consumed: []bucket.Amount{{Limit: "tpd", Tokens: tpd}},
		}
		if rpm > 0 {
			u.Consumed = append(u.Consumed, bucket.Amount{Limit: "rpm", Tokens: rpm * 1000})
		}
		w, err := u.Write()
		if err == nil {
			_, err = store.Of(s).Write(ctx, w)
		}
		if err != nil {
			t.Fatal("Write() = ", err)
		}
	}
	month := time.Date(2026, time.March, 1, 0, 0, 0, 0, time.UTC)
	for at := month; at.Before(historyNow); at = at.Add(time.Hour) {
		hour := at.Sub(month).Hours()
		put("acme", zlimit.WindowHourly, at, int64(hour)%24+1, int64(40_000_000*(1.2+math.Sin(hour/12*math.Pi))))
	}
	for day := month; day.Before(historyNow); day = day.AddDate(0, 0, 1) {
		put("acme", zlimit.WindowDaily, day, int64(100*day.Day()), 1_000_500*int64(day.Day()))
		if day.Day()%5 == 0 {
			put("globex", zlimit.WindowDaily, day, 7, -1500)
		}
	}
	put("initech", zlimit.WindowDaily, month.AddDate(0, 0, 4), 0, 250)
	for back := range 14 {
		put("acme", zlimit.WindowMonthly, month.AddDate(0, -back, 0), 1000, int64(1000_000*(back+1)))
	}
	return errors.Join(fillFamily(ctx, s), fillMonths(ctx, s))
}

// fillMonths gives a parent and a child budgets of a month in a namespace of their own. One child spends three times as much as a month ago.
func fillMonths(ctx context.Context, s zlimit.Store) (err error) {
	l, err := zlimit.New(ctx, s, zlimit.WithClock(func() time.Time { return historyNow }), zlimit.WithNamespace("months"), zlimit.WithSetup())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	for _, e := range []zlimit.Entity{{ID: "acme"}, {ID: "ada", ParentID: "acme", Cascade: true}, {ID: "bob", ParentID: "acme", Cascade: true}} {
		if _, err := l.Entities.Create(ctx, e); err != nil {
			return err
		}
	}
	budgets := map[string]int64{"acme": 800, "bob": 600}
	for entity, dollars := range budgets {
		monthly := zlimit.Config{Limits: []zlimit.Limit{zlimit.Monthly("usd", dollars*grammar.Nanos, "UTC")}}
		if err := l.Limits.Set(ctx, zlimit.Level{Entity: entity, Resource: "gpt"}, monthly); err != nil {
			return err
		}
	}
	if _, err := l.Acquire(ctx, zlimit.Request{Entity: "bob", Resource: "gpt", Consume: zlimit.Amounts{"usd": 420 * grammar.Nanos}}); err != nil {
		return err
	}
	ns, err := l.Namespaces.Get(ctx, "months")
	if err != nil {
		return err
	}
	for back := range 42 {
		day := zlimit.WindowDaily.Start(historyNow).AddDate(0, 0, -back)
		bob := int64(10)
		if day.Month() == historyNow.Month() {
			bob = 30
		}
		for entity, dollars := range map[string]int64{"ada": 4, "bob": bob, "acme": 4 + bob} {
			amount := bucket.Amount{Limit: "usd", Tokens: dollars * grammar.Nanos * 1000}
			if entity == "acme" {
				amount.FromChildren = amount.Tokens
			}
			u := layout.UsageDelta{NS: ns.ID, Entity: entity, Resource: "gpt", Window: "daily", Start: day, Events: 1, Consumed: []bucket.Amount{amount}}
			w, err := u.Write()
			if err == nil {
				_, err = store.Of(s).Write(ctx, w)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// fillFamily makes requests of a key and of its parent in a namespace of their own, and writes what an aggregator would have summed up.
func fillFamily(ctx context.Context, s zlimit.Store) (err error) {
	now := func() time.Time { return historyNow }
	l, err := zlimit.New(ctx, s, zlimit.WithClock(now), zlimit.WithNamespace("family"), zlimit.WithSetup())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	if err := l.Limits.Set(ctx, zlimit.Level{}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerDay("tpd", 1000)}}); err != nil {
		return err
	}
	for _, e := range []zlimit.Entity{{ID: "org"}, {ID: "team", ParentID: "org", Cascade: true}, {ID: "key", ParentID: "team", Cascade: true}} {
		if _, err := l.Entities.Create(ctx, e); err != nil {
			return err
		}
	}
	ns, err := l.Namespaces.Get(ctx, "family")
	if err != nil {
		return err
	}
	for entity, tokens := range map[string][2]int64{"key": {100, 0}, "team": {30, 100}, "org": {0, 130}} {
		if tokens[0] > 0 {
			if _, err := l.Acquire(ctx, zlimit.Request{Entity: entity, Resource: "gpt", Consume: zlimit.Amounts{"tpd": tokens[0]}}); err != nil {
				return err
			}
		}
		day := zlimit.WindowDaily.Start(historyNow)
		consumed := bucket.Amount{Limit: "tpd", Tokens: 1000 * (tokens[0] + tokens[1]), FromChildren: 1000 * tokens[1]}
		u := layout.UsageDelta{
			NS: ns.ID, Entity: entity, Resource: "gpt", Window: "daily", Start: day, Events: 1, Consumed: []bucket.Amount{consumed},
		}
		w, err := u.Write()
		if err != nil {
			return err
		}
		if _, err = store.Of(s).Write(ctx, w); err != nil {
			return err
		}
	}
	return nil
}
