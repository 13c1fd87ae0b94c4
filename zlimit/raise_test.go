package zlimit_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/hooks"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/compare"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A versioned is a store whose version record a test writes and reads.
type versioned struct {
	*testing.T
	store store.Store
}

func (v versioned) write(schema, least, lambda string) {
	v.Helper()
	record := layout.Version{SchemaVersion: schema, ClientMinVersion: least, LambdaVersion: lambda, UpdatedAt: "2026-01-01T00:00:00Z", UpdatedBy: "somebody", ChildrenFrom: "2026-01-01T00:00:00Z"}
	if _, err := v.store.Write(v.Context(), store.Write{Kind: store.Put, Key: record.Key.Key(), Item: record.Encode()}); err != nil {
		v.Fatalf("Write() = %v", err)
	}
}

// read returns the versions in the record, and who wrote them.
func (v versioned) read() [4]string {
	v.Helper()
	items, err := v.store.Read(v.Context(), []store.Key{layout.VersionKey{}.Key()}, true)
	if err != nil || items[0] == nil {
		v.Fatalf("the version record is %v, %v", items, err)
	}
	r := check.Call(layout.DecodeVersion(items[0])).Must(v, "layout.DecodeVersion()")
	return [4]string{r.SchemaVersion, r.ClientMinVersion, r.LambdaVersion, r.UpdatedBy}
}

// childrenFrom returns from when on the table counts what requests of children are charged to their parents.
func (v versioned) childrenFrom() string {
	v.Helper()
	items := check.Call(v.store.Read(v.Context(), []store.Key{layout.VersionKey{}.Key()}, true)).Must(v, "Read()")
	r := check.Call(layout.DecodeVersion(items[0])).Must(v, "layout.DecodeVersion()")
	return r.ChildrenFrom
}

// TestTableOfBefore sets up a table that an earlier version made: its sums may repeat requests in windows that began before, and in no
// later ones. Setting it up again changes nothing.
func TestTableOfBefore(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		c := newClock()
		l := newLimiter(t, s, zlimit.WithClock(c.now))
		item := layout.Version{SchemaVersion: zlimit.SchemaVersion, ClientMinVersion: "0.1.0", UpdatedBy: "somebody"}
		if _, err := store.Of(s).Write(t.Context(), store.Write{Kind: store.Put, Key: item.Key.Key(), Item: item.Encode()}); err != nil {
			t.Fatalf("Write() = %v", err)
		}
		hour := zlimit.WindowHourly.Start(c.now())
		for i, start := range []time.Time{hour, hour.Add(time.Hour)} {
			u := layout.Usage{
				Key:    layout.UsageKey{NS: l.NS(), Entity: "e", Resource: "r", WindowKey: zlimit.WindowHourly.Key(start)},
				Window: "hourly", Limits: []layout.UsageCount{{Name: "rpm", Consumed: 1000}}, TotalEvents: 1,
			}
			if _, err := store.Of(s).Write(t.Context(), store.Write{Kind: store.Put, Key: u.Key.Key(), Item: u.Encode()}); err != nil {
				t.Fatalf("Write() = %v", err)
			}
			sum, err := l.Usage.Summary(t.Context(), zlimit.UsageQuery{Resource: "r", Window: zlimit.WindowHourly, From: start})
			if err != nil || !sum.MayRepeat {
				t.Errorf("hour %d before a setup: Summary() = %+v, %v; want one that may repeat requests", i, sum, err)
			}
		}
		c.sleep(time.Minute)
		for range 2 {
			newLimiter(t, s, zlimit.WithClock(c.now))
			v := versioned{t, store.Of(s)}
			if got := v.read(); got[1] != "0.1.0" {
				t.Errorf("the setup of another client raised the record to %v", got)
			}
			if got := v.childrenFrom(); got != layout.FormatTime(newClock().now().Add(time.Minute)) {
				t.Errorf("it counts what children are charged from %q on", got)
			}
			c.sleep(time.Minute)
		}
		for i, want := range []bool{true, false} {
			q := zlimit.UsageQuery{Resource: "r", Window: zlimit.WindowHourly, From: hour.Add(time.Duration(i) * time.Hour)}
			if sum, err := l.Usage.Summary(t.Context(), q); err != nil || sum.MayRepeat != want {
				t.Errorf("hour %d: Summary() = %+v, %v; want MayRepeat %v", i, sum, err, want)
			}
			q.Entity = "e"
			if sum, err := l.Usage.Summary(t.Context(), q); err != nil || sum.MayRepeat {
				t.Errorf("hour %d of an entity: Summary() = %+v, %v", i, sum, err)
			}
		}
	})
}

// TestRaiseVersion raises records of all kinds, and lowers none.
func TestRaiseVersion(t *testing.T) {
	forEachStore(t, func(t *testing.T, s zlimit.Store) {
		l := newLimiter(t, s, zlimit.WithPrincipal("ops"))
		v := versioned{t, store.Of(s)}
		schema, least := zlimit.SchemaVersion, zlimit.ClientMinVersion
		if got := v.childrenFrom(); got != "0001-01-01T00:00:00Z" {
			t.Errorf("a new table counts what children are charged from %q on, want always", got)
		}
		for _, test := range []struct {
			name               string
			had                [3]string
			aggregator         string
			want               [4]string
			wantErr, unchanged bool
		}{
			{"an older one", [3]string{"0.9.0", "0.5.0", "0.9.0"}, "0.10.0", [4]string{schema, least, "0.10.0", "ops"}, false, false},
			{"without an aggregator", [3]string{"0.9.0", "0.5.0", "0.9.0"}, "", [4]string{schema, least, "0.9.0", "ops"}, false, false},
			{"a later layout and aggregator", [3]string{"0.99.0", least, "0.99.0"}, "0.10.0", [4]string{"0.99.0", least, "0.99.0", "somebody"}, false, true},
			{"a later layout, an older client", [3]string{"0.99.0", "0.5.0", ""}, "", [4]string{"0.99.0", least, "", "ops"}, false, false},
			{"its own", [3]string{schema, least, "0.10.0"}, "0.10.0", [4]string{schema, least, "0.10.0", "somebody"}, false, true},
			{"for later clients", [3]string{schema, "0.99.0", ""}, "0.10.0", [4]string{schema, "0.99.0", "", "somebody"}, true, true},
		} {
			v.write(test.had[0], test.had[1], test.had[2])
			err := l.RaiseVersion(t.Context(), test.aggregator)
			if errors.As(err, new(*zlimit.VersionError)) != test.wantErr || (err != nil) != test.wantErr {
				t.Errorf("%s: RaiseVersion() = %v", test.name, err)
			}
			compare.Equal(t, test.name, test.want, v.read())
		}
		check.Fatal(t, "Delete()", store.Of(s).Delete(t.Context(), []store.Key{layout.VersionKey{}.Key()}))
		if err := l.RaiseVersion(t.Context(), "0.10.0"); err != nil || v.read() != [4]string{schema, least, "0.10.0", "ops"} {
			t.Errorf("without a record: RaiseVersion() = %v, %v", err, v.read())
		}
		bare := expr.Item{
			{Name: "schema_version", Value: expr.S("0.9.0")}, {Name: "client_min_version", Value: expr.S("0.5.0")}, {Name: "updated_at", Value: expr.S("x")},
		}
		if _, err := store.Of(s).Write(t.Context(), store.Write{Kind: store.Put, Key: layout.VersionKey{}.Key(), Item: bare}); err != nil {
			t.Fatalf("Write() = %v", err)
		}
		if err := l.RaiseVersion(t.Context(), "0.10.0"); err != nil || v.read() != [4]string{schema, least, "0.10.0", "ops"} {
			t.Errorf("without a version of the aggregator: RaiseVersion() = %v, %v", err, v.read())
		}
	})
}

// In TestRaisingAsksForTheRecord, another writer raises one version between the look and the write. It does not sink.
func TestRaisingAsksForTheRecord(t *testing.T) {
	for _, test := range []struct {
		name   string
		raised [3]string // layout, oldest client, aggregator
		want   [4]string // with who wrote it
		admits bool      // that record admits this client
	}{
		{"layout", [3]string{"0.99.0", "0.5.0", ""}, [4]string{"0.99.0", zlimit.ClientMinVersion, "0.10.0", "ops"}, true},
		{"client", [3]string{"0.9.0", "0.99.0", ""}, [4]string{"0.9.0", "0.99.0", "", "somebody"}, false},
		{"aggregator", [3]string{"0.9.0", "0.5.0", "0.42.0"}, [4]string{zlimit.SchemaVersion, zlimit.ClientMinVersion, "0.42.0", "ops"}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := hook(newMemory(t))
			l := newLimiter(t, zlimit.StoreOn(p), zlimit.WithPrincipal("ops"))
			v := versioned{t, p.Store}
			v.write("0.9.0", "0.5.0", "")
			p.once(func() { v.write(test.raised[0], test.raised[1], test.raised[2]) })
			err := l.RaiseVersion(context.Background(), "0.10.0")
			if refused := errors.As(err, new(*zlimit.VersionError)); refused == test.admits || test.admits && err != nil {
				t.Errorf("RaiseVersion() = %v, want a VersionError: %t", err, !test.admits)
			}
			if v.read() != test.want {
				t.Errorf("the record has %v, want %v", v.read(), test.want)
			}
		})
	}
}

// TestSetupOfADeployment raises the versions of a table that older programs have made, and leaves them alone if nothing was
// deployed.
func TestSetupOfADeployment(t *testing.T) {
	s := newMemory(t)
	newLimiter(t, s)
	v := versioned{t, store.Of(s)}
	v.write("0.9.0", "0.5.0", "0.9.0")
	for _, test := range []struct {
		name  string
		hooks hooks.Limiter
		want  [4]string
	}{
		{"nothing deployed", hooks.Limiter{}, [4]string{"0.9.0", "0.5.0", "0.9.0", "somebody"}},
		{"an aggregator", hooks.Limiter{Deployment: &hooks.Deployment{Aggregator: "0.10.0"}}, [4]string{zlimit.SchemaVersion, zlimit.ClientMinVersion, "0.10.0", "ops"}},
	} {
		newLimiter(t, s, zlimit.WithSetup(), zlimit.WithPrincipal("ops"), zlimit.WithHooks(test.hooks))
		if got := v.read(); got != test.want {
			t.Errorf("%s: the record has %v, want %v", test.name, got, test.want)
		}
	}
}

// TestKindsAskForClients stores limits of each kind that older clients would not obey, by each call that stores limits. The table asks for
// clients that do before it has the limits. It asks once.
func TestKindsAskForClients(t *testing.T) {
	plain := zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 60), zlimit.Daily("rpd", 500, "UTC")}}
	kinds := map[string]struct {
		config zlimit.Config
		client string
	}{
		"limits that older clients know": {plain, zlimit.ClientMinVersion},
		"windows":                        {zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 60).When("* 9-17 * * *", "x2")}}, "0.14.0"},
		"windows of a quota":             {zlimit.Config{Limits: []zlimit.Limit{zlimit.Daily("rpd", 500, "UTC").When("* * * * 6,7", "x2")}}, "0.14.0"},
		"a session quota":                {zlimit.Config{Limits: []zlimit.Limit{zlimit.Session("tokens", 5, time.Hour), zlimit.PerMinute("rpm", 60).When("* 9-17 * * *", "x2")}}, "0.15.0"},
		"a soft limit":                   {zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 60).Soft()}}, "0.17.0"},
		"a shadow limit":                 {zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 60).Shadow()}}, "0.17.0"},
		"a soft session quota":           {zlimit.Config{Limits: []zlimit.Limit{zlimit.Session("tokens", 5, time.Hour).Soft()}}, "0.17.0"},
		"guaranteed shares":              {zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 60).Floor("batch", 20).Share("batch", 5)}}, "0.17.1"},
		"rollover":                       {zlimit.Config{Limits: []zlimit.Limit{zlimit.Monthly("usd", 25, "UTC").CarryOver(50)}}, "0.17.1"},
		"slots":                          {zlimit.Config{Limits: []zlimit.Limit{zlimit.Slots("slots", 20, zlimit.Term(30*time.Second))}}, "0.17.1"},
		"floors alone":                   {zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 60).Floor("batch", 20)}}, zlimit.ClientMinVersion},
		"a wider resource":               {zlimit.Config{Limits: plain.Limits, Within: "models"}, "0.17.1"},
	}
	at := zlimit.Level{Resource: "gpt-4"}
	writers := map[string]func(context.Context, *zlimit.RateLimiter, zlimit.Config) error{
		"Set": func(ctx context.Context, l *zlimit.RateLimiter, c zlimit.Config) error {
			return l.Limits.Set(ctx, at, c)
		},
		"Update": func(ctx context.Context, l *zlimit.RateLimiter, c zlimit.Config) error {
			return l.Limits.Update(ctx, at, func(to *zlimit.Config) error {
				*to = c
				return nil
			})
		},
		"Apply": func(ctx context.Context, l *zlimit.RateLimiter, c zlimit.Config) error {
			_, err := l.Limits.Apply(ctx, zlimit.Declaration{Resource: "gpt-4", Limits: c.Limits})
			return err
		},
		"Replace": func(ctx context.Context, l *zlimit.RateLimiter, c zlimit.Config) error {
			lock, err := l.Managed.Lock(ctx, time.Minute)
			if err != nil {
				return err
			}
			_, err = l.Managed.Replace(ctx, lock, zlimit.Stored{Level: at}, zlimit.Stored{Level: at, Config: c})
			return errors.Join(err, l.Managed.Unlock(context.WithoutCancel(ctx), lock))
		},
	}
	for kind, k := range kinds {
		for writer, write := range writers {
			if writer == "Apply" && k.config.Within != "" {
				continue // it stores limits alone
			}
			t.Run(kind+"/"+writer, func(t *testing.T) {
				ctx := context.Background()
				p := hook(newMemory(t))
				l := newLimiter(t, zlimit.StoreOn(p), zlimit.WithPrincipal("ops"))
				v := versioned{t, p.Store}
				check.Fatal(t, "Limits.Set()", l.Limits.Set(ctx, zlimit.Level{Resource: "models"}, plain))
				level := layout.ResourceConfigKey{NS: l.NS(), Resource: "gpt-4"}.Key()
				if k.client != zlimit.ClientMinVersion {
					v.write(zlimit.SchemaVersion, "0.99.0", "")
					if err := write(ctx, l, k.config); !errors.As(err, new(*zlimit.VersionError)) || stored(t, l, level) != nil {
						t.Errorf("in a table for later clients: %v, and %v is stored", err, stored(t, l, level))
					}
					v.write(zlimit.SchemaVersion, zlimit.ClientMinVersion, "")
				}
				if err := write(ctx, l, k.config); err != nil || v.read()[1] != k.client {
					t.Errorf("%v; the table asks for %s, want %s", err, v.read()[1], k.client)
				}
				v.write(zlimit.SchemaVersion, "0.5.0", "")
				if err := l.Limits.Set(ctx, at, k.config); err != nil || v.read()[1] != "0.5.0" {
					t.Errorf("again: %v; the table asks for %s", err, v.read()[1])
				}
			})
		}
	}
}
