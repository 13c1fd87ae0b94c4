package zlimit_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/internal/declaration"
	"github.com/zlimit/zlimit-go/internal/grammar"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
)

var updateForms = flag.Bool("update.forms", false, "rewrite testdata/limit_forms.txt")

// limitKinds are limits of each kind.
var limitKinds = []zlimit.Limit{
	zlimit.PerMinute("refill", 60),
	zlimit.PerMinute("windows", 60).When("* 9-17 * * *", "x2"),
	zlimit.PerMonth("quota", 60),
	zlimit.Session("session", 60, 5*time.Hour),
	zlimit.Prepaid("prepaid", 60),
	zlimit.Slots("slots", 60),
}

// A limitEdit is what is done to one field of a limit.
type limitEdit struct {
	name string
	edit func(l *zlimit.Limit)
}

// limitEdits give each field of a limit no value, values that some kinds may have, and values that none may have.
func limitEdits() (edits []limitEdit) {
	edits = fieldEdits(edits, "name", func(l *zlimit.Limit) *string { return &l.Name }, "", "a b", "wcu", "usd")
	edits = fieldEdits(edits, "capacity", func(l *zlimit.Limit) *int64 { return &l.Capacity }, 0, -1, 2_000_000_000, 1<<62)
	edits = fieldEdits(edits, "refill", func(l *zlimit.Limit) *int64 { return &l.RefillAmount }, 0, 7, -1)
	edits = fieldEdits(edits, "period", func(l *zlimit.Limit) *time.Duration { return &l.RefillPeriod }, 0, time.Hour, time.Millisecond, time.Microsecond)
	edits = fieldEdits(edits, "resets", func(l *zlimit.Limit) *string { return &l.Resets }, "", "0 8 * * *", "0 8 * *")
	edits = fieldEdits(edits, "zone", func(l *zlimit.Limit) *string { return &l.Zone }, "", "Europe/Berlin", "Nowhere")
	edits = fieldEdits(edits, "windows", func(l *zlimit.Limit) *string { return &l.Windows }, "", "* 9-17 * * * x2", "* 9-17 * * * to 20:10/30s", "* 9 x2")
	edits = fieldEdits(edits, "floors", func(l *zlimit.Limit) *string { return &l.Floors }, "", "batch=20", "batch=20+5", "batch=0+1", "batch=200")
	edits = fieldEdits(edits, "term", func(l *zlimit.Limit) *time.Duration { return &l.Term }, 0, time.Minute, 1500*time.Millisecond, 48*time.Hour)
	edits = fieldEdits(edits, "session", func(l *zlimit.Limit) *time.Duration { return &l.Session }, 0, time.Hour, 1500*time.Millisecond, grammar.MaxSession)
	edits = fieldEdits(edits, "carry", func(l *zlimit.Limit) *int64 { return &l.Carry }, 0, 50, -1, 1<<40)
	return fieldEdits(edits, "mode", func(l *zlimit.Limit) *zlimit.LimitMode { return &l.Mode }, "", zlimit.ModeSoft, zlimit.ModeShadow, "loud")
}

func fieldEdits[T any](edits []limitEdit, field string, of func(*zlimit.Limit) *T, values ...T) []limitEdit {
	for _, v := range values {
		edits = append(edits, limitEdit{fmt.Sprintf("%s %q", field, fmt.Sprint(v)), func(l *zlimit.Limit) { *of(l) = v }})
	}
	return edits
}

// limitForms are the ways by which a limit comes into a program. Each returns the limit that came in, or why it is refused.
var limitForms = []struct {
	name string
	take func(t *testing.T, l zlimit.Limit) (string, error)
}{
	{"value", func(_ *testing.T, l zlimit.Limit) (string, error) {
		text, err := l.MarshalText()
		return string(text), err
	}},
	{"text", func(_ *testing.T, l zlimit.Limit) (string, error) {
		var got zlimit.Limit
		err := got.UnmarshalText([]byte(l.String()))
		return got.String(), err
	}},
	{"JSON", func(t *testing.T, l zlimit.Limit) (string, error) {
		var got zlimit.Limit
		err := got.UnmarshalJSON(jsonOf(t, l))
		if err == nil {
			text := check.Call(got.MarshalJSON()).Must(t, "MarshalJSON()")
			return string(text), nil
		}
		return "", err
	}},
	{"file", func(t *testing.T, l zlimit.Limit) (string, error) {
		name, rate, _ := strings.Cut(l.String(), "=")
		text, err := json.Marshal(map[string]any{"system": map[string]any{"limits": map[string]string{name: rate}}})
		check.Fatal(t, "json.Marshal()", err)
		d, err := declaration.Load("file", text)
		if err == nil {
			return d.System.Limits[0].String(), nil
		}
		return "", err
	}},
	{"stored", func(t *testing.T, l zlimit.Limit) (string, error) {
		limiter := newLimiter(t, newMemory(t))
		if err := limiter.Limits.Set(t.Context(), zlimit.Level{}, zlimit.Config{Limits: []zlimit.Limit{l}}); err != nil {
			return "", err
		}
		stored := check.Call(limiter.Limits.Get(t.Context(), zlimit.Level{})).Must(t, "Limits.Get()")
		return stored.Limits[0].String() + differences(l, stored.Limits[0]), nil
	}},
	{"request", func(t *testing.T, l zlimit.Limit) (string, error) {
		r := ask(zlimit.Amounts{l.Name: 1})
		r.Limits = []zlimit.Limit{l}
		lease, err := newLimiter(t, newMemory(t)).Acquire(t.Context(), r)
		if err == nil {
			return l.String(), lease.Rollback(t.Context())
		}
		return "", err
	}},
}

// differences returns the fields of a limit that has another value than the one that was stored: its text may leave out a field.
func differences(want, got zlimit.Limit) (text string) {
	for field, value := range reflect.ValueOf(got).Fields() {
		if set := reflect.ValueOf(want).FieldByIndex(field.Index); !value.Equal(set) {
			text += fmt.Sprintf("; %s is %v, and was set to %v", field.Name, value, set)
		}
	}
	return text
}

// jsonOf returns all fields of a limit that have a value as JSON, also those that do not go together.
func jsonOf(t *testing.T, l zlimit.Limit) []byte {
	t.Helper()
	body := map[string]any{
		"name": l.Name, "capacity": l.Capacity, "refill_amount": l.RefillAmount, "refill_period_seconds": grammar.Seconds(l.RefillPeriod),
		"resets": l.Resets, "zone": l.Zone, "windows": l.Windows, "floors": l.Floors, "carry": l.Carry, "mode": l.Mode,
		"term_seconds": grammar.Seconds(l.Term), "session_seconds": grammar.Seconds(l.Session),
	}
	for key, value := range body {
		if text := fmt.Sprint(value); text == "" || text == "0" {
			delete(body, key)
		}
	}
	return check.Call(json.Marshal(body)).Must(t, "json.Marshal()")
}

// TestLimitForms gives each field of each kind of limit values that it may have and may not have. The limits come in by each form. What comes
// of them, and the texts of errors, are in testdata/limit_forms.txt. A form that is not there has the outcome of the value. "limits" of a config
// and of a request are "limit" there.
func TestLimitForms(t *testing.T) {
	const file = "testdata/limit_forms.txt"
	var got strings.Builder
	edited := make([]bool, reflect.TypeFor[zlimit.Limit]().NumField())
	for _, kind := range limitKinds {
		for _, e := range append([]limitEdit{{"as it is", func(*zlimit.Limit) {}}}, limitEdits()...) {
			l := kind
			if e.edit(&l); l == kind && e.name != "as it is" {
				continue
			}
			for field := range edited {
				edited[field] = edited[field] || !reflect.ValueOf(l).Field(field).Equal(reflect.ValueOf(kind).Field(field))
			}
			fmt.Fprintf(&got, "%s, %s\n", kind.Name, e.name)
			writeForms(t, &got, l)
		}
	}
	if at := slices.Index(edited, false); at >= 0 {
		t.Errorf("limitEdits has no value for the field %s", reflect.TypeFor[zlimit.Limit]().Field(at).Name)
	}
	if *updateForms {
		check.Fatal(t, "os.WriteFile()", os.WriteFile(file, []byte(got.String()), 0o600))
	}
	want := check.Call(os.ReadFile(file)).Must(t, "os.ReadFile()")
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got.String(), "\n")); diff != "" {
		t.Errorf("the outcome differs (-want +got); -update.forms writes it:\n%s", diff)
	}
}

// writeForms writes the outcome of a limit in each form that differs from that of the value.
func writeForms(t *testing.T, to *strings.Builder, l zlimit.Limit) {
	t.Helper()
	var ofValue string
	for _, form := range limitForms {
		text, err := form.take(t, l)
		if err != nil {
			text = strings.ReplaceAll(err.Error(), "\n", " / ")
			text = "refused: " + strings.TrimPrefix(strings.Replace(text, "invalid limits", "invalid limit", 1), "zlimit: ")
		}
		if form.name == "value" {
			ofValue = text
		} else if text == ofValue {
			continue
		}
		fmt.Fprintf(to, "\t%s: %s\n", form.name, text)
	}
}
