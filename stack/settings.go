package stack

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

// A Setting is something about a stack that [Options] can change: a parameter of the template, with a rule of its own.
type Setting struct {
	Name      string // such as "memory"; the command has a flag of that name
	Parameter string // of the template
	Kind      Kind
	Default   string
	Doc       string // a phrase, with the unit
	Flag      string // a shorter one for the command; of a switch, the effect of the flag other than the default
	check     func(value string) string
}

// A Kind is the kind of value of a setting.
type Kind int

// The kinds of settings.
const (
	KindText   Kind = iota // text
	KindNumber             // a whole number
	KindSwitch             // true or false
)

// Settings returns the settings of a stack, in the order in which help lists them.
func Settings() []Setting { return slices.Clone(settings) }

var settings = []Setting{
	{"table", "TableName", KindText, "", "name of the table, the stack's by default", "name of the table (default the stack's)", matching(tableName, "must have 3 to 255 letters, digits, _, - and .")},
	{"mixed-fleet", "MixedFleet", KindSwitch, "false", "whether zae-limiter uses the table as well; it cannot be changed", "a table for zae-limiter as well", nil},
	{"deletion-protection", "DeletionProtection", KindSwitch, "true", "whether DynamoDB refuses to delete the table", "let DynamoDB delete the table", nil},
	{"point-in-time-days", "PointInTimeDays", KindNumber, "35", "days that the table can be restored to any second of", "days to restore from (default 35)", between(1, 35)},
	{"max-read-units", "MaxReadUnits", KindNumber, "0", "ceiling of reads, units a second; 0 for none", "ceiling of reads a second (default 0, none)", between(0, maxUnits)},
	{"max-write-units", "MaxWriteUnits", KindNumber, "0", "ceiling of writes, units a second; 0 for none", "ceiling of writes a second (default 0, none)", between(0, maxUnits)},
	{"warm-read-units", "WarmReadUnits", KindNumber, "12000", "reads that are served immediately, units a second; charged once", "initial reads a second (default 12000)", between(12_000, maxUnits)},
	{"warm-write-units", "WarmWriteUnits", KindNumber, "4000", "writes that are served immediately, units a second; charged once", "initial writes a second (default 4000)", between(4_000, maxUnits)},
	{"kms-key", "KeyArn", KindText, "", "ARN of a KMS key for table, bucket, queue and log", "KMS key for all that is stored", arn("kms")},
	{"aggregator", "Aggregator", KindSwitch, "true", "whether a function sums up usage", "no function that sums up usage", nil},
	{"provisioner", "Provisioner", KindSwitch, "false", "whether a function serves Custom::ZlimitLimits", "a function for Custom::ZlimitLimits", nil},
	{"memory", "MemorySize", KindNumber, "512", "memory of the function, MB", "MB of the function (default 512)", between(128, 10_240)},
	{"timeout", "Timeout", KindNumber, "60", "time of one call of the function, seconds", "seconds of one call (default 60)", between(10, 900)},
	{"tracing", "Tracing", KindSwitch, "false", "whether X-Ray traces the function", "X-Ray traces the function", nil},
	{"usage-hourly", "UsageHourly", KindText, "2160h", "how long usage of hours is kept, such as 2160h; 0 keeps it forever", "keep usage of hours (default 2160h)", retention},
	{"usage-daily", "UsageDaily", KindText, "9600h", "how long usage of days is kept; 0 keeps it forever", "keep usage of days (default 9600h)", retention},
	{"usage-monthly", "UsageMonthly", KindText, "0", "how long usage of months is kept; 0 keeps it forever", "keep usage of months (default 0, forever)", retention},
	{"audit-retention", "AuditRetention", KindNumber, "90", "days that audit events are kept in namespaces that do not say otherwise", "days of audit events (default 90)", between(1, maxDays)},
	{"log-days", "LogDays", KindNumber, "90", "days that the log is kept", "days that the log is kept (default 90)", oneOf(1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653)},
	{"archive", "Archive", KindSwitch, "true", "whether expired audit events are kept in a bucket", "no archive of expired audit events", nil},
	{"archive-transition-days", "ArchiveTransitionDays", KindNumber, "90", "days until archived events go to Glacier Instant Retrieval; 0 for never", "days until Glacier (default 90; 0 never)", between(0, maxDays)},
	{"archive-days", "ArchiveDays", KindNumber, "0", "days until archived events are deleted; 0 for never", "days until deletion (default 0, never)", between(0, maxDays)},
	{"alarms", "Alarms", KindSwitch, "true", "whether there are alarms", "no alarms", nil},
	{"alarm-topic", "AlarmTopic", KindText, "", "ARN of an SNS topic that alarms notify", "SNS topic that alarms notify", arn("sns")},
	{"alarm-lag", "AlarmLag", KindNumber, "3600", "seconds that usage may be behind before the alarm", "alarm at seconds behind (default 3600)", between(60, 86_400)},
	{"alarm-errors", "AlarmErrors", KindNumber, "1", "failed calls of the function in five minutes for an alarm", "alarm at failed calls (default 1)", between(1, maxUnits)},
	{"alarm-duration", "AlarmDuration", KindNumber, "80", "percent of the timeout that calls of the function take for an alarm", "alarm at percent of the timeout (default 80)", between(1, 100)},
	{"alarm-throttles", "AlarmThrottles", KindNumber, "100", "throttled calls in five minutes for an alarm", "alarm at throttled calls (default 100)", between(1, maxUnits)},
	{"iam", "IAM", KindSwitch, "true", "whether the stack makes policies and roles", "no policies and roles", nil},
	{"roles", "Roles", KindSwitch, "false", "whether there are roles for applications, administrators and readers", "roles for programs and people", nil},
	{"aggregator-role", "AggregatorRole", KindText, "", "ARN of the function's role where the stack makes none", "role of the function, with --no-iam", arn("iam")},
	{"provisioner-role", "ProvisionerRole", KindText, "", "ARN of the provisioner's role where the stack makes none", "role of the provisioner, with --no-iam", arn("iam")},
	{"role-names", "RoleNameFormat", KindText, "", "form of the names of roles, with {} for ours", "form of names of roles, such as app-{}", nil},
	{"policy-names", "PolicyNameFormat", KindText, "", "form of the names of policies, with {} for ours", "form of names of policies, such as app-{}", nil},
	{"permissions-boundary", "PermissionsBoundary", KindText, "", "name or ARN of a policy that bounds all roles", "name or ARN of a policy that bounds roles", boundary},
}

const (
	maxUnits = 1_000_000_000
	maxDays  = 36_500
)

func setting(name string) (Setting, bool) {
	i := slices.IndexFunc(settings, func(s Setting) bool { return s.Name == name })
	if i < 0 {
		return Setting{}, false
	}
	return settings[i], true
}

// Options say how a stack should be. Settings that they do not name keep the stack's value, or the default in a new
// one.
type Options struct {
	// Name is that of the stack, and of the table unless the setting "table" says otherwise.
	Name string `json:"name"`
	// Settings are values by the names of settings; see [Settings].
	Settings map[string]string `json:"settings"`
	// Reset lists settings that go back to their defaults, and "tags" for all tags.
	Reset []string `json:"reset"`
	// Tags are added to those that the stack has; they are on all its resources.
	Tags map[string]string `json:"tags"`
	// Code is the program of aggregator and provisioner. A stack that has one of them keeps its code without.
	Code *Code `json:"code,omitzero"`
	// Version brings the stack back to an earlier version, with all settings as they are. The template and the code
	// are those in the stack's bucket. See [Manager.Versions]. It goes without settings, tags and code. "" is for this
	// version.
	Version string `json:"version,omitempty"`
	// AllowDowngrade lets this version take the place of a later one, where the table admits it.
	AllowDowngrade bool `json:"allow_downgrade,omitempty"`
}

// ours begins the names of the tags that package stack sets.
const ours = "zlimit:"

// The tags of every stack.
const (
	tagStack   = ours + "stack"   // its name
	tagVersion = ours + "version" // of the package that deployed it last
)

var (
	stackName    = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9-]{2,52}$`)
	tableName    = regexp.MustCompile(`^[a-zA-Z0-9_.-]{3,255}$`)
	versionForm  = regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9]+([-+][0-9A-Za-z.+-]+)?$`)
	functionName = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)
	arnForm      = regexp.MustCompile(`^arn:[a-z-]+:([a-z0-9-]+):[a-z0-9-]*:[0-9]{12}:.+$`)
	nameForm     = regexp.MustCompile(`^[\w+=,.@-]*\{\}[\w+=,.@-]*$`)
	iamName      = regexp.MustCompile(`^[\w+=,.@-]{1,128}$`)
)

// Validate returns everything that is wrong with the options, each as a [*zlimit.ValidationError].
func (o *Options) Validate() []error {
	var wrong []error
	bad := func(field, value, reason string) {
		wrong = append(wrong, &zlimit.ValidationError{Field: field, Value: value, Reason: reason})
	}
	if err := validateName(o.Name); err != nil {
		wrong = append(wrong, err)
	}
	for _, name := range slices.Sorted(maps.Keys(o.Settings)) {
		value := o.Settings[name]
		s, ok := setting(name)
		if !ok {
			bad("setting", name, "there is no such setting")
			continue
		}
		if reason := s.validate(value); reason != "" {
			bad(name, value, reason)
		}
		if slices.Contains(o.Reset, name) {
			bad("reset", name, "is also given a value")
		}
	}
	for _, name := range o.Reset {
		if _, ok := setting(name); !ok && name != "tags" {
			bad("reset", name, "there is no such setting")
		}
	}
	if table := o.Settings["table"]; table != "" {
		if reason := functionNames(table, o.Settings["aggregator"] != "false", o.Settings["provisioner"] == "true"); reason != "" {
			bad("table", table, reason)
		}
	}
	if o.Version != "" {
		switch {
		case !versionForm.MatchString(o.Version):
			bad("version", o.Version, "must be one such as 0.10.0")
		case len(o.Settings)+len(o.Reset)+len(o.Tags) > 0 || o.Code != nil || o.AllowDowngrade:
			bad("version", o.Version, "goes with the settings, the tags and the code that the stack has had; change them in a deployment of its own")
		}
	}
	wrong = append(wrong, o.validateNames()...)
	if o.Settings["iam"] == "false" && o.Settings["aggregator"] != "false" && o.Settings["aggregator-role"] == "" {
		bad("iam", "false", "needs aggregator-role, the ARN of a role for the aggregator, or no aggregator")
	}
	if o.Settings["iam"] == "false" && o.Settings["provisioner"] == "true" && o.Settings["provisioner-role"] == "" {
		bad("iam", "false", "needs provisioner-role, the ARN of a role for the provisioner")
	}
	return append(wrong, validateTags(o.Tags)...)
}

func validateName(name string) error {
	if !stackName.MatchString(name) {
		return &zlimit.ValidationError{Field: "name", Value: name, Reason: "must have 3 to 53 letters, digits and hyphens, and begin with a letter"}
	}
	return nil
}

// functionNames returns the rule that the name of a table breaks as the beginning of the functions' names. Lambda takes
// 64 letters, digits, hyphens and underscores. A table without functions may have any name.
func functionNames(table string, aggregator, provisioner bool) string {
	suffix := ""
	if aggregator {
		suffix = "-aggregator"
	}
	if provisioner {
		suffix = "-provisioner"
	}
	if most := maxFunctionName - len(suffix); suffix != "" && (len(table) > most || !functionName.MatchString(table)) {
		return fmt.Sprintf("must have at most %d letters, digits, _ and -, since a function is named {table}%s; without aggregator and provisioner any table will do", most, suffix)
	}
	return ""
}

const maxFunctionName = 64

// validate returns the rule that a value breaks.
func (s *Setting) validate(value string) string {
	switch s.Kind {
	case KindSwitch:
		if value != "true" && value != "false" {
			return "must be true or false"
		}
	case KindNumber:
		if n, err := strconv.ParseInt(value, 10, 64); err != nil || strconv.FormatInt(n, 10) != value {
			return "must be a whole number"
		}
	case KindText:
		if value == "" {
			return "must not be empty; reset brings the default back"
		}
	}
	if s.check == nil {
		return ""
	}
	return s.check(value)
}

// components are what stands in the names of roles and policies behind the name of the table.
var components = map[string][]string{
	"role-names":   {"aggregator", "provisioner", "app", "admin", "reader"},
	"policy-names": {"acquire", "full", "read", "tenant-acquire", "tenant-full", "tenant-read"},
}

// validateNames checks the forms of names, by the names that they come to.
func (o *Options) validateNames() (wrong []error) {
	table := o.Name
	if o.Settings["table"] != "" {
		table = o.Settings["table"]
	}
	for setting, most := range map[string]int{"role-names": 64, "policy-names": 128} {
		form, ok := o.Settings[setting]
		if !ok || form == "" {
			continue
		}
		reason := ""
		if strings.Count(form, "{}") != 1 || !nameForm.MatchString(form) {
			reason = "must have {} once, and letters, digits and + = , . @ _ - around it"
		}
		for _, c := range components[setting] {
			if name := strings.Replace(form, "{}", table+"-"+c, 1); reason == "" && len(name) > most {
				reason = fmt.Sprintf("comes to %q with %d characters, of at most %d", name, len(name), most)
			}
		}
		if reason != "" {
			wrong = append(wrong, &zlimit.ValidationError{Field: setting, Value: form, Reason: reason})
		}
	}
	return wrong
}

// maxTags is how many tags a resource may have. Of ours the table has the two of every stack, and one of the template.
const (
	maxTags = 50
	ourTags = 3
)

func validateTags(tags map[string]string) (wrong []error) {
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		reason := ""
		switch lower := strings.ToLower(key); {
		case key == "" || len([]rune(key)) > 128:
			reason = "must have 1 to 128 characters"
		case strings.HasPrefix(lower, "aws:"):
			reason = "aws: begins the tags of AWS"
		case strings.HasPrefix(lower, ours):
			reason = ours + " begins the tags of zlimit"
		case len([]rune(tags[key])) > 256:
			reason = "must have a value of at most 256 characters"
		}
		if reason != "" {
			wrong = append(wrong, &zlimit.ValidationError{Field: "tag", Value: key, Reason: reason})
		}
	}
	if n := len(tags) + ourTags; n > maxTags {
		wrong = append(wrong, &zlimit.ValidationError{Field: "tags", Value: strconv.Itoa(len(tags)), Reason: fmt.Sprintf("must be at most %d, with three of zlimit %d", maxTags-ourTags, maxTags)})
	}
	return wrong
}

func matching(form *regexp.Regexp, reason string) func(string) string {
	return func(value string) string {
		if form.MatchString(value) {
			return ""
		}
		return reason
	}
}

func between(least, most int64) func(string) string {
	return func(value string) string {
		if n, _ := strconv.ParseInt(value, 10, 64); n < least || n > most {
			return fmt.Sprintf("must be from %d to %d", least, most)
		}
		return ""
	}
}

func oneOf(values ...int) func(string) string {
	return func(value string) string {
		if n, _ := strconv.Atoi(value); !slices.Contains(values, n) {
			return "must be one of " + strings.Trim(fmt.Sprint(values), "[]")
		}
		return ""
	}
}

func arn(service string) func(string) string {
	return func(value string) string {
		if m := arnForm.FindStringSubmatch(value); m == nil || m[1] != service {
			return "must be an ARN of " + service
		}
		return ""
	}
}

func boundary(value string) string {
	if strings.HasPrefix(value, "arn:") {
		return arn("iam")(value)
	}
	if !iamName.MatchString(value) {
		return "must be the name or the ARN of a policy"
	}
	return ""
}

// retention checks how long usage is kept: the stream has changes of a day, which may come again.
func retention(value string) string {
	if d, err := time.ParseDuration(value); err != nil || d != 0 && d < 48*time.Hour || strings.Trim(value, "0123456789hms") != "" {
		return "must be 0, forever, or at least 48h, in hours, minutes and seconds"
	}
	return ""
}
