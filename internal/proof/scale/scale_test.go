package scale

import (
	"flag"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zlimit/zlimit-go/internal/proof/check"
)

var (
	all    = flag.Bool("scale.all", false, "run all scenarios, keep what they measure, and draw docs/scale.md")
	only   = flag.String("scale.only", "", "run those cases alone whose name has this in it")
	before = flag.Bool("scale.before", false, "keep the figures as those of before")
	trial  = flag.Bool("scale.trial", false, "print the figures, and keep none")
	exact  = flag.Bool("scale.exact", false, "run the cases with WithFreshness(0), and keep none of their figures")
	draw   = flag.Bool("scale.draw", false, "draw docs/scale.md from the figures that are kept")
)

const (
	figuresFile = "testdata/figures.json"
	gridFile    = "testdata/latency.tsv"
	pageFile    = "../../../docs/scale.md"
	chartsDir   = "../../../docs/scale"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if !*all {
		runtime.GOMAXPROCS(1) // to wake a goroutine of a bubble elsewhere costs a tenth, and other packages have work
	}
	debug.SetGCPercent(400)
	debug.SetMemoryLimit(10 << 30)
	m.Run()
}

// run runs a load in a bubble of its own.
func run(t *testing.T, l *Load, p Params) (o *Outcome) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		o = check.Call(l.Run(p)).Must(t, "Run()")
	})
	return o
}

// TestScenarios runs the scenarios, keeps their figures, and draws the page. It is `make scale`.
func TestScenarios(t *testing.T) {
	if !*all {
		t.Skip("runs for minutes: make scale")
	}
	for _, s := range Scenarios() {
		for i := range s.Cases {
			c := &s.Cases[i]
			name := s.caseName(c)
			if !strings.Contains(name, *only) {
				continue
			}
			c.Load.Exact = *exact
			began := time.Now()
			o := run(t, &c.Load, c.Params)
			for text, n := range o.Errors {
				if o.Other > 0 {
					t.Logf("%d times: %s", n, text)
				}
			}
			keep := keepFigure
			if o.Contest != nil {
				keep = keepContest
			}
			keep(t, &s, c, name, o, time.Since(began))
		}
	}
	*draw = !*trial && !*exact
}

// keepFigure keeps the figures of a case.
func keepFigure(t *testing.T, s *Scenario, c *Case, name string, o *Outcome, took time.Duration) {
	t.Helper()
	figure := figureOf(o, c.Group, s.Name != "fleet" && s.Plot != nil)
	figure.Rate = c.Rate
	var line strings.Builder
	for _, m := range s.Metrics {
		line.WriteString("  " + m.Head + " " + m.Of(figure))
	}
	t.Logf("%s (%.1fs): %d offered%s  least left %.4f  %v", name, took.Seconds(), figure.Offered, line.String(), o.Left, o.Used.Throttled)
	if o.Over > 0 {
		t.Errorf("%s: %d tokens were admitted beyond the limit", name, o.Over)
	}
	if *trial || *exact {
		return
	}
	figures := check.Call(readFigures(figuresFile)).Must(t, "readFigures()")
	if *before {
		figures.Before[name] = figure
	} else {
		figures.Now[name] = figure
	}
	check.Fatal(t, "the figures of "+name, figures.write(figuresFile))
}

// keepContest keeps what came of a contest.
func keepContest(t *testing.T, s *Scenario, _ *Case, name string, o *Outcome, took time.Duration) {
	t.Helper()
	c := o.Contest
	t.Logf("%s (%.1fs): %+v %v", name, took.Seconds(), *c, o.Errors)
	if c.Over > 0 {
		t.Errorf("%s: %d requests were admitted beyond the limit", name, c.Over)
	}
	if *trial || *exact {
		return
	}
	g := check.Call(readGrid(gridFile)).Must(t, "readGrid()")
	g[name] = c
	check.Fatal(t, "write()", g.write(gridFile, s))
}

// TestPage compares docs/scale.md and its charts with the figures that are kept.
func TestPage(t *testing.T) {
	figures := check.Call(readFigures(figuresFile)).Must(t, "readFigures()")
	contests := check.Call(readGrid(gridFile)).Must(t, "readGrid()")
	scenarios := Scenarios()
	drawn := map[string]string{pageFile: page(figures, contests, scenarios)}
	for i := range scenarios {
		for _, chart := range scenarios[i].charts(figures) {
			drawn[filepath.Join(chartsDir, chart.File)] = chart.SVG()
		}
	}
	for file, text := range drawn {
		if *draw {
			check.Fatal(t, "os.MkdirAll()", os.MkdirAll(filepath.Dir(file), 0o755))
			check.Fatal(t, "os.WriteFile()", os.WriteFile(file, []byte(text), 0o600))
		}
		kept, err := os.ReadFile(file)
		if err != nil || string(kept) != text {
			t.Errorf("%s is stale: go test ./internal/proof/scale -run Page -scale.draw (%v)", file, err)
		}
	}
	entries := check.Call(os.ReadDir(chartsDir)).Must(t, "os.ReadDir()")
	for _, e := range entries {
		if _, ok := drawn[filepath.Join(chartsDir, e.Name())]; !ok {
			t.Errorf("%s is no chart of any scenario", e.Name())
		}
	}
	for name := range figures.Now {
		if !slices.ContainsFunc(scenarios, func(s Scenario) bool {
			return slices.ContainsFunc(s.Cases, func(c Case) bool { return s.caseName(&c) == name })
		}) {
			t.Errorf("there are figures of %q, which is no case of any scenario", name)
		}
	}
}
