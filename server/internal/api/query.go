package api

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

// A query reads the parameters of a request, and keeps the first rule that one of them breaks.
type query struct {
	url.Values
	err error
}

// query returns the parameters of a request: each is known, and none comes twice.
func (c *call) query(known ...string) *query {
	values, err := url.ParseQuery(c.r.URL.RawQuery)
	q := &query{Values: values}
	if err != nil {
		q.invalid("query", c.r.URL.RawQuery, "must be of the form name=value&name=value")
		return q
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		switch {
		case !slices.Contains(known, name):
			q.invalid(shown([]byte(name)), values.Get(name), "is no parameter of this request")
		case len(values[name]) > 1:
			q.invalid(name, values[name][1], "is given twice")
		}
	}
	return q
}

// invalid notes that a parameter breaks a rule.
func (q *query) invalid(name, value, rule string) {
	q.keep(invalid(name, shown([]byte(value)), rule))
}

func (q *query) keep(err error) {
	if q.err == nil {
		q.err = err
	}
}

// required returns a parameter that must be given.
func (q *query) required(name string) string {
	if q.Get(name) == "" {
		q.invalid(name, "", "must be given")
	}
	return q.Get(name)
}

// flag returns a parameter that is true or false, false without it.
func (q *query) flag(name string) bool {
	value := q.Get(name)
	if value != "" && value != "true" && value != "false" {
		q.invalid(name, value, "must be true or false")
	}
	return value == "true"
}

// integer returns a whole number between bounds, or the usual one without the parameter.
func (q *query) integer(name string, usual, least, most int64) int {
	n := usual
	if value := q.Get(name); value != "" {
		q.keep(integer(&n, least, most)(name, json.RawMessage(value)))
	}
	return int(n)
}

func (q *query) window(name string) zlimit.Window {
	value := q.Get(name)
	if value == "" {
		return zlimit.WindowHourly
	}
	window, err := zlimit.ParseWindow(value)
	if err != nil {
		q.invalid(name, value, "must be hourly, daily or monthly")
	}
	return window
}

// time returns a time, or the usual one without the parameter.
func (q *query) time(name string, usual time.Time) time.Time {
	if value := q.Get(name); value != "" {
		q.keep(readTime(&usual, name, value))
	}
	return usual
}

// between returns the parameters from and to. The defaults end now, and begin some time before the end.
func (q *query) between(now time.Time, before, most time.Duration) (from, to time.Time) {
	to = q.time("to", now)
	from = q.time("from", to.Add(-before))
	if !from.Before(to) || to.Sub(from) > most {
		q.invalid("from", from.Format(time.RFC3339), fmt.Sprintf("must be before to, by %d days at most", most/(24*time.Hour)))
	}
	return from, to
}
