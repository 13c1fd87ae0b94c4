package zlimit_test

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/compare"
	"github.com/zlimit/zlimit-go/zlimit"
)

// exported returns the names of the exported structs of the package that have exported fields.
func exported(t *testing.T) map[string]bool {
	t.Helper()
	entries := check.Call(os.ReadDir(".")).Must(t, "os.ReadDir()")
	structs := map[string]bool{}
	for _, entry := range entries {
		if !strings.HasSuffix(entry.Name(), ".go") || strings.HasSuffix(entry.Name(), "_test.go") {
			continue
		}
		file := check.Call(parser.ParseFile(token.NewFileSet(), entry.Name(), nil, 0)).Must(t, "parser.ParseFile()")
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok || !spec.Name.IsExported() {
				return true
			}
			if s, ok := spec.Type.(*ast.StructType); ok {
				for _, field := range s.Fields.List {
					for _, name := range field.Names {
						if name.IsExported() {
							structs[spec.Name.Name] = true
						}
					}
				}
			}
			return true
		})
	}
	return structs
}

// TestJSON goes through all exported structs: a new one has to be added, and says its members in snake case.
func TestJSON(t *testing.T) {
	at := time.Date(2026, 3, 15, 9, 30, 0, 0, time.UTC)
	limits := []zlimit.Limit{zlimit.PerMinute("rpm", 60)}
	limit := `{"name":"rpm","capacity":60,"refill_amount":60,"refill_period_seconds":60}`
	statuses := zlimit.Statuses{{Entity: "alice", Resource: "api", Limit: limits[0], Available: 2, Requested: 1, RetryAfter: time.Second}}
	status := `{"entity":"alice","resource":"api","limit":"rpm","capacity":60,"refill_amount":60,"refill_period_seconds":60,"available":2,` +
		`"requested":1,"exceeded":false,"retry_after_seconds":1}`
	known := map[string]struct {
		value any
		want  string // "" for what other tests say, or nobody writes
	}{
		"RateLimiter":      {}, // services
		"Key":              {}, // its members are those of the table, PK and SK
		"Limit":            {limits[0], limit},
		"Status":           {statuses[0], status},
		"AuditEvent":       {zlimit.AuditEvent{Details: map[string]any{}}, ""},
		"AuditQuery":       {zlimit.AuditQuery{From: at, Limit: 3}, `{"from":"2026-03-15T09:30:00Z","resource":"","limit":3,"reverse":false}`},
		"Bucket":           {zlimit.Bucket{Entity: "alice", Resource: "api", Shards: 2, Statuses: statuses, Consumed: map[string]zlimit.Quantity{"rpm": 1500}}, `{"entity":"alice","resource":"api","shards":2,"statuses":[` + status + `],"consumed":{"rpm":1.5}}`},
		"Capacity":         {zlimit.Capacity{}, ""},
		"LimitCapacity":    {zlimit.LimitCapacity{}, ""},
		"Coverage":         {zlimit.Coverage{Used: 4, Unlisted: 1}, `{"complete":false,"used":4,"unlisted":1}`},
		"PurgeCost":        {zlimit.PurgeCost{Items: 2, Bytes: 4096, ReadUnits: 0.5, Time: time.Second}, `{"items":2,"bytes":4096,"read_units":0.5,"seconds":1}`},
		"Config":           {zlimit.Config{Limits: limits, OnUnavailable: zlimit.PolicyAllow, Within: "models", AuditRetention: 48 * time.Hour}, `{"limits":[` + limit + `],"on_unavailable":"allow","within":"models","audit_retention_seconds":172800}`},
		"Resource":         {zlimit.Resource{ID: "gpt-4o", Within: "models"}, `{"id":"gpt-4o","within":"models"}`},
		"Resolved":         {zlimit.Resolved{Limits: limits, Source: zlimit.SourceSystem}, `{"limits":[` + limit + `],"source":"system","on_unavailable":"inherit"}`},
		"Declaration":      {zlimit.Declaration{Resource: "api", Limits: limits}, `{"resource":"api","limits":[` + limit + `]}`},
		"Applied":          {zlimit.Applied{Set: []string{"a"}, Kept: []string{"b"}}, `{"set":["a"],"kept":["b"]}`},
		"Amount":           {zlimit.Amount{"rpm", 3}, `{"limit":"rpm","tokens":3}`},
		"Entity":           {zlimit.Entity{ID: "alice", ParentID: "team", CreatedAt: at}, `{"id":"alice","name":"","parent_id":"team","cascade":false,"created_at":"2026-03-15T09:30:00Z","version":0}`},
		"EntityQuery":      {zlimit.EntityQuery{Prefix: "a", After: "b", Limit: 3}, `{"prefix":"a","after":"b","limit":3}`},
		"Namespace":        {zlimit.Namespace{ID: "x", Name: "default", Status: zlimit.NamespaceActive, CreatedAt: at}, `{"id":"x","name":"default","status":"active","created_at":"2026-03-15T09:30:00Z"}`},
		"PurgeProgress":    {zlimit.PurgeProgress{Deleted: 3}, `{"deleted":3}`},
		"Level":            {zlimit.Level{Resource: "api"}, `{"resource":"api"}`},
		"Stored":           {zlimit.Stored{Config: zlimit.Config{Limits: limits, OnUnavailable: zlimit.PolicyBlock}, Version: 2, Managed: true}, `{"level":{},"config":{"limits":[` + limit + `],"on_unavailable":"block"},"version":2,"managed":true}`},
		"AvailableQuery":   {zlimit.AvailableQuery{Entity: "alice", Resource: "api", Parents: true}, `{"entity":"alice","resource":"api","parents":true}`},
		"LevelQuery":       {zlimit.LevelQuery{Source: zlimit.SourceEntity, Resource: "api", NamesOnly: true}, `{"source":"entity","resource":"api","names_only":true}`},
		"ManagedSet":       {zlimit.ManagedSet{Levels: []zlimit.Level{{Resource: "api"}}, LastApplied: at, Hash: "h"}, `{"levels":[{"resource":"api"}],"last_applied":"2026-03-15T09:30:00Z","hash":"h"}`},
		"ManagedRun":       {},
		"Tuning":           {}, // of an option
		"RejectionReports": {}, // the same
		"RejectedQuery":    {zlimit.RejectedQuery{From: at, Resource: "api", Max: 3}, `{"from":"2026-03-15T09:30:00Z","entity":"","resource":"api","max":3}`},
		"Rejections":       {zlimit.Rejections{From: at, To: at, Total: 3, Reports: 1, Heaviest: []zlimit.Rejection{}}, `{"from":"2026-03-15T09:30:00Z","to":"2026-03-15T09:30:00Z","total":3,"reports":1,"heaviest":[]}`},
		"Rejection":        {zlimit.Rejection{Entity: "alice", Resource: "api", Limit: "rpm", LimitEntity: "team", LimitResource: "apis", Impossible: true, Count: 3, AtLeast: 2, AtMost: 4}, `{"entity":"alice","resource":"api","limit":"rpm","limit_entity":"team","limit_resource":"apis","impossible":true,"count":3,"at_least":2,"at_most":4}`},
		"Completeness":     {zlimit.Completeness{To: at, Gaps: []zlimit.UsageGap{}}, `{"to":"2026-03-15T09:30:00Z","gaps":[]}`},
		"UsageGap":         {zlimit.UsageGap{Kind: zlimit.GapLost, From: at, To: at}, `{"kind":"lost","from":"2026-03-15T09:30:00Z","to":"2026-03-15T09:30:00Z"}`},
		"Forecast":         {zlimit.Forecast{Entity: "alice", Resource: "api", Limit: "usd", Available: 5, Capacity: 9, PerDay: 1.5, UsedUp: at}, `{"entity":"alice","resource":"api","limit":"usd","available":5,"capacity":9,"per_day":1.5,"last_24_hours":0,"used_up":"2026-03-15T09:30:00Z"}`},
		"BudgetAlert":      {zlimit.BudgetAlert{ID: "a", Entity: "alice", Resource: "api", Limit: "usd", Threshold: 80, Used: 8, Capacity: 10, Time: at}, `{"id":"a","entity":"alice","resource":"api","limit":"usd","threshold":80,"used":8,"capacity":10,"time":"2026-03-15T09:30:00Z"}`},
		"LockedError":      {zlimit.LockedError{Holder: "ci", Acquired: at, ExpiresAt: at}, `{"holder":"ci","acquired_at":"2026-03-15T09:30:00Z","expires_at":"2026-03-15T09:30:00Z"}`},
		"Request":          {zlimit.Request{Entity: "alice", Resource: "api", Consume: zlimit.Amounts{"rpm": 1}, Limits: limits}, `{"entity":"alice","resource":"api","consume":{"rpm":1},"limits":[` + limit + `],"on_unavailable":"inherit"}`},
		"Snapshot":         {zlimit.Snapshot{}, ""},
		"UsageQuery":       {zlimit.UsageQuery{Entity: "alice", Window: zlimit.WindowDaily, To: at}, `{"entity":"alice","resource":"","window":"daily","to":"2026-03-15T09:30:00Z","limit":0}`},
		"Summary":          {zlimit.Summary{}, ""},
		"LimitUsage":       {zlimit.LimitUsage{}, ""},
		"Stats":            {zlimit.Stats{}, ""},
		"CacheStats":       {zlimit.CacheStats{Hits: 1}, `{"hits":1,"misses":0,"stale":0,"entries":0,"stale_seconds":0}`},
		"ExceededError":    {&zlimit.ExceededError{Statuses: statuses}, `{"error":"rate_limit_exceeded","possible":true,"retry_after_seconds":1,"limits":[` + status + `]}`},
		"UnavailableError": {&zlimit.UnavailableError{Op: zlimit.OpAcquire, Err: errors.New("no route")}, `{"op":"acquire","unknown":false,"error":"no route"}`},
		"DisabledError":    {&zlimit.DisabledError{Entity: "alice", Resource: "api"}, `{"entity":"alice","resource":"api"}`},
		"SettledError":     {&zlimit.SettledError{Entity: "alice", Resource: "api", Amounts: zlimit.Amounts{"rpm": 2}}, `{"entity":"alice","resource":"api","amounts":{"rpm":2}}`},
		"ReusedIDError":    {&zlimit.ReusedIDError{Entity: "alice", ID: "job-17"}, `{"entity":"alice","id":"job-17"}`},
		"ResetRequest":     {zlimit.ResetRequest{Entity: "alice", Resource: "api", Limits: []string{"rpm"}, OperationID: "ticket-17"}, `{"entity":"alice","resource":"api","limits":["rpm"],"operation_id":"ticket-17"}`},
		"TopUpRequest":     {zlimit.TopUpRequest{Entity: "alice", Resource: "api", Amounts: zlimit.Amounts{"rpm": 5}, Until: at}, `{"entity":"alice","resource":"api","amounts":{"rpm":5},"until":"2026-03-15T09:30:00Z"}`},
		"BucketChange":     {zlimit.BucketChange{OperationID: "ticket-17", Shards: 1, Limits: []zlimit.LimitChange{{"rpm", 500, 0, 500, time.Time{}}}}, `{"operation_id":"ticket-17","shards":1,"limits":[{"limit":"rpm","added":0.5,"before":0,"after":0.5}],"repeated":false}`},
		"LimitChange":      {}, // with the change of the bucket
		"SwitchReport":     {zlimit.SwitchReport{Buckets: 2, Everywhere: at}, `{"buckets":2,"everywhere":"2026-03-15T09:30:00Z"}`},
		"ResetReport":      {zlimit.ResetReport{OperationID: "ticket-17", Buckets: 3, Repeated: 1}, `{"operation_id":"ticket-17","buckets":3,"repeated":1,"skipped":0}`},
		"ValidationError":  {&zlimit.ValidationError{Field: "entity", Value: "a b", Reason: "must"}, `{"field":"entity","value":"a b","reason":"must"}`},
		"ItemError":        {&zlimit.ItemError{PK: "n/BUCKET#alice#api#0", SK: "#STATE", Attribute: "b_zz_cp", Reason: "lacks it"}, `{"pk":"n/BUCKET#alice#api#0","sk":"#STATE","attribute":"b_zz_cp","reason":"lacks it"}`},
		"UnsupportedError": {
			&zlimit.UnsupportedError{Source: zlimit.SourceResource, Resource: "api", Features: []zlimit.UnsupportedFeature{{Name: "schedule", Attribute: "vu", Since: "0.14.0"}}},
			`{"source":"resource","entity":"","resource":"api","features":[{"name":"schedule","attribute":"vu","since":"0.14.0"}]}`,
		},
		"UnsupportedFeature": {}, // with the error
		"VersionError":       {&zlimit.VersionError{Schema: "1", ClientMin: "2", Client: "3"}, `{"schema":"1","client_min":"2","client":"3"}`},
		"Event": {
			zlimit.Event{Kind: zlimit.EventDecision, Operation: zlimit.OpAcquire, Time: at, Duration: 1500 * time.Microsecond, Entity: "alice", Resource: "api", Result: zlimit.ResultOK, Amounts: []zlimit.Amount{{"rpm", 1}}, WriteUnits: 1, Err: errors.New("no route")},
			`{"kind":"decision","operation":"acquire","time":"2026-03-15T09:30:00Z","entity":"alice","resource":"api","result":"ok","amounts":[{"limit":"rpm","tokens":1}],"write_units":1,"duration_seconds":0.0015,"error":"no route"}`,
		},
	}
	snake := regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)
	for name := range exported(t) {
		test, ok := known[name]
		if !ok {
			t.Errorf("the struct %s is not in the list: say its JSON", name)
			continue
		}
		if test.value == nil {
			continue
		}
		text, err := json.Marshal(test.value)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if test.want != "" && string(text) != test.want {
			t.Errorf("%s: (-want +got):\n%s", name, cmp.Diff(test.want, string(text)))
		}
		fields := reflect.Indirect(reflect.ValueOf(test.value)).Type()
		for i := range fields.NumField() {
			f := fields.Field(i)
			member, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			_, own := fields.MethodByName("MarshalJSON")
			_, ownOfPointer := reflect.PointerTo(fields).MethodByName("MarshalJSON")
			if f.IsExported() && !snake.MatchString(member) && !own && !ownOfPointer {
				t.Errorf("%s.%s is %q in JSON, want a name in snake case", name, f.Name, member)
			}
		}
		var members map[string]any
		if err := json.Unmarshal(text, &members); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for member := range members {
			if !snake.MatchString(member) {
				t.Errorf("%s has the member %q, want a name in snake case", name, member)
			}
		}
	}
}

// TestConfigsInJSON reads back what was written.
func TestConfigsInJSON(t *testing.T) {
	system := zlimit.Config{Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 60)}, OnUnavailable: zlimit.PolicyAllow, AuditRetention: 48 * time.Hour}
	stored := zlimit.Stored{Level: zlimit.Level{Resource: "api"}, Config: zlimit.Config{Limits: system.Limits, AuditRetention: time.Hour}, Version: 3, Managed: true}
	for _, test := range []struct{ value, into any }{
		{&system, new(zlimit.Config)},
		{&stored, new(zlimit.Stored)},
		{&zlimit.Config{Limits: system.Limits, OnUnavailable: zlimit.PolicyBlock}, new(zlimit.Config)},
		{&zlimit.Resolved{Limits: system.Limits, Source: zlimit.SourceEntity}, new(zlimit.Resolved)},
		{&zlimit.Namespace{ID: "x", Name: "default", Status: zlimit.NamespaceActive}, new(zlimit.Namespace)},
	} {
		text, err := json.Marshal(test.value)
		if err == nil {
			err = json.Unmarshal(text, test.into)
		}
		if err != nil {
			t.Errorf("%s: %v", text, err)
		}
		compare.Equal(t, string(text), test.value, test.into)
	}
	kept := system
	err := json.Unmarshal([]byte(`{"on_unavailable":"block","audit_retention_seconds":"x"}`), &kept)
	if diff := cmp.Diff(system, kept); err == nil || diff != "" {
		t.Errorf("a config that cannot be read: %v (-want +got):\n%s", err, diff)
	}
}
