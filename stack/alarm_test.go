package stack_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/stack"
)

// noData stands for a period of which CloudWatch has no data.
const noData = -1.0

// metricMath evaluates an expression of metric math over one period, given the metrics by their IDs. The subset that the
// alarms use has the syntax of Go.
func metricMath(e ast.Expr, metrics map[string]float64) (float64, error) {
	switch e := e.(type) {
	case *ast.BasicLit:
		return strconv.ParseFloat(e.Value, 64)
	case *ast.Ident:
		value, ok := metrics[e.Name]
		if !ok {
			return 0, fmt.Errorf("no metric %s", e.Name)
		}
		return value, nil
	case *ast.BinaryExpr:
		values, err := operands(metrics, e.X, e.Y)
		if err != nil || slices.Contains(values, noData) {
			return noData, err
		}
		x, y := values[0], values[1]
		if e.Op == token.QUO {
			return x / y, nil
		}
		holds, ok := map[token.Token]bool{token.GTR: x > y, token.EQL: x == y, token.LAND: x != 0 && y != 0}[e.Op]
		if !ok {
			return 0, fmt.Errorf("no operator %s", e.Op)
		}
		return map[bool]float64{true: 1}[holds], nil
	case *ast.CallExpr:
		values, err := operands(metrics, e.Args...)
		if err != nil {
			return 0, err
		}
		switch name := fmt.Sprint(e.Fun); {
		case name == "FILL" && len(values) == 2:
			if values[0] == noData {
				return values[1], nil
			}
			return values[0], nil
		case name == "IF" && len(values) == 3:
			if values[0] == noData {
				return noData, nil
			}
			return values[map[bool]int{true: 1, false: 2}[values[0] != 0]], nil
		default:
			return 0, fmt.Errorf("no function %s of %d", name, len(values))
		}
	default:
		return 0, fmt.Errorf("no expression like %T", e)
	}
}

// operands evaluates several expressions.
func operands(metrics map[string]float64, parts ...ast.Expr) (values []float64, err error) {
	for _, part := range parts {
		value, err := metricMath(part, metrics)
		if err != nil {
			return nil, err
		}
		values = append(values, value)
	}
	return values, nil
}

// An alarmMath is an alarm about an expression.
type alarmMath struct {
	expression ast.Expr
	looked     map[string]string // its metrics, by their IDs
	threshold  float64           // that rings, or more, and missing data do not
	periods    int               // in a row
}

// mathOf returns the alarm of a template about an expression.
func mathOf(template, id string) (m alarmMath, err error) {
	s, err := withAll(template)
	if err != nil {
		return m, err
	}
	r, ok := s.Resources[id]
	if !ok {
		return m, fmt.Errorf("no alarm %s", id)
	}
	p := r.Properties
	if p["TreatMissingData"] != "notBreaching" || p["ComparisonOperator"] != "GreaterThanOrEqualToThreshold" {
		return m, fmt.Errorf("the alarm is %v, with missing data %v", p["ComparisonOperator"], p["TreatMissingData"])
	}
	if m.threshold, err = strconv.ParseFloat(fmt.Sprint(p["Threshold"]), 64); err != nil {
		return m, err
	}
	if m.periods, err = strconv.Atoi(fmt.Sprint(p["EvaluationPeriods"])); err != nil {
		return m, err
	}
	m.looked = map[string]string{}
	for _, metric := range p["Metrics"].([]any) {
		if source := text(at(metric, "Expression")); source != "" {
			if m.expression, err = parser.ParseExpr(source); err != nil {
				return m, err
			}
			continue
		}
		m.looked[text(at(metric, "Id"))] = fmt.Sprint(at(metric, "MetricStat", "Metric", "Namespace"), " ", at(metric, "MetricStat", "Metric", "MetricName"), " ",
			at(metric, "MetricStat", "Stat"), " ", at(metric, "MetricStat", "Period"))
	}
	return m, nil
}

// checkDuration evaluates the alarm about long calls of the aggregator, which Lambda ends after 60 s.
func checkDuration(template string) error {
	m, err := mathOf(template, "AggregatorDuration")
	if err != nil {
		return err
	}
	if m.looked["took"] != "AWS/Lambda Duration Maximum 300" || m.periods != 3 {
		return fmt.Errorf("the alarm is %+v", m)
	}
	for ms, want := range map[float64]bool{47_900: false, 48_000: true, 60_000: true, noData: false} {
		if value, err := metricMath(m.expression, map[string]float64{"took": ms}); err != nil || value >= m.threshold != want {
			return fmt.Errorf("calls of %v ms are %v percent, %w; the alarm rings at %v", ms, value, err, m.threshold)
		}
	}
	return nil
}

// checkStandstill replays metrics of a table and its aggregator, an hour each, through the alarm about a standstill.
func checkStandstill(template string) error {
	m, err := mathOf(template, "AggregatorStandstill")
	if err != nil {
		return err
	}
	if m.threshold != 1 || m.looked["writes"] != "AWS/DynamoDB ConsumedWriteCapacityUnits Sum 3600" || m.looked["calls"] != "AWS/Lambda Invocations Sum 3600" {
		return fmt.Errorf("the alarm is %+v", m)
	}
	for _, test := range []struct {
		name          string
		writes, calls []float64
		want          bool // whether it ever rings
	}{
		{"in use", []float64{41210, 39877, 40155, 42001}, []float64{60, 60, 60, 60}, false},
		{"stopped", []float64{41210, 39877, 40155, 42001}, []float64{60, 34, noData, noData}, true},
		{"stopped, with calls as zeros", []float64{41210, 39877, 40155, 42001}, []float64{60, 34, 0, 0}, true},
		{"never called", []float64{3, 2, 7, 4}, []float64{noData, noData, noData, noData}, true},
		{"idle", []float64{noData, noData, noData, noData}, []float64{noData, noData, noData, noData}, false},
		{"idle, with writes as zeros", []float64{0, 0, 0, 0}, []float64{noData, noData, noData, noData}, false},
		{"idle from now on", []float64{41210, 12, noData, noData}, []float64{60, 1, noData, noData}, false},
		{"a last write that is counted in the next hour", []float64{noData, 2, 1, noData}, []float64{noData, noData, 1, noData}, false},
		{"an hour without calls", []float64{300, 300, 300, 300}, []float64{5, noData, 5, 5}, false},
	} {
		rings, row := false, 0
		for i := range test.writes {
			value, err := metricMath(m.expression, map[string]float64{"writes": test.writes[i], "calls": test.calls[i]})
			if err != nil {
				return err
			}
			if row++; value < 1 { // and what is missing
				row = 0
			}
			rings = rings || row >= m.periods
		}
		if rings != test.want {
			return fmt.Errorf("a table %s: the alarm rings %t, want %t", test.name, rings, test.want)
		}
	}
	return nil
}

// runbook is where the description of an alarm ends.
const runbook = " https://github.com/zlimit/zlimit-go/blob/main/docs/operations.md#"

// TestRunbook holds the alarms and their sections in docs/operations.md together. Each alarm links to the section
// with its name, and no section lacks an alarm. A section has the meaning of the alarm, where to look and what to do.
func TestRunbook(t *testing.T) {
	page := check.Call(os.ReadFile("../docs/operations.md")).Must(t, "os.ReadFile()")
	_, after, found := strings.Cut(string(page), "\n## Alarms\n")
	chapter, _, closed := strings.Cut(after, "\n## ")
	if !found || !closed {
		t.Fatal("docs/operations.md has no chapter Alarms")
	}
	sections := map[string]string{}
	for _, section := range strings.Split(chapter, "\n### ")[1:] {
		name, body, _ := strings.Cut(section, "\n")
		sections[name] = body
	}
	s := check.Call(withAll(stack.Template)).Must(t, "withAll()")
	alarms := 0
	for id, r := range s.Resources {
		if r.Type != "AWS::CloudWatch::Alarm" {
			continue
		}
		alarms++
		name := strings.TrimPrefix(text(r.Properties["AlarmName"]), "limits-")
		if description := text(r.Properties["AlarmDescription"]); !strings.HasSuffix(description, "."+runbook+name) {
			t.Errorf("%s: the description %q does not link to the section %s", id, description, name)
		}
		for _, part := range []string{"\n- **Means**: ", "\n- **Look at**: ", "\n- **Do**: "} {
			if strings.Count("\n"+sections[name], part) != 1 {
				t.Errorf("docs/operations.md: the section %s has not one %q", name, part)
			}
		}
		delete(sections, name)
	}
	if alarms < 9 {
		t.Errorf("%d alarms", alarms)
	}
	for name := range sections {
		t.Errorf("docs/operations.md: there is no alarm %s", name)
	}
}
