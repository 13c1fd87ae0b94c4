package zlimit_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

// start is when the events of these tests begin.
var start = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

// decided is the event of a request, after which so many of 100 tokens a minute are left.
func decided(entity string, after time.Duration, available int64) zlimit.Event {
	return zlimit.Event{
		Kind: zlimit.EventDecision, Operation: zlimit.OpAcquire, Time: start.Add(after), Entity: entity, Resource: "api", Result: zlimit.ResultOK,
		Statuses: zlimit.Statuses{
			{Entity: entity, Resource: "api", Limit: zlimit.PerMinute("tpm", 100), Available: available},
			{Entity: entity, Resource: "api", Limit: zlimit.PerMinute("rpm", 1000)},
		},
	}
}

func TestOnLevel(t *testing.T) {
	var told []string
	observe := zlimit.OnLevel("tpm", 0.8, func(_ context.Context, s zlimit.Status) {
		told = append(told, s.Entity+" "+strconv.FormatInt(s.Available, 10))
	})
	for _, test := range []struct {
		event zlimit.Event
		want  string // "" for nothing
	}{
		{decided("alice", 0, 21), ""},
		{decided("alice", time.Second, 20), "alice 20"},
		{decided("alice", 2*time.Second, 0), ""}, // reported in this period
		{decided("bob", 2*time.Second, -5), "bob -5"},
		{decided("alice", 61*time.Second-1, 10), ""},
		{decided("alice", 61*time.Second, 10), "alice 10"},
		{decided("alice", 200*time.Second, 100), ""},
		{zlimit.Event{Kind: zlimit.EventStore, Time: start}, ""},
	} {
		told = nil
		observe(t.Context(), test.event)
		if got := strings.Join(told, ", "); got != test.want {
			t.Errorf("after %v of %s: told %q, want %q", test.event.Time.Sub(start), test.event.Entity, got, test.want)
		}
	}
}

// TestOnLevelForgets reports more buckets than are remembered: each once as long as old ones are over.
func TestOnLevelForgets(t *testing.T) {
	told := 0
	observe := zlimit.OnLevel("tpm", 1, func(context.Context, zlimit.Status) { told++ })
	const many = 200_000
	for i := range many {
		observe(t.Context(), decided(strconv.Itoa(i), time.Duration(i)*10*time.Millisecond, 0))
	}
	if told != many {
		t.Errorf("told %d times of %d buckets", told, many)
	}
	last := decided(strconv.Itoa(many-1), many*10*time.Millisecond, 0)
	observe(t.Context(), last)
	if told != many {
		t.Error("a bucket that was just told of is told of again")
	}
}

func TestOnLevelOfNothing(t *testing.T) {
	f := func(context.Context, zlimit.Status) {}
	for name, wrong := range map[string]func(){
		"no limit":     func() { zlimit.OnLevel("", 0.8, f) },
		"no share":     func() { zlimit.OnLevel("tpm", 0, f) },
		"a percentage": func() { zlimit.OnLevel("tpm", 80, f) },
		"no number":    func() { zlimit.OnLevel("tpm", math.NaN(), f) },
		"no function":  func() { zlimit.OnLevel("tpm", 0.8, nil) },
	} {
		func() {
			defer func() {
				if text, ok := recover().(string); !ok || !strings.HasPrefix(text, "zlimit: OnLevel: ") {
					t.Errorf("%s: recover() = %q", name, text)
				}
			}()
			wrong()
		}()
	}
}

func TestLogTo(t *testing.T) {
	for _, test := range []struct {
		event zlimit.Event
		want  string
	}{
		{decided("alice", 0, 5), "level=DEBUG msg=\"zlimit: decision\" result=ok operation=acquire entity=alice resource=api\n"},
		{
			zlimit.Event{Kind: zlimit.EventDecision, Entity: "alice", Result: zlimit.ResultRejected, Limit: "tpm", Amounts: []zlimit.Amount{{"tpm", 7}}, Duration: time.Second},
			"level=INFO msg=\"zlimit: decision\" result=rejected entity=alice limit=tpm amounts.tpm=7 duration=1s\n",
		},
		{
			zlimit.Event{Kind: zlimit.EventStore, Operation: "write", Result: zlimit.ResultUnavailable, WriteUnits: 1, Err: errors.New("no answer")},
			"level=WARN msg=\"zlimit: store\" result=unavailable operation=write read_units=0 write_units=1 error=\"no answer\"\n",
		},
		{zlimit.Event{Kind: zlimit.EventSettle, Result: zlimit.ResultError}, "level=ERROR msg=\"zlimit: settle\" result=error\n"},
		{zlimit.Event{Kind: zlimit.EventShards, Result: zlimit.ResultOK, Shards: -1}, "level=INFO msg=\"zlimit: shards\" result=ok shards=-1\n"},
		{zlimit.Event{Kind: zlimit.EventConfig, Result: zlimit.ResultOK}, "level=INFO msg=\"zlimit: config\" result=ok\n"},
		{zlimit.Event{}, "level=DEBUG msg=\"zlimit: unknown\" result=\"\"\n"},
	} {
		var b bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey && len(groups) == 0 {
				return slog.Attr{}
			}
			return a
		}}))
		zlimit.LogTo(logger)(t.Context(), test.event)
		if got := b.String(); got != test.want {
			t.Errorf("logged\n%swant\n%s", got, test.want)
		}
	}
}

func TestNothingIsAllocatedForWhatIsNotLogged(t *testing.T) {
	observe := zlimit.Observers(zlimit.LogTo(slog.New(slog.DiscardHandler)), nil, zlimit.OnLevel("tpm", 0.8, func(context.Context, zlimit.Status) {}))
	e := decided("alice", 0, 50)
	if got := testing.AllocsPerRun(100, func() { observe(t.Context(), e) }); got != 0 {
		t.Errorf("%v allocations, want none", got)
	}
}

func TestResultOf(t *testing.T) {
	for _, test := range []struct {
		err  error
		want zlimit.Result
	}{
		{nil, zlimit.ResultOK},
		{&zlimit.ExceededError{}, zlimit.ResultRejected},
		{&zlimit.UnavailableError{Err: context.DeadlineExceeded}, zlimit.ResultUnavailable},
		{zlimit.ErrContended, zlimit.ResultContended},
		{&zlimit.ValidationError{}, zlimit.ResultInvalid},
		{zlimit.ErrNoLimits, zlimit.ResultNoLimits},
		{context.Canceled, zlimit.ResultCanceled},
		{zlimit.ErrLeaseClosed, zlimit.ResultClosed},
		{errors.New("denied"), zlimit.ResultError},
	} {
		if got := zlimit.ResultOf(test.err); got != test.want {
			t.Errorf("ResultOf(%v) = %s, want %s", test.err, got, test.want)
		}
	}
}

func TestObserversAreToldInTheirOrder(t *testing.T) {
	var told []int
	observer := func(i int) zlimit.Observer {
		return func(context.Context, zlimit.Event) { told = append(told, i) }
	}
	zlimit.Observers(observer(1), nil, observer(2))(t.Context(), zlimit.Event{})
	if !slices.Equal(told, []int{1, 2}) {
		t.Errorf("told %v, want 1 and 2", told)
	}
}
