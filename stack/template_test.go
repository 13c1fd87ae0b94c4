package stack_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/internal/proof/cfn"
	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/stack"
	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/dynamo"
)

// variants are values of parameters that make a difference to what the template comes to.
var variants = map[string][]string{
	"TableName":             {"", "Limits.v2"},
	"MaxReadUnits":          {"0", "50000"},
	"MaxWriteUnits":         {"0", "40000"},
	"WarmReadUnits":         {"12000", "30000"},
	"WarmWriteUnits":        {"4000", "8000"},
	"KeyArn":                {"", "arn:aws:kms:eu-central-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"},
	"Aggregator":            {"true", "false"},
	"Provisioner":           {"false", "true"},
	"CodeKey":               {"", "code/0123.zip"},
	"CodeBucket":            {"", "my-code"},
	"Architecture":          {"arm64", "x86_64"},
	"Tracing":               {"false", "true"},
	"Archive":               {"true", "false"},
	"ArchiveTransitionDays": {"90", "0"},
	"ArchiveDays":           {"0", "365"},
	"Alarms":                {"true", "false"},
	"AlarmTopic":            {"", "arn:aws:sns:eu-central-1:123456789012:alarms"},
	"IAM":                   {"true", "false"},
	"Roles":                 {"false", "true"},
	"AggregatorRole":        {"", "arn:aws:iam::123456789012:role/aggregator"},
	"ProvisionerRole":       {"", "arn:aws:iam::123456789012:role/provisioner"},
	"RoleNameFormat":        {"", "app-{}-role"},
	"PolicyNameFormat":      {"", "{}"},
	"PermissionsBoundary":   {"", "arn:aws:iam::123456789012:policy/boundary"},
	"DeletionProtection":    {"true", "false"},
}

// combinations returns sets of parameters in which every pair of values of two parameters is together once.
func combinations() []map[string]string {
	names := slices.Sorted(maps.Keys(variants))
	var all []map[string]string
	seen := map[string]bool{}
	pair := func(a, x, b, y string) string { return a + "=" + x + "," + b + "=" + y }
	for i, a := range names {
		for _, x := range variants[a] {
			for _, b := range names[i+1:] {
				for _, y := range variants[b] {
					if seen[pair(a, x, b, y)] {
						continue
					}
					c := map[string]string{a: x, b: y}
					for _, n := range names { // the value with the most pairs that are new
						if _, ok := c[n]; ok {
							continue
						}
						best, most := "", -1
						for _, v := range variants[n] {
							fresh := 0
							for other, w := range c {
								if p, q := min(n, other), max(n, other); !seen[pair(p, map[bool]string{true: v, false: w}[p == n], q, map[bool]string{true: v, false: w}[q == n])] {
									fresh++
								}
							}
							if fresh > most {
								best, most = v, fresh
							}
						}
						c[n] = best
					}
					for j, n := range names {
						for _, m := range names[j+1:] {
							seen[pair(n, c[n], m, c[m])] = true
						}
					}
					if c["IAM"] == "false" && c["Aggregator"] == "true" && c["AggregatorRole"] == "" {
						c["AggregatorRole"] = variants["AggregatorRole"][1]
					}
					if c["IAM"] == "false" && c["Provisioner"] == "true" && c["ProvisionerRole"] == "" {
						c["ProvisionerRole"] = variants["ProvisionerRole"][1]
					}
					all = append(all, c)
				}
			}
		}
	}
	return all
}

func parse(tb testing.TB, text string) *cfn.Template {
	tb.Helper()
	return check.Call(cfn.Parse(text)).Must(tb, "cfn.Parse()")
}

// evaluate returns what the template comes to.
func evaluate(tb testing.TB, text string, given map[string]string) *cfn.Stack {
	tb.Helper()
	s, err := parse(tb, text).Evaluate("limits", given)
	if err != nil {
		tb.Fatalf("%v: %v", given, err)
	}
	return s
}

// at returns a part of a value, by keys.
func at(v any, keys ...string) any {
	for _, key := range keys {
		m, _ := v.(map[string]any)
		v = m[key]
	}
	return v
}

// checkTable compares the table with the one that package zlimit creates.
func checkTable(text string) error {
	parsed, err := cfn.Parse(text)
	if err != nil {
		return err
	}
	got := map[string]any{}
	if parsed.Conditions["ForMixedFleet"] == nil || parsed.Parameters["MixedFleet"].Default != "false" {
		return fmt.Errorf("the parameter MixedFleet has no condition, or another default than false")
	}
	for _, name := range []string{"AttributeDefinitions", "KeySchema", "GlobalSecondaryIndexes", "LocalSecondaryIndexes", "StreamSpecification", "TimeToLiveSpecification"} {
		got[name] = parsed.Resources["Table"].Properties[name]
	}
	input := dynamo.CreateTableInput("limits")
	for _, x := range input.GlobalSecondaryIndexes {
		if *x.IndexName == "GSI2" { // by the parameter that says what it projects
			x.Projection.ProjectionType = "by ForMixedFleet: ALL, else KEYS_ONLY"
		}
	}
	want := map[string]any{
		"AttributeDefinitions": input.AttributeDefinitions, "KeySchema": input.KeySchema,
		"GlobalSecondaryIndexes": input.GlobalSecondaryIndexes, "LocalSecondaryIndexes": input.LocalSecondaryIndexes,
		"StreamSpecification":     map[string]any{"StreamViewType": input.StreamSpecification.StreamViewType},
		"TimeToLiveSpecification": map[string]any{"AttributeName": zlimit.TTLAttribute, "Enabled": true},
	}
	for _, x := range got["GlobalSecondaryIndexes"].([]any) {
		delete(x.(map[string]any), "OnDemandThroughput") // as the table
		delete(x.(map[string]any), "WarmThroughput")
		projection := x.(map[string]any)["Projection"].(map[string]any)
		if choice, ok := projection["ProjectionType"].(map[string]any); ok {
			parts := choice["Fn::If"].([]any)
			projection["ProjectionType"] = fmt.Sprintf("by %s: %s, else %s", parts...)
		}
	}
	if diff := cmp.Diff(plain(want), plain(got)); diff != "" {
		return fmt.Errorf("the table is not that of package zlimit (-want +got):\n%s", diff)
	}
	return nil
}

// TestTableAlone compares the template of the table alone with the table that package zlimit creates.
func TestTableAlone(t *testing.T) {
	check.Error(t, "checkTable()", checkTable(zlimit.CloudFormation))
}

// plain returns a value as JSON has it, without what is null or empty.
func plain(v any) any {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	var decoded any
	if err := json.Unmarshal(text, &decoded); err != nil {
		panic(err)
	}
	return trim(decoded)
}

func trim(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, inner := range v {
			if inner = trim(inner); inner == nil {
				delete(v, key)
			} else {
				v[key] = inner
			}
		}
	case []any:
		if len(v) == 0 {
			return nil
		}
		for i := range v {
			v[i] = trim(v[i])
		}
	}
	return v
}

// checkRetained asks that what holds data is neither deleted nor replaced.
func checkRetained(text string) error {
	parsed, err := cfn.Parse(text)
	if err != nil {
		return err
	}
	for _, id := range []string{"Table", "Bucket"} {
		if r := parsed.Resources[id]; r.DeletionPolicy != "Retain" || r.UpdateReplacePolicy != "Retain" {
			return fmt.Errorf("%s is not retained", id)
		}
	}
	return nil
}

const topic = "arn:aws:sns:eu-central-1:123456789012:alarms"

// withAll returns what a template comes to with both functions and a topic.
func withAll(text string) (*cfn.Stack, error) {
	parsed, err := cfn.Parse(text)
	if err != nil {
		return nil, err
	}
	return parsed.Evaluate("limits", map[string]string{"AlarmTopic": topic, "CodeKey": "k", "Provisioner": "true"})
}

// checkAlarms asks for nine alarms that name the topic, and for every index in those about throttles.
func checkAlarms(text string) error {
	s, err := withAll(text)
	if err != nil {
		return err
	}
	alarms := 0
	for id, r := range s.Resources {
		if r.Type != "AWS::CloudWatch::Alarm" {
			continue
		}
		alarms++
		if actions, ok := r.Properties["AlarmActions"].([]any); !ok || len(actions) != 1 || actions[0] != topic {
			return fmt.Errorf("%s has no action", id)
		}
		if !strings.HasPrefix(id, "Throttled") {
			continue
		}
		var missing []string
		text := fmt.Sprint(plain(r.Properties["Metrics"]))
		for _, x := range dynamo.CreateTableInput("").GlobalSecondaryIndexes {
			if !strings.Contains(text, "Name:GlobalSecondaryIndexName Value:"+*x.IndexName+"]") {
				missing = append(missing, *x.IndexName)
			}
		}
		if missing != nil {
			return fmt.Errorf("%s does not watch %v", id, missing)
		}
	}
	if alarms != 10 {
		return fmt.Errorf("%d alarms, want 10", alarms)
	}
	return nil
}

// metrics are those that a dashboard may show, by their namespace.
var metrics = map[string][]string{
	"AWS/DynamoDB": {"ConsumedWriteCapacityUnits", "ConsumedReadCapacityUnits", "WriteThrottleEvents", "ReadThrottleEvents"},
	"AWS/Lambda":   {"Invocations", "Errors", "Throttles", "IteratorAge", "Duration"},
	"AWS/SQS":      {"ApproximateNumberOfMessagesVisible"},
	"zlimit":       {"limits-aggregator-logged-errors"},
}

// checkDashboard reads the dashboard as CloudWatch does. It has every alarm that is about the table and the aggregator, and graphs of
// metrics that there are.
func checkDashboard(text string) error {
	s, err := withAll(text)
	if err != nil {
		return err
	}
	var body struct {
		Widgets []struct {
			Type       string
			Properties struct {
				Region, Title string
				Alarms        []string
				Metrics       [][]string
			}
		}
	}
	if err := json.Unmarshal([]byte(fmt.Sprint(s.Resources["Dashboard"].Properties["DashboardBody"])), &body); err != nil {
		return err
	}
	alarms, graphs := map[string]bool{}, 0
	for _, w := range body.Widgets {
		for _, arn := range w.Properties.Alarms {
			alarms[arn] = true
		}
		if w.Type == "metric" && (w.Properties.Region != cfn.Region || len(w.Properties.Metrics) == 0) {
			return fmt.Errorf("the graph %q is of region %q, with metrics %v", w.Properties.Title, w.Properties.Region, w.Properties.Metrics)
		}
		var last []string
		for _, m := range w.Properties.Metrics {
			for i := range m {
				if m[i] == "." {
					m[i] = last[i]
				}
			}
			if last = m; !slices.Contains(metrics[m[0]], m[1]) {
				return fmt.Errorf("the graph %q shows %v", w.Properties.Title, m)
			}
			if id := m[len(m)-1]; len(m) == 4 && id != s.ID("Table") && id != s.ID("AggregatorFunction") && id != s.ID("DeadLetters") {
				return fmt.Errorf("the graph %q is about %s", w.Properties.Title, id)
			}
			graphs++
		}
	}
	for id, r := range s.Resources {
		if arn := "arn:aws:cloudwatch:" + cfn.Region + ":" + cfn.Account + ":alarm:" + s.ID(id); r.Type == "AWS::CloudWatch::Alarm" && id != "ProvisionerErrors" {
			if !alarms[arn] {
				return fmt.Errorf("the dashboard does not show %s", id)
			}
			delete(alarms, arn)
		}
	}
	if len(alarms) > 0 || graphs < 11 {
		return fmt.Errorf("the dashboard shows %d metrics, and alarms that there are not: %v", graphs, alarms)
	}
	return nil
}

// checkPortable asks for a template that CloudFormation takes, in every partition of AWS.
func checkPortable(text string) error {
	switch {
	case len(text) >= 51_200:
		return fmt.Errorf("%d bytes: a template that is sent has less than 51,200", len(text))
	case strings.Contains(text, "arn:aws:"):
		return fmt.Errorf("the template names a partition")
	}
	return nil
}

// checkMapping asks that no change of the stream is skipped.
func checkMapping(text string) error {
	parsed, err := cfn.Parse(text)
	if err != nil {
		return err
	}
	s, err := parsed.Evaluate("limits", map[string]string{"CodeKey": "k"})
	if err != nil {
		return err
	}
	p := s.Resources["Stream"].Properties
	want := map[string]any{
		"StartingPosition": "TRIM_HORIZON", "FunctionResponseTypes": []any{"ReportBatchItemFailures"}, "BisectBatchOnFunctionError": true,
		"MaximumRetryAttempts": -1, "MaximumRecordAgeInSeconds": -1,
	}
	for key, value := range want {
		if diff := cmp.Diff(value, p[key]); diff != "" {
			return fmt.Errorf("Stream.%s (-want +got):\n%s", key, diff)
		}
	}
	return nil
}

var checks = map[string]func(string) error{
	"table": checkTable, "retained": checkRetained, "alarms": checkAlarms, "portable": checkPortable, "mapping": checkMapping,
	"filters":  func(text string) error { _, err := filters(text, nil); return err },
	"policies": checkTrials, "standstill": checkStandstill, "duration": checkDuration, "dashboard": checkDashboard,
}

func TestTemplate(t *testing.T) {
	for name, check := range checks {
		if err := check(stack.Template); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// twins are templates with one mistake, and the check that notices it.
var twins = map[string]struct{ old, new, check string }{
	"a sixth local index": {
		"   LocalSecondaryIndexes:\n",
		"   LocalSecondaryIndexes:\n    - { IndexName: LSI6, KeySchema: [{ AttributeName: PK, KeyType: HASH }, { AttributeName: LSI6SK, KeyType: RANGE }], Projection: { ProjectionType: ALL } }\n",
		"table",
	},
	"an index of whole items":              {"Projection: {ProjectionType: KEYS_ONLY}", "Projection: {ProjectionType: ALL}", "table"},
	"whole items for everyone":             {"!If [ForMixedFleet, ALL, KEYS_ONLY]", "!If [ForMixedFleet, ALL, ALL]", "table"},
	"expiry by another attribute":          {"AttributeName: ttl", "AttributeName: expires", "table"},
	"a table that goes with the stack":     {"  DeletionPolicy: Retain\n  UpdateReplacePolicy: Retain\n  Properties:\n   TableName:", "  UpdateReplacePolicy: Retain\n  Properties:\n   TableName:", "retained"},
	"a bucket that is deleted":             {"  UpdateReplacePolicy: Retain\n  Properties:\n   BucketEncryption", "  UpdateReplacePolicy: Delete\n  Properties:\n   BucketEncryption", "retained"},
	"an alarm that tells nobody":           {"AlarmActions: !If [HasTopic, [!Ref AlarmTopic], !Ref AWS::NoValue]", "InsufficientDataActions: []", "alarms"},
	"throttles of the table alone":         {"{Name: GlobalSecondaryIndexName, Value: GSI4}", "{Name: Operation, Value: Query}", "alarms"},
	"a standstill that missing calls hide": {"FILL(calls, 0)", "calls", "standstill"},
	"an idle table that stands still":      {"writes > 0 && ", "", "standstill"},
	"a standstill at the end of an hour":   {"EvaluationPeriods: 2", "EvaluationPeriods: 1", "standstill"},
	"a duration in another unit":           {"took / ${Timeout} / 10", "took / ${Timeout}", "duration"},
	"a duration of the average":            {"Stat: Maximum, Period: 300", "Stat: Average, Period: 300", "duration"},
	"a dashboard that is no JSON":          {`"widgets":[`, `"widgets":`, "dashboard"},
	"a dashboard without an alarm":         {`,"${A}dead-letters"`, "", "dashboard"},
	"a dashboard of another alarm":         {`${A}dead-letters`, `${A}dead`, "dashboard"},
	"a dashboard of no metric":             {`"Invocations","FunctionName"`, `"Calls","FunctionName"`, "dashboard"},
	"calls of another function":            {"MetricName: Invocations", "MetricName: Errors", "standstill"},
	"a partition":                          {"arn:${AWS::Partition}:iam", "arn:aws:iam", "portable"},
	"the latest changes alone":             {"StartingPosition: TRIM_HORIZON", "StartingPosition: LATEST", "mapping"},
	"three tries":                          {"MaximumRetryAttempts: -1", "MaximumRetryAttempts: 3", "mapping"},
	"failures that go unnoticed":           {"FunctionResponseTypes: [ReportBatchItemFailures]", "FunctionResponseTypes: []", "mapping"},
	"a filter that is no JSON":             {`{"dynamodb":{"Keys":{"SK":{"S":["#STATE"]}}}}`, `{"dynamodb":{"Keys":{"SK":{"S":["#STATE"]}}}`, "filters"},
	"a call without a key":                 {`, "Null": {"dynamodb:LeadingKeys": "false"}`, "", "policies"},
	"a key among others":                   {"ForAllValues:StringLike", "ForAnyValue:StringLike", "policies"},
	"limits that programs write":           {`["*/BUCKET#*"]`, `["*"]`, "policies"},
	"limits that tenants write":            {`["${aws:PrincipalTag/zlimit-namespace}/BUCKET#*"]`, `["${aws:PrincipalTag/zlimit-namespace}/*"]`, "policies"},
	"buckets of others":                    {`["${aws:PrincipalTag/zlimit-namespace}/BUCKET#*"]`, `["*/BUCKET#*"]`, "policies"},
	"buckets that have limits as well":     {`"*/BUCKET#*"`, `"*/*#*"`, "policies"},
	"a tenant that writes the registry":    {"NotTheRegistry, Effect: Deny", "NotTheRegistry, Effect: Allow", "policies"},
	"a tenant with a prefix of another":    {`"${aws:PrincipalTag/zlimit-namespace}", "${aws:PrincipalTag/zlimit-namespace}/*"`, `"${aws:PrincipalTag/zlimit-namespace}*"`, "policies"},
	"a tenant that cannot find its name":   {`"_/SYSTEM#", "_/PING#*"`, `"_/SYSTEM", "_/PING#*"`, "policies"},
}

// TestBrokenTwins breaks the template, one mistake at a time: the checks of this package notice what linters do not.
func TestBrokenTwins(t *testing.T) {
	for name, twin := range twins {
		for _, text := range broken(t, name, twin.old, twin.new) {
			if err := checks[twin.check](text); err == nil {
				t.Errorf("%s: the check of %s does not notice", name, twin.check)
			}
		}
	}
}

// broken returns templates with a text replaced, each place by itself.
func broken(t *testing.T, name, old, replacement string) (texts []string) {
	t.Helper()
	parts := strings.Split(stack.Template, old)
	for i := 1; i < len(parts); i++ {
		texts = append(texts, strings.Join(parts[:i], old)+replacement+strings.Join(parts[i:], old))
	}
	if texts == nil {
		t.Errorf("%s: %q is not in the template", name, old)
	}
	return texts
}

// TestCombinations evaluates the template with all pairs of values of parameters.
func TestCombinations(t *testing.T) {
	all := combinations()
	if len(all) < 8 || len(all) > 60 {
		t.Fatalf("%d combinations", len(all))
	}
	for _, c := range all {
		s := evaluate(t, stack.Template, c)
		has := func(id string) bool { _, ok := s.Resources[id]; return ok }
		function, provisioner := c["Aggregator"] == "true" && c["CodeKey"] != "", c["Provisioner"] == "true"
		bucket := c["Archive"] == "true" || c["Aggregator"] == "true" || provisioner
		iam := c["IAM"] == "true"
		for id, want := range map[string]bool{
			"Table": true, "Bucket": bucket, "BucketPolicy": bucket,
			"ProvisionerLog": provisioner, "ProvisionerFunction": provisioner && c["CodeKey"] != "",
			"ProvisionerRoleOfStack": iam && provisioner && c["ProvisionerRole"] == "",
			"DeadLetters":            c["Aggregator"] == "true", "Log": c["Aggregator"] == "true", "AggregatorFunction": function, "Stream": function,
			"AggregatorLag": function && c["Alarms"] == "true", "ProvisionerErrors": provisioner && c["CodeKey"] != "" && c["Alarms"] == "true", "ThrottledReads": c["Alarms"] == "true",
			"AggregatorRoleOfStack": iam && c["Aggregator"] == "true" && c["AggregatorRole"] == "",
			"Dashboard":             function && c["Alarms"] == "true",
			"AcquirePolicy":         iam, "TenantFullPolicy": iam, "AdminRole": iam && c["Roles"] == "true",
		} {
			if has(id) != want {
				t.Errorf("%v: %s is there: %t, want %t", c, id, has(id), want)
			}
		}
		table := s.Resources["Table"].Properties
		if ceiling, want := table["OnDemandThroughput"] != nil, c["MaxReadUnits"] != "0" || c["MaxWriteUnits"] != "0"; ceiling != want {
			t.Errorf("%v: OnDemandThroughput = %v", c, table["OnDemandThroughput"])
		}
		for _, of := range append(slices.Clone(table["GlobalSecondaryIndexes"].([]any)), any(table)) {
			if warm, want := at(of, "WarmThroughput") != nil, c["WarmReadUnits"] != "12000" || c["WarmWriteUnits"] != "4000"; warm != want {
				t.Errorf("%v: WarmThroughput of %v = %v", c, at(of, "IndexName"), at(of, "WarmThroughput"))
			}
			if got, want := at(of, "OnDemandThroughput", "MaxReadRequestUnits") != nil, c["MaxReadUnits"] != "0"; got != want {
				t.Errorf("%v: ceiling of reads of %v: %t, want %t", c, at(of, "IndexName"), got, want)
			}
		}
		if name := s.ID("AdminRole"); has("AdminRole") && c["RoleNameFormat"] != "" && name != "app-"+s.ID("Table")+"-admin-role" {
			t.Errorf("%v: the role of administrators is %s", c, name)
		}
		if has("AggregatorRoleOfStack") {
			if boundary := s.Resources["AggregatorRoleOfStack"].Properties["PermissionsBoundary"]; (boundary != nil) != (c["PermissionsBoundary"] != "") {
				t.Errorf("%v: boundary %v", c, boundary)
			}
		}
	}
}

// TestConditions sets one parameter at a time in a stack that has everything. All resources of the kinds that it is for change, as
// described by a pattern of their properties, and have nothing of the kind without it.
func TestConditions(t *testing.T) {
	const (
		key    = "arn:aws:kms:eu-central-1:123456789012:key/1234"
		bounds = "arn:aws:iam::123456789012:policy/boundary"
	)
	for _, test := range []struct {
		parameter, value string
		kinds            []string // types of resources, or the name of one
		pattern          string
		without          bool // the pattern is there without the value, and not with it
	}{
		{"KeyArn", key, []string{"AWS::DynamoDB::Table", "AWS::S3::Bucket", "AWS::SQS::Queue", "AWS::Logs::LogGroup", "AWS::Lambda::Function"}, key, false},
		{"KeyArn", key, []string{"AWS::IAM::ManagedPolicy", "AggregatorRoleOfStack", "ProvisionerRoleOfStack"}, key, false},
		{"KeyArn", key, []string{"AWS::SQS::Queue"}, `"SqsManagedSseEnabled":true`, true},
		{"AlarmTopic", topic, []string{"AWS::CloudWatch::Alarm"}, `"AlarmActions":\["` + topic + `"\].*"OKActions":\["` + topic + `"\]`, false},
		{"Tracing", "true", []string{"AWS::Lambda::Function"}, `"Mode":"Active"`, false},
		{"Tracing", "true", []string{"AggregatorRoleOfStack", "ProvisionerRoleOfStack"}, "xray:PutTraceSegments", false},
		{"CodeBucket", "my-code", []string{"AWS::Lambda::Function"}, `"S3Bucket":"my-code"`, false},
		{"MixedFleet", "true", []string{"Table"}, `"IndexName":"GSI2","KeySchema":\[[^]]*\],"Projection":{"ProjectionType":"ALL"}`, false},
		{"MixedFleet", "true", []string{"AggregatorFunction"}, `"ZLIMIT_ALL_WINDOWS":"true"`, false},
		{"DeletionProtection", "false", []string{"Table"}, `"DeletionProtectionEnabled":true`, true},
		{"ArchiveTransitionDays", "0", []string{"Bucket"}, `"StorageClass":"GLACIER_IR"`, true},
		{"ArchiveDays", "365", []string{"Bucket"}, `"ExpirationInDays":"?365\b`, false},
		{"PolicyNameFormat", "app-{}-policy", []string{"AWS::IAM::ManagedPolicy"}, `"ManagedPolicyName":"app-limits-[a-z-]+-policy"`, false},
		{"RoleNameFormat", "app-{}-role", []string{"AWS::IAM::Role"}, `"RoleName":"app-limits-[a-z]+-role"`, false},
		{"PermissionsBoundary", bounds, []string{"AWS::IAM::Role"}, `"PermissionsBoundary":"` + bounds + `"`, false},
	} {
		pattern := regexp.MustCompile(test.pattern)
		for _, set := range []bool{false, true} {
			given := map[string]string{"Provisioner": "true", "CodeKey": "code/1.zip", "Roles": "true"}
			if set {
				given[test.parameter] = test.value
			}
			looked := map[string]bool{}
			for id, r := range evaluate(t, stack.Template, given).Resources {
				i := slices.IndexFunc(test.kinds, func(kind string) bool { return kind == r.Type || kind == id })
				if i < 0 {
					continue
				}
				looked[test.kinds[i]] = true
				text := check.Call(json.Marshal(r.Properties)).Must(t, "json.Marshal()")
				if want := set != test.without; pattern.Match(text) != want {
					t.Errorf("%s given %t: %s has %s: %t, want %t\n%s", test.parameter, set, id, test.pattern, !want, want, text)
				}
			}
			if len(looked) < len(test.kinds) {
				t.Errorf("%s: of %v there are %v alone", test.parameter, test.kinds, looked)
			}
		}
	}
}

// TestParametersSayWhatTheyAre asks for a description with each parameter.
func TestParametersSayWhatTheyAre(t *testing.T) {
	for name, p := range parse(t, stack.Template).Parameters {
		if p.Description == "" || p.Default == nil {
			t.Errorf("%s = %+v, want a description and a default", name, p)
		}
	}
}
