package zlimit_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/compare"
	"github.com/zlimit/zlimit-go/zlimit"
)

// A listed consumption is what an application may write itself.
type listed []zlimit.Amount

func (c listed) AppendAmounts(to []zlimit.Amount) []zlimit.Amount { return append(to, c...) }

// A modelUse is a consumption of the kind that zlimitgen writes.
type modelUse struct {
	model    string
	rpm, tpm int64
}

func (u modelUse) Resource() string { return u.model }

func (u modelUse) AppendAmounts(to []zlimit.Amount) []zlimit.Amount {
	return append(to, zlimit.Amount{"rpm", u.rpm}, zlimit.Amount{"tpm", u.tpm})
}

// A nothing is a consumption that can be asked if there is none.
type nothing struct{}

func (*nothing) AppendAmounts(to []zlimit.Amount) []zlimit.Amount { return to }

func TestAmountsAreAppendedInTheOrderOfTheirNames(t *testing.T) {
	got := zlimit.Amounts{"tpm": 3, "rpm": 2, "a": 0}.AppendAmounts([]zlimit.Amount{{"z", 1}})
	compare.Equal(t, "AppendAmounts()", []zlimit.Amount{{"z", 1}, {"a", 0}, {"rpm", 2}, {"tpm", 3}}, got)
}

func TestConsumptionsOfAllKinds(t *testing.T) {
	ctx := context.Background()
	for _, test := range []struct {
		name             string
		r                zlimit.Request
		more, correction zlimit.Consumption
	}{
		{"a map", ask(zlimit.Amounts{"rpm": 1, "tpm": 500}), zlimit.Amounts{"tpm": 30}, zlimit.Amounts{"tpm": -20, "rpm": 0}},
		{"a list", ask(listed{{"tpm", 500}, {"rpm", 1}}), listed{{"tpm", 30}}, listed{{"tpm", -20}}},
		{"one of a resource", ask(modelUse{"gpt-4", 1, 500}), modelUse{"gpt-4", 0, 30}, modelUse{"gpt-4", 0, -20}},
		{"one that names the resource", zlimit.Request{Entity: "key-1", Consume: modelUse{"gpt-4", 1, 500}}, &modelUse{"gpt-4", 0, 30}, modelUse{"gpt-4", 0, -20}},
		{"none, and then some", ask(listed{{"rpm", 0}}), listed{{"rpm", 1}, {"tpm", 500}}, listed{{"tpm", 10}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := newLimiter(t, newMemory(t), zlimit.WithClock(newClock().now))
			setSystem(t, l, zlimit.PerDay("rpm", 10), zlimit.PerDay("tpm", 1000))
			lease := acquire(t, l, test.r)
			check.Fatal(t, "Consume() and Adjust() and Release() and Consume() and Adjust() and Release()", errors.Join(
				lease.Consume(ctx, test.more), lease.Adjust(test.correction), lease.Release(zlimit.Amounts{"tpm": 5}),
				lease.Consume(ctx, nil), lease.Adjust(nil), lease.Release(nil),
			))
			compare.Equal(t, "Consumed()", zlimit.Amounts{"rpm": 1, "tpm": 505}, lease.Consumed())
			check.Fatal(t, "Commit()", lease.Commit(ctx))
			if got := available(t, l, "tpm"); got != 495 {
				t.Errorf("tpm has %d, want 495", got)
			}
		})
	}
}

func TestConsumptionsAreValidated(t *testing.T) {
	l := newLimiter(t, newMemory(t), zlimit.WithClock(newClock().now))
	setSystem(t, l, zlimit.PerDay("rpm", 10), zlimit.PerDay("tpm", 1000))
	lease := acquire(t, l, ask(modelUse{"gpt-4", 1, 500}))
	var many listed
	for i := range zlimit.MaxLimits + 1 {
		many = append(many, zlimit.Amount{fmt.Sprint("limit", i), 1})
	}
	for _, test := range []struct {
		name    string
		consume zlimit.Consumption
		want    string // of the field a %s, value and rule
	}{
		{"a limit twice", listed{{"rpm", 1}, {"tpm", 1}, {"rpm", 1}}, `invalid %s "rpm": is given twice`},
		{"a limit twice, with nothing of it", listed{{"rpm", 0}, {"rpm", 0}}, `invalid %s "rpm": is given twice`},
		{"more limits than a resource has", many, `invalid %s "17": must name at most 16 limits`},
		{"the first of two that are too much", zlimit.Amounts{"tpm": zlimit.MaxTokens + 1, "rpm": zlimit.MaxTokens + 2}, `invalid %s[rpm] "9223372036854777"`},
		{"a nil pointer", (*modelUse)(nil), `invalid %s "(*zlimit_test.modelUse)(nil)": must not be a nil pointer`},
		{"a nil pointer whose methods take one", (*nothing)(nil), `invalid %s "(*zlimit_test.nothing)(nil)": must not be a nil pointer`},
		{"one of another resource", modelUse{"gpt-5", 1, 1}, `invalid resource "gpt-4": the consumption is one of "gpt-5"`},
	} {
		for call, err := range map[string]error{
			"consume": lease.Consume(context.Background(), test.consume),
			"adjust":  lease.Adjust(test.consume),
			"release": lease.Release(test.consume),
		} {
			checkInvalid(t, test.name, err, strings.Replace(test.want, "%s", call, 1))
		}
		r := ask(test.consume)
		r.Entity = "key-2"
		_, err := l.Acquire(context.Background(), r)
		checkInvalid(t, test.name, err, strings.Replace(test.want, "%s", "consume", 1))
		_, err = l.TimeUntil(context.Background(), r)
		checkInvalid(t, test.name, err, strings.Replace(test.want, "%s", "consume", 1))
	}
	checkInvalid(t, "a negative release", lease.Release(modelUse{"gpt-4", 0, -1}), `invalid release[tpm] "-1": must be from 0`)
	checkInvalid(t, "an unknown limit", lease.Adjust(listed{{"tmp", 0}}), `invalid adjust[tmp] "0": no limit of that name`)
	_, err := l.Acquire(context.Background(), zlimit.Request{Entity: "key-2", Consume: modelUse{"4 ", 1, 1}})
	checkInvalid(t, "a consumption of a resource that cannot be", err, `invalid resource "4 ": must hold only`)
	_, err = l.Acquire(context.Background(), zlimit.Request{Entity: "key-2", Consume: (*modelUse)(nil)})
	checkInvalid(t, "a nil pointer that would name the resource", err, `invalid consume "(*zlimit_test.modelUse)(nil)"`)
	_, err = l.Acquire(context.Background(), zlimit.Request{Entity: "key-2", Consume: listed{{"rpm", 1}}})
	checkInvalid(t, "a resource that nobody names", err, `invalid resource "": must not be empty`)
	for name, nothing := range map[string]zlimit.Consumption{
		"none": nil, "a nil map": zlimit.Amounts(nil), "an empty map": zlimit.Amounts{}, "an empty list": listed{},
	} {
		_, err = l.Acquire(context.Background(), ask(nothing))
		checkInvalid(t, name, err, `invalid consume "": must name at least one limit`)
	}
	compare.Equal(t, "Consumed()", zlimit.Amounts{"rpm": 1, "tpm": 500}, lease.Consumed())
	if got := l.Engine().Memory.Len(); got != 1 {
		t.Errorf("%d buckets were looked for, want the one of the lease", got)
	}
}

func checkInvalid(t *testing.T, name string, err error, want string) {
	t.Helper()
	if !errors.As(err, new(*zlimit.ValidationError)) || !strings.Contains(err.Error(), want) {
		t.Errorf("%s: %v, want a ValidationError with %q", name, err, want)
	}
}

// TestAdjustIsAllOrNothing records nothing of a correction that is refused in part.
func TestAdjustIsAllOrNothing(t *testing.T) {
	l := newLimiter(t, newMemory(t), zlimit.WithClock(newClock().now))
	setSystem(t, l, zlimit.PerDay("rpm", 10), zlimit.PerDay("tpm", 1000))
	lease := acquire(t, l, ask(zlimit.Amounts{"rpm": 1, "tpm": 500}))
	err := lease.Adjust(listed{{"tpm", 100}, {"rpm", -2}})
	checkInvalid(t, "a correction below nothing", err, `invalid adjust[rpm] "-2": would leave the lease with less than nothing`)
	compare.Equal(t, "Consumed()", zlimit.Amounts{"rpm": 1, "tpm": 500}, lease.Consumed())
}

// A selfish consumption hands out its own list instead of appending.
type selfish struct{ amounts []zlimit.Amount }

func (s selfish) AppendAmounts([]zlimit.Amount) []zlimit.Amount { return s.amounts }

// TestConsumptionsKeepTheirAmounts shows that a list that a consumption returns is only read.
func TestConsumptionsKeepTheirAmounts(t *testing.T) {
	l := newLimiter(t, newMemory(t), zlimit.WithClock(newClock().now))
	setSystem(t, l, zlimit.PerDay("rpm", 10), zlimit.PerDay("tpm", 1000))
	own := []zlimit.Amount{{"tpm", 500}, {"rpm", 1}}
	before := slices.Clone(own)
	lease := acquire(t, l, ask(selfish{own}))
	check.Fatal(t, "Release()", lease.Release(selfish{own}))
	if !slices.Equal(own, before) {
		t.Errorf("the list is %v, want %v", own, before)
	}
}

// TestAdjustBeyondWhatCanBeCounted names the field and the limit.
func TestAdjustBeyondWhatCanBeCounted(t *testing.T) {
	l := newLimiter(t, newMemory(t))
	setSystem(t, l, zlimit.PerDay("tpd", 1000))
	lease := acquire(t, l, ask(zlimit.Amounts{"tpd": 1}))
	most := zlimit.Amounts{"tpd": zlimit.MaxTokens - 1}
	check.Fatal(t, "Adjust()", lease.Adjust(most))
	if err := lease.Adjust(most); invalid(err).Field != "adjust[tpd]" {
		t.Errorf("Adjust() = %v, want an error of adjust[tpd]", err)
	}
	check.Error(t, "Rollback()", lease.Rollback(t.Context()))
}
