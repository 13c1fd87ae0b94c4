// Package outage measures what requests meet while DynamoDB is away. It is a test alone, which `make outage` runs.
package outage

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/dynamo"
)

var (
	rates  = flag.String("outage.rates", "", "run all modes at these `rates`, such as 50,400,2000, and draw the table of docs/failures.md")
	saveTo = flag.String("outage.save", "", "do not check and draw the figures, but write them to this `file`")
)

const (
	pageFile   = "../../../docs/failures.md"
	beforeFile = "testdata/before.json" // of the last commit without a breaker, 79bf295, at 50 and 400 requests a second, written by -outage.save
	latency    = 4 * time.Millisecond   // of a call
	names      = 200                    // entities that are asked for in turn
	turns      = 400                    // a second at most; of more requests several in a row are for one entity, and share its writes
	atOnce     = time.Millisecond       // a decision that takes less made no call

	decisionTimeout = 250 * time.Millisecond // the default under PolicyAllow

	together = 5 * time.Millisecond // requests that come within come immediately

	steady, outage, after = time.Second, 10 * time.Second, 3 * time.Second
)

// A mode is a way in which DynamoDB is away.
type mode struct {
	name string
	hits func(body string) bool // which calls; nil for all
	most int                    // requests a second, of those whose calls are carried out during the outage; 0 for any number
	// call takes the place of a call. It is nil for a stopped process, which is one in real time.
	call func(n *network, r *http.Request, body []byte) (*http.Response, error)
}

var modes = []mode{
	{"the process is stopped (real time)", nil, 200, nil},
	{"calls are carried out, and not answered", nil, 0, func(n *network, r *http.Request, body []byte) (*http.Response, error) {
		_, _ = n.pass(r, body)
		return silent(n, r, body)
	}},
	{"connections swallow calls (half-open)", nil, 0, silent},
	{"connections are refused", nil, 0, func(*network, *http.Request, []byte) (*http.Response, error) {
		time.Sleep(time.Millisecond)
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	}},
	{"the name is not resolved", nil, 0, func(_ *network, r *http.Request, _ []byte) (*http.Response, error) {
		time.Sleep(10 * time.Millisecond)
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "server misbehaving", Name: r.URL.Host, IsTemporary: true}}
	}},
	{"errors of the server (500)", nil, 0, func(_ *network, r *http.Request, _ []byte) (*http.Response, error) {
		return answer(r, http.StatusInternalServerError, `{"__type":"com.amazonaws.dynamodb.v20120810#InternalServerError"}`)
	}},
	{"replies take 3 s", nil, 0, func(n *network, r *http.Request, body []byte) (*http.Response, error) {
		select {
		case <-time.After(3 * time.Second):
			return n.pass(r, body)
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}},
	{"throttles of the table", nil, 0, func(_ *network, r *http.Request, _ []byte) (*http.Response, error) {
		return answer(r, http.StatusBadRequest, `{"__type":"com.amazonaws.dynamodb.v20120810#ThrottlingException","throttlingReasons":[`+
			`{"reason":"TableWriteMaxOnDemandThroughputExceeded","resource":"arn:aws:dynamodb:us-east-1:000000000000:table/t"}]}`)
	}},
	{"a quarter of the keys is silent", func(body string) bool {
		entity := regexp.MustCompile(`BUCKET#(e\d+)#`).FindStringSubmatch(body)
		return entity != nil && inQuarter(entity[1])
	}, 400, silent},
}

// silent is a call that is not carried out, and not answered.
func silent(_ *network, r *http.Request, _ []byte) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

func inQuarter(entity string) bool { return crc32.ChecksumIEEE([]byte(entity))%4 == 0 }

func answer(r *http.Request, status int, body string) (*http.Response, error) {
	time.Sleep(latency)
	header := http.Header{"Content-Type": {"application/x-amz-json-1.0"}, "Date": {time.Now().UTC().Format(http.TimeFormat)}}
	return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

// A network carries calls to an engine. Its channels are made outside of the bubble, and so are the goroutines at their
// other ends. The time of the bubble stands still while the engine works.
type network struct {
	through http.RoundTripper // in real time; nil in a bubble
	free    chan chan exchange
	calls   atomic.Int64
	fault   atomic.Pointer[mode]
}

type exchange struct {
	request  *http.Request
	response *http.Response
	err      error
}

func newNetwork(t *testing.T, engine *enginetest.Engine) *network {
	n := &network{free: make(chan chan exchange, 8)}
	for range cap(n.free) {
		line := make(chan exchange)
		n.free <- line
		go func() {
			for x := range line {
				x.response, x.err = engine.Transport().RoundTrip(x.request)
				if x.err == nil {
					var body []byte
					body, x.err = io.ReadAll(x.response.Body)
					_ = x.response.Body.Close()
					x.response.Body = io.NopCloser(bytes.NewReader(body))
				}
				line <- x
			}
		}()
	}
	t.Cleanup(func() {
		for range cap(n.free) {
			close(<-n.free)
		}
	})
	return n
}

// RoundTrip implements http.RoundTripper.
func (n *network) RoundTrip(r *http.Request) (*http.Response, error) {
	n.calls.Add(1)
	if n.through != nil {
		return n.through.RoundTrip(r)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	if m := n.fault.Load(); m != nil && m.call != nil && (m.hits == nil || m.hits(string(body))) {
		return m.call(n, r, body)
	}
	return n.pass(r, body)
}

// pass passes a call on to the engine.
func (n *network) pass(r *http.Request, body []byte) (*http.Response, error) {
	time.Sleep(latency)
	sent := r.Clone(context.Background())
	sent.Body = io.NopCloser(bytes.NewReader(body))
	line := <-n.free
	line <- exchange{request: sent}
	x := <-line
	n.free <- line
	if x.err == nil {
		x.response.Header.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	}
	return x.response, x.err
}

// A decision is what came of a request.
type decision struct {
	entity   string
	at, took time.Duration
	counted  bool
	err      error
}

// A row is what the loads of one mode and policy met.
type row struct {
	mode   *mode
	policy zlimit.FailurePolicy
	loads  []figures
	before []figures
}

// Figures are what a load met. Times are in seconds.
type figures struct {
	Decided float64 `json:"decided"` // by the policy, per cent of the requests during the outage
	Noticed float64 `json:"noticed"` // after so long
	Median  float64 `json:"median"`  // of the requests that the policy decided after that, or of all during the outage where it was not noticed
	P99     float64 `json:"p99"`     // of the same
	Lines   float64 `json:"lines"`   // of log
	First   float64 `json:"first"`   // counted after the outage
	Last    float64 `json:"last"`    // not counted after the outage
	Burst   float64 `json:"burst"`   // calls in the first second after it, as a multiple of the usual ones
}

// name names the row in the figures of before.
func (r *row) name() string { return fmt.Sprintf("%s, %v", r.mode.name, r.policy) }

// columns are the heads of the figures, and how they are written. Some have a column of before.
var columns = []struct {
	head, format string
	of           func(f *figures) float64
	hasBefore    bool
}{
	{"Decided by it", "%.0f %%", func(f *figures) float64 { return f.Decided }, true},
	{"Noticed after", "", func(f *figures) float64 { return f.Noticed }, false},
	{"Median", "", func(f *figures) float64 { return f.Median }, true},
	{"99th percentile", "", func(f *figures) float64 { return f.P99 }, true},
	{"Lines of log", "%.0f", func(f *figures) float64 { return f.Lines }, true},
	{"First counted again after", "", func(f *figures) float64 { return f.First }, false},
	{"All counted after", "", func(f *figures) float64 { return f.Last }, true},
	{"Calls in the first second", "%.1f", func(f *figures) float64 { return f.Burst }, true},
}

// text writes a figure, seconds if there is no format.
func text(format string, v float64) string {
	switch d := time.Duration(v * float64(time.Second)); {
	case format != "":
		return fmt.Sprintf(format, v)
	case v == 0:
		return "0"
	case d < time.Millisecond:
		return fmt.Sprintf("%d µs", d.Microseconds())
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	default:
		return fmt.Sprintf("%.1f s", v)
	}
}

// String returns the row, with the least and the most of each figure.
func (r *row) String() string {
	line := fmt.Sprintf("| %s | `%v` |", r.mode.name, r.policy)
	for _, c := range columns {
		if c.hasBefore {
			line += " " + span(r.before, c.format, c.of) + " |"
		}
		line += " " + span(r.loads, c.format, c.of) + " |"
	}
	return line + "\n"
}

// span returns the least and the most of a figure.
func span(loads []figures, format string, of func(f *figures) float64) string {
	var all []float64
	for _, l := range loads {
		all = append(all, of(&l))
	}
	if len(all) == 0 {
		return "–"
	}
	least, most := text(format, slices.Min(all)), text(format, slices.Max(all))
	if least == most {
		return least
	}
	return least + " to " + most
}

// measure runs a load on a limiter whose store is away for a time.
func (r *row) measure(t *testing.T, rate int, n *network, client *dynamodb.Client, table string, stop func(bool)) {
	var log bytes.Buffer
	l := check.Call(zlimit.New(t.Context(), dynamo.New(client, table), zlimit.WithSetup(), zlimit.WithFailurePolicy(r.policy),
		zlimit.WithConfigTTL(5*time.Second), zlimit.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))).Must(t, "zlimit.New()")
	if err := l.Limits.Set(t.Context(), zlimit.Level{}, zlimit.Config{Limits: []zlimit.Limit{zlimit.PerDay("rpd", 1_000_000)}}); err != nil {
		t.Fatalf("Limits.Set() = %v", err)
	}
	var mu sync.Mutex
	var decisions []decision
	var requests sync.WaitGroup
	began, sent, inRow := time.Now(), 0, max(rate/turns, 1)
	every := time.Duration(names*inRow) * time.Second / time.Duration(rate)
	load := func(until time.Duration) (calls int64) {
		before := n.calls.Load()
		for ; time.Since(began) < until; sent++ {
			entity := fmt.Sprintf("e%d", sent/inRow%names)
			requests.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
				defer cancel()
				at := time.Since(began)
				lease, err := l.Acquire(ctx, zlimit.Request{Entity: entity, Resource: "api", Consume: zlimit.Amounts{"rpd": 1}})
				d := decision{entity, at, time.Since(began) - at, err == nil && !lease.Degraded(), err}
				mu.Lock()
				defer mu.Unlock()
				decisions = append(decisions, d)
			})
			if next := time.Duration(sent+1) * time.Second / time.Duration(rate); next >= time.Since(began)+together {
				time.Sleep(time.Until(began.Add(next)))
			}
		}
		return n.calls.Load() - before
	}
	from := max(steady, 2*every)
	until := from + outage
	load(from - time.Second)
	usual := load(from)
	n.fault.Store(r.mode)
	stop(true)
	load(until)
	n.fault.Store(nil)
	stop(false)
	burst := load(until + time.Second)
	load(until + after)
	requests.Wait()
	check.Error(t, "Close()", l.Close())
	r.add(t, decisions, from, until, every, strings.Count(log.String(), "\n"), float64(burst)/float64(usual))
}

// add takes the outcomes of a load into a row, and checks them by the rules of all modes.
// Each entity has a request every so often.
func (r *row) add(t *testing.T, decisions []decision, from, until, every time.Duration, lines int, burst float64) {
	slices.SortFunc(decisions, func(a, b decision) int { return cmp.Compare(a.at, b.at) })
	var took, all []time.Duration // of what the policy decides, once the outage is noticed, and of all requests during it
	noticed, first, last, longest := time.Duration(0), time.Duration(-1), time.Duration(0), time.Duration(0)
	known := map[string]bool{}          // what is noticed: the outage, or that of a key
	asked := map[string]time.Duration{} // for what may be noticed: when first
	var during, byPolicy int
	for _, d := range decisions {
		isHit := (r.mode.hits == nil || inQuarter(d.entity)) && d.at+d.took > from || r.mode.call == nil // or the machine is slow
		decided := d.counted || isHit && (r.policy == zlimit.PolicyAllow && d.err == nil || r.policy == zlimit.PolicyBlock && errors.As(d.err, new(*zlimit.UnavailableError)))
		if !decided && *saveTo == "" {
			t.Errorf("a request of %s, %v after the outage began, took %v: %v", d.entity, d.at-from, d.took, d.err)
		}
		if d.at >= from && d.at < until {
			during++
			if isHit {
				all = append(all, d.took)
			}
		}
		switch {
		case d.at < from || !isHit:
		case d.at < until && !d.counted:
			if decided {
				byPolicy++
			}
			part, since := d.entity, d.at
			if r.mode.hits == nil {
				part, since = "", from
			}
			if asked[part] == 0 {
				asked[part] = since
			}
			if longest = max(longest, d.took); !known[part] && d.took < atOnce {
				known[part], noticed = true, max(noticed, d.at-asked[part])
			}
			if known[part] {
				took = append(took, d.took)
			}
		case d.at >= until && !d.counted:
			last = d.at - until
		case d.at >= until && first < 0:
			first = d.at - until
		}
	}
	if len(took) == 0 && r.mode.hits != nil && *saveTo == "" {
		return // no key was asked for again before the outage was over
	}
	if len(took) == 0 && *saveTo != "" {
		took = all
	}
	if len(took) == 0 || first < 0 {
		t.Fatalf("of %d requests the policy decided %d, and none at once", during, byPolicy)
	}
	slices.Sort(took)
	p99 := took[len(took)*99/100]
	r.loads = append(r.loads, figures{
		100 * float64(byPolicy) / float64(during), noticed.Seconds(), took[len(took)/2].Seconds(), p99.Seconds(), float64(lines),
		first.Seconds(), last.Seconds(), burst,
	})
	if *saveTo != "" {
		return
	}
	if r.mode.call == nil {
		return // the time is real, and what the machine has besides takes of it
	}
	silence, bound := 500*time.Millisecond, 550*time.Millisecond // and what five calls take to come
	if r.policy == zlimit.PolicyAllow {
		silence, bound = 200*time.Millisecond, decisionTimeout
	}
	if r.mode.hits != nil {
		bound = silence + every // until the next request of the key
	}
	if noticed > bound || r.policy == zlimit.PolicyAllow && longest > decisionTimeout {
		t.Errorf("the outage is noticed after %v, want %v; a request waited for %v", noticed, bound, longest)
	}
	if p99 > 5*time.Millisecond || lines > 10 || last > 2*time.Second || burst > 2 {
		t.Errorf("the policy decides in %v, %d lines are logged, all is counted after %v, and calls are %.1f of the usual", p99, lines, last, burst)
	}
}

// TestOutage runs some modes, or all of them for `make outage`, which draws the table.
func TestOutage(t *testing.T) {
	if testing.Short() {
		t.Skip("asks an engine some thousand times")
	}
	engine := enginetest.Start(t)
	loads := strings.Split(cmp.Or(*rates, "200"), ",")
	var rows []*row
	for i := range modes {
		for _, policy := range []zlimit.FailurePolicy{zlimit.PolicyAllow, zlimit.PolicyBlock} {
			r := &row{mode: &modes[i], policy: policy}
			rows = append(rows, r)
			for _, load := range loads {
				rate := check.Call(strconv.Atoi(load)).Must(t, "strconv.Atoi()")
				rate = min(rate, cmp.Or(modes[i].most, rate))
				if *rates != "" || i%3 == 2 && i%2 == int(policy)%2 {
					t.Run(fmt.Sprintf("%s, %v, %d", r.mode.name, policy, rate), func(t *testing.T) { r.run(t, engine, rate) })
				}
			}
			if len(r.loads) > 0 {
				t.Log(r)
			}
		}
	}
	switch {
	case *saveTo != "":
		save(t, rows)
	case *rates != "" && !t.Failed():
		draw(t, tableOf(t, loads, rows))
	}
}

// tableOf returns the table of the page.
func tableOf(t *testing.T, loads []string, rows []*row) string {
	before := map[string][]figures{}
	if text, err := os.ReadFile(beforeFile); err != nil || json.Unmarshal(text, &before) != nil {
		t.Fatalf("%s cannot be read: %v", beforeFile, err)
	}
	table, rule := "Requests for 200 keys, "+strings.Join(loads, ", ")+" of them a second:\n\n| DynamoDB | Policy |", "|---|---|"
	for _, c := range columns {
		if c.hasBefore {
			table, rule = table+" "+c.head+", before | now |", rule+"---|---|"
		} else {
			table, rule = table+" "+c.head+" |", rule+"---|"
		}
	}
	table += "\n" + rule + "\n"
	for _, r := range rows {
		r.before = before[r.name()]
		if len(r.loads) > 0 {
			table += r.String()
		} else {
			table += r.drawn(t)
		}
	}
	return table
}

// drawn returns the row as the page has it, for one that -run does not choose.
func (r *row) drawn(t *testing.T) string {
	page := check.Call(os.ReadFile(pageFile)).Must(t, "os.ReadFile()")
	head := fmt.Sprintf("| %s | `%v` |", r.mode.name, r.policy)
	line := regexp.MustCompile("(?m)^" + regexp.QuoteMeta(head) + ".*\n").Find(page)
	if line == nil {
		t.Fatalf("%s has no row %s", pageFile, head)
	}
	return string(line)
}

// save writes figures to the file of -outage.save.
func save(t *testing.T, rows []*row) {
	of := map[string][]figures{}
	for _, r := range rows {
		of[r.name()] = r.loads
	}
	text := check.Call(json.MarshalIndent(of, "", "\t")).Must(t, "json.MarshalIndent()")
	check.Fatal(t, "os.WriteFile()", os.WriteFile(*saveTo, append(text, '\n'), 0o600))
}

// run runs one load.
func (r *row) run(t *testing.T, engine *enginetest.Engine, rate int) {
	if r.mode.call != nil {
		if *rates != "" {
			engine = enginetest.Fresh(t) // its calls take longer, the more it has carried out
		}
		n, table := newNetwork(t, engine), engine.Table(t)
		client := engine.Client(func(o *dynamodb.Options) { o.HTTPClient = &http.Client{Transport: n} })
		synctest.Test(t, func(t *testing.T) { r.measure(t, rate, n, client, table, func(bool) {}) })
		return
	}
	engine = enginetest.Fresh(t)
	n := &network{through: engine.Transport()}
	client := engine.Client(func(o *dynamodb.Options) { o.HTTPClient = &http.Client{Transport: n} })
	r.measure(t, rate, n, client, engine.Table(t), func(stopped bool) {
		signal := syscall.SIGCONT
		if stopped {
			signal = syscall.SIGSTOP
		}
		check.Error(t, "Signal()", engine.Signal(signal))
	})
}

// draw puts the table between its marks in the page.
func draw(t *testing.T, table string) {
	page := check.Call(os.ReadFile(pageFile)).Must(t, "os.ReadFile()")
	marked := regexp.MustCompile(`(?s)(<!-- make outage -->\n).*(<!-- end of make outage -->)`)
	if !marked.Match(page) {
		t.Fatalf("%s has no marks for the table", pageFile)
	}
	check.Fatal(t, "os.WriteFile()", os.WriteFile(pageFile, marked.ReplaceAll(page, []byte("${1}"+table+"${2}")), 0o600))
}
