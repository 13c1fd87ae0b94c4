package scale

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"time"
)

// Figures are the results of the cases: as the code was once, and as it is now.
type Figures struct {
	Before map[string]*Figure `json:"before"`
	Now    map[string]*Figure `json:"now"`
}

// A Figure is the result of one case.
type Figure struct {
	Tally
	Seconds     float64           `json:"seconds"`
	Rate        float64           `json:"rate,omitempty"` // requests a second of one bucket
	Writes      float64           `json:"writes"`         // a request: write units, of failed conditions and indexes too
	Reads       float64           `json:"reads"`          // a request: read units
	Failed      float64           `json:"failed"`         // part of the writes whose condition failed
	P50         float64           `json:"p50"`            // milliseconds
	P99         float64           `json:"p99"`
	Over        int64             `json:"over"`
	Shards      int               `json:"shards"`
	Started     int               `json:"started"`
	StartTime   float64           `json:"start_time"` // seconds
	TableSplits int               `json:"table_splits"`
	Throttled   map[string]uint64 `json:"throttled,omitempty"`
	Series      []Tally           `json:"series,omitempty"`
	Groups      map[string]*Tally `json:"groups,omitempty"` // where no group is shown by itself
	Usage       *Usage            `json:"usage,omitempty"`
	Away        *Away             `json:"away,omitempty"`
	Spans       []*Spent          `json:"spans,omitempty"`
	Queue       *Queue            `json:"queue,omitempty"`
	Walk        *Walk             `json:"walk,omitempty"`
	Crossed     []int             `json:"crossed,omitempty"` // items that one write has brought into their next period, and several
}

// Away is what came of an outage.
type Away struct {
	Return float64 `json:"return"` // calls in the first second after it, as a multiple of those in the second before it
	Back   float64 `json:"back"`   // seconds after it, when the last request came that was not counted
}

// figureOf returns the figure of an outcome; group names the group whose tally is shown.
func figureOf(o *Outcome, group string, series bool) *Figure {
	f := &Figure{
		Tally: o.Tally, Seconds: o.Seconds, Over: o.Over, Shards: o.Shards, Started: o.Started,
		Writes:      rounded(o.Used.WriteUnits/float64(max(o.Offered, 1)), 3),
		Reads:       rounded(o.Used.ReadUnits/float64(max(o.Offered, 1)), 3),
		Failed:      rounded(float64(o.Used.Failed)/float64(max(o.Used.Writes, 1)), 3),
		P50:         rounded(o.P50.Seconds()*1000, 1),
		P99:         rounded(o.P99.Seconds()*1000, 1),
		StartTime:   rounded(o.Starts.Seconds(), 2),
		TableSplits: o.Used.Splits,
		Throttled:   o.Used.Throttled,
	}
	if group != "" && o.Groups[group] != nil {
		f.Tally = *o.Groups[group]
	}
	if series {
		f.Series = o.Series
	}
	if f.Usage = o.Usage; group == "" {
		f.Groups = o.Groups
	}
	if f.Spans, f.Queue, f.Walk = o.Spans, o.Queue, o.Walk; o.Crossed[0] > 0 {
		f.Crossed = o.Crossed[:]
	}
	if o.Used.Usual > 0 {
		f.Away = &Away{Return: rounded(float64(o.Used.Return)/float64(o.Used.Usual), 2), Back: rounded(o.Back.Seconds(), 2)}
	}
	return f
}

func rounded(x float64, digits int) float64 {
	unit := math.Pow(10, float64(digits))
	return math.Round(x*unit) / unit
}

// Prices of us-east-1 on demand, in dollars per million units.
const writePrice, readPrice = 0.625, 0.125

// A Metric is a figure as a table shows it.
type Metric struct {
	Head string
	Of   func(f *Figure) string
}

var (
	admitted    = Metric{"admitted a second", func(f *Figure) string { return whole(float64(f.Admitted) / f.Seconds) }}
	rejected    = Metric{"rejected a second", func(f *Figure) string { return whole(float64(f.Rejected) / f.Seconds) }}
	degraded    = Metric{"degraded a second", func(f *Figure) string { return whole(float64(f.Degraded) / f.Seconds) }}
	unavailable = Metric{"failed", func(f *Figure) string {
		return percent(float64(f.failures()) / float64(max(f.Offered, 1)))
	}}
	offered  = Metric{"offered a second", func(f *Figure) string { return whole(float64(f.Offered) / f.Seconds) }}
	breaksAt = Metric{"breaks at, requests a second", func(f *Figure) string {
		for i := range f.Series {
			if t := &f.Series[i]; float64(t.failures()) > float64(t.Offered)/100 {
				return whole(float64(t.Offered) * parts / f.Seconds)
			}
		}
		return "-"
	}}
	brokenBy = Metric{"by", func(f *Figure) string {
		most := "-"
		for _, reason := range slices.Sorted(maps.Keys(f.Throttled)) {
			if f.Throttled[reason] > f.Throttled[most] {
				most = reason
			}
		}
		return most
	}}
	unsettled = Metric{"unsettled", func(f *Figure) string {
		return percent(float64(f.Unsettled) / float64(max(f.Admitted, 1)))
	}}
	writesPerRequest = Metric{"writes a request", func(f *Figure) string { return fmt.Sprintf("%.2f", f.Writes) }}
	readsPerRequest  = Metric{"read units a request", func(f *Figure) string { return fmt.Sprintf("%.2f", f.Reads) }}
	failedPart       = Metric{"failed conditions", func(f *Figure) string { return percent(f.Failed) }}
	dollars          = Metric{"USD a million", func(f *Figure) string { return fmt.Sprintf("%.2f", f.price()) }}
	p99              = Metric{"99th percentile, ms", func(f *Figure) string { return whole(f.P99) }}
	over             = Metric{"over-admitted", func(f *Figure) string { return fmt.Sprint(f.Over) }}
	shards           = Metric{"shards", func(f *Figure) string { return fmt.Sprint(f.Shards) }}
	started          = Metric{"started", func(f *Figure) string { return fmt.Sprint(f.Started) }}
	startTime        = Metric{"seconds to start", func(f *Figure) string { return fmt.Sprintf("%.1f", f.StartTime) }}
)

// Figures of a full hour.
var (
	counted        = Metric{"seconds until all is counted", func(f *Figure) string { return whole(f.Usage.Seconds) }}
	usageUnits     = Metric{"write units a change", func(f *Figure) string { return fmt.Sprintf("%.2f", f.Usage.Units) }}
	usageThrottled = Metric{"throttled writes a change", func(f *Figure) string { return fmt.Sprintf("%.2f", f.Usage.Throttled) }}
)

// Figures of an outage.
var (
	returned = Metric{"calls in the first second after it", func(f *Figure) string {
		if f.Away == nil {
			return "–"
		}
		return fmt.Sprintf("%.1f times the usual", f.Away.Return)
	}}
	back = Metric{"all counted after, s", func(f *Figure) string {
		if f.Away == nil {
			return "–"
		}
		return fmt.Sprintf("%.1f", f.Away.Back)
	}}
)

// of returns a metric of the part of requests of a group that something became of.
func of(group, head string, part func(*Tally) int) Metric {
	return Metric{head, func(f *Figure) string {
		t := f.Groups[group]
		if t == nil {
			return "–"
		}
		return percent(float64(part(t)) / float64(max(t.Offered, 1)))
	}}
}

func failed(t *Tally) int { return t.failures() }

func slowPart(t *Tally) int { return t.Slow }

// uncounted returns the requests that the failure policy decided about.
func uncounted(t *Tally) int { return t.Unavailable + t.Degraded }

// failures returns the requests with an error other than a rejection.
func (t *Tally) failures() int { return t.Unavailable + t.Contended + t.Other }

// price returns the dollars for a million requests.
func (f *Figure) price() float64 { return f.Writes*writePrice + f.Reads*readPrice }

// usagePrice returns the dollars for the usage of a million requests. A batch of so long takes a write and half a
// read for each bucket that has changes in it. An hour takes three writes and a read when it ends.
func (f *Figure) usagePrice(batch float64) float64 {
	return perRequest(f.Rate, batch)*(writePrice+readPrice/2) + perRequest(f.Rate, 3600)*(3*writePrice+readPrice)
}

// perRequest returns how many intervals of that many seconds have requests, for each request; they come at random times.
func perRequest(rate, seconds float64) float64 {
	return (1 - math.Exp(-rate*seconds)) / (rate * seconds)
}

func usageDollars(batch float64) Metric {
	return Metric{fmt.Sprintf("USD for usage, %v s", batch), func(f *Figure) string { return fmt.Sprintf("%.2f", f.usagePrice(batch)) }}
}

func totalDollars(batch float64) Metric {
	return Metric{fmt.Sprintf("USD together, %v s", batch), func(f *Figure) string {
		return fmt.Sprintf("%.2f", f.price()+f.usagePrice(batch))
	}}
}

// whole returns a number without decimals, with commas.
func whole(x float64) string {
	text := fmt.Sprint(int64(math.Round(x)))
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

func percent(x float64) string {
	if x > 0 && x < 0.01 {
		return fmt.Sprintf("%.2f %%", 100*x)
	}
	return fmt.Sprintf("%.0f %%", 100*x)
}

// readFigures returns the figures of a file, none if there is no file.
func readFigures(file string) (*Figures, error) {
	f := &Figures{Before: map[string]*Figure{}, Now: map[string]*Figure{}}
	text, err := os.ReadFile(file)
	if os.IsNotExist(err) {
		return f, nil
	}
	if err == nil {
		err = json.Unmarshal(text, f)
	}
	return f, err
}

func (f *Figures) write(file string) error {
	text, err := json.MarshalIndent(f, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o600)
}

const pageHead = `# A fleet at scale

This page shows how a fleet of limiters uses one table. ` + "`make scale`" + ` measures it on a model of DynamoDB: hundreds to thousands
of real limiters run in virtual time, against a table with the partitions, quotas, indexes, conflicts and latencies that AWS
documents. ` + "`internal/proof/scale/params.go`" + ` has the figures of the model, and says which of them are judgement. Random numbers come
from a seed, but the order of goroutines varies. Units per request, and the amounts admitted within a limit, differ by a percent or
two from run to run. Failed, degraded and waiting requests in an overload depend on a few lost races, and may differ by a factor
of several.

*Before* is the code without [its rules for fleets](design/fleet.md#a-fleet): it advanced on stamps that other processes had moved,
and split buckets only after throttles and debts. A write unit costs 0.625 USD per million and a read unit 0.125 (us-east-1, on
demand). *Failed* are requests that got an error other than a rejection. *Over-admitted* are the most tokens by which an interval exceeds
an ideal bucket and the refill of the freshness. A request counts if its whole call is within the interval, since it is admitted at a time
within its call. A request that waits counts when its wait ends.

`

// page returns docs/scale.md.
func page(f *Figures, g grid, scenarios []Scenario) string {
	var b strings.Builder
	b.WriteString(pageHead)
	for i := range scenarios {
		s := &scenarios[i]
		fmt.Fprintf(&b, "## %s\n\n%s\n\n", s.Title, fold(s.Text))
		if len(s.Metrics) == 0 {
			b.WriteString(g.table(s) + "\n")
			continue
		}
		of := []map[string]*Figure{f.Before, f.Now}
		gap, head := " |", strings.Repeat(" before | now |", len(s.Metrics))
		if !slices.ContainsFunc(s.Cases, func(c Case) bool { return f.Before[s.caseName(&c)] != nil }) {
			of, gap, head = of[1:], "", ""
		}
		b.WriteString("| |")
		for _, m := range s.Metrics {
			fmt.Fprintf(&b, " %s |%s", m.Head, gap)
		}
		b.WriteString("\n|---|" + strings.Repeat("---|", len(of)*len(s.Metrics)) + "\n")
		if head != "" {
			b.WriteString("| |" + head + "\n")
		}
		for j := range s.Cases {
			name := s.caseName(&s.Cases[j])
			fmt.Fprintf(&b, "| %s |", s.Cases[j].Label)
			for _, m := range s.Metrics {
				for _, of := range of {
					text := "–"
					if figure := of[name]; figure != nil {
						text = m.Of(figure)
					}
					fmt.Fprintf(&b, " %s |", text)
				}
			}
			b.WriteString("\n")
		}
		b.WriteString("\n")
		for _, chart := range s.charts(f) {
			fmt.Fprintf(&b, "![%s](scale/%s)\n\n", chart.Title, chart.File)
		}
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}

// charts returns the charts of a scenario.
func (s *Scenario) charts(f *Figures) []Chart {
	if s.Plot == nil {
		return nil
	}
	return s.Plot(f, s)
}

// fold breaks a text into lines of at most 125 characters.
func fold(text string) string {
	const width = 125
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines, line = append(lines, line), ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return strings.Join(append(lines, line), "\n")
}

// plotFleets draws the writes of a request by the size of the fleet.
func plotFleets(f *Figures, s *Scenario) []Chart {
	c := Chart{File: s.Name + ".svg", Title: "Write units a request, by the number of processes", Y: "write units", Least: 2}
	for _, size := range fleetSizes {
		c.X = append(c.X, whole(float64(size)))
	}
	for i, rate := range fleetRates {
		for j, of := range []map[string]*Figure{f.Before, f.Now} {
			line := Line{Name: fmt.Sprintf("%v/s", rate), Color: i, Dashed: j == 0}
			for _, size := range fleetSizes {
				figure := of[s.Name+": "+fleetLabel(size, rate)]
				if figure == nil {
					figure = &Figure{Writes: math.NaN()}
				}
				line.Points = append(line.Points, figure.Writes)
			}
			c.Lines = append(c.Lines, line)
		}
	}
	return []Chart{c}
}

// plotOverTime draws something of a scenario's cases over time, each in a chart of its own.
func plotOverTime(what string, of func(*Tally) float64) func(*Figures, *Scenario) []Chart {
	return func(f *Figures, s *Scenario) (charts []Chart) {
		for i := range s.Cases {
			c := &s.Cases[i]
			name := s.caseName(c)
			chart := Chart{File: fmt.Sprintf("%s-%d.svg", s.Name, i+1), Title: c.Label + ": " + what, Y: what}
			measured := c.Load.For - c.Load.Settle
			for at := range parts {
				label := ""
				if at%10 == 0 {
					label = (c.Load.Settle + measured*time.Duration(at)/parts).String()
				}
				chart.X = append(chart.X, label)
			}
			offered := Line{Name: "offered", Color: 4}
			for j, figures := range []map[string]*Figure{f.Before, f.Now} {
				figure := figures[name]
				if figure == nil || len(figure.Series) == 0 {
					continue
				}
				line := Line{Name: "admitted", Dashed: j == 0}
				offered.Points = nil
				for k := range figure.Series {
					line.Points = append(line.Points, of(&figure.Series[k])*parts/figure.Seconds)
					offered.Points = append(offered.Points, float64(figure.Series[k].Offered)*parts/figure.Seconds)
				}
				chart.Lines = append(chart.Lines, line)
			}
			chart.Lines = append(chart.Lines, offered)
			charts = append(charts, chart)
		}
		return charts
	}
}
