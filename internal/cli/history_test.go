package cli

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/zlimit/zlimit-go/internal/bridge"
	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/store"
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
		a := &app{
			stdin: strings.NewReader(""), stdout: ts.Stdout(), stderr: ts.Stderr(), env: ts.Getenv,
			now: func() time.Time { return historyNow }, sleep: sleep,
		}
		code := a.run(context.Background(), args)
		*ts.Value(lastCode{}).(*int) = code
		if neg == (code == exitOK) {
			ts.Fatalf("zlimit %s: exit code %d", strings.Join(args, " "), code)
		}
	}
	testscript.Run(t, p)
}

// fillHistory makes changes, uses limits, and writes what an aggregator would have summed up: of entity acme a curve of
// hours, days and months, of globex a day here and there.
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
			return l.Limits.SetResource(ctx, "gpt", []zlimit.Limit{zlimit.PerMinute("rpm", 60), zlimit.PerDay("tpd", 100_000)})
		},
		func() error {
			return l.Limits.SetEntity(ctx, "acme", "gpt", []zlimit.Limit{zlimit.PerDay("tpd", 1_000_000)})
		},
		func() error {
			return l.Limits.SetSystem(ctx, zlimit.SystemConfig{Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 6)}})
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
	put := func(entity, window, key string, start time.Time, rpm int64, tpd int64) {
		item := expr.Item{
			{Name: "entity_id", Value: expr.S(entity)},
			{Name: "resource", Value: expr.S("gpt")},
			{Name: "window", Value: expr.S(window)},
			{Name: "window_start", Value: expr.S(start.Format("2006-01-02T15:04:05Z"))},
			{Name: "total_events", Value: expr.N(2 * rpm)},
			{Name: "rpm", Value: expr.N(rpm)},
			{Name: "tpd", Value: expr.Decimal(tpd, 3)},
			{Name: "GSI2PK", Value: expr.S(ns.ID + "/RESOURCE#gpt")},
			{Name: "GSI2SK", Value: expr.S("USAGE#" + key + "#" + entity)},
			{Name: "GSI4PK", Value: expr.S(ns.ID)},
			{Name: "GSI4SK", Value: expr.S(ns.ID + "/ENTITY#" + entity)},
		}
		at := store.Key{PK: ns.ID + "/ENTITY#" + entity, SK: "#USAGE#gpt#" + key}
		if _, err := bridge.Of(s).Store().Write(ctx, store.Write{Kind: store.Put, Key: at, Item: item}); err != nil {
			t.Fatal(err)
		}
	}
	month := time.Date(2026, time.March, 1, 0, 0, 0, 0, time.UTC)
	for at := month; at.Before(historyNow); at = at.Add(time.Hour) {
		hour := at.Sub(month).Hours()
		put("acme", "hourly", at.Format(time.RFC3339), at, int64(hour)%24+1, int64(40_000_000*(1.2+math.Sin(hour/12*math.Pi))))
	}
	for day := month; day.Before(historyNow); day = day.AddDate(0, 0, 1) {
		put("acme", "daily", day.Format(time.DateOnly), day, int64(100*day.Day()), 1_000_500*int64(day.Day()))
		if day.Day()%5 == 0 {
			put("globex", "daily", day.Format(time.DateOnly), day, 7, -1500)
		}
	}
	for back := range 14 {
		at := month.AddDate(0, -back, 0)
		put("acme", "monthly", at.Format("2006-01"), at, 1000, int64(1000_000*(back+1)))
	}
	return nil
}
