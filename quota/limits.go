package quota

import "strconv"

// MaxTokens is the largest token count accepted for one request, and for each
// of its input and output parts.
const MaxTokens = 1<<31 - 1

// ModelQuota holds the limits of one model or one key. Zero means unlimited;
// negative values are rejected wherever a quota is taken.
type ModelQuota struct {
	MaxRPM int64 `yaml:"max_rpm" json:"max_rpm"` // requests per minute
	MaxTPM int64 `yaml:"max_tpm" json:"max_tpm"` // input and output tokens per minute
	MaxRPD int64 `yaml:"max_rpd" json:"max_rpd"` // requests per day

	MaxInputTPM  int64 `yaml:"max_input_tpm,omitempty" json:"max_input_tpm,omitempty"`   // input tokens per minute
	MaxOutputTPM int64 `yaml:"max_output_tpm,omitempty" json:"max_output_tpm,omitempty"` // output tokens per minute
	MaxTPD       int64 `yaml:"max_tpd,omitempty" json:"max_tpd,omitempty"`               // input and output tokens per day
}

// Unlimited reports whether no limit is set.
func (q ModelQuota) Unlimited() bool { return q == ModelQuota{} }

// Max returns the value of one limit, zero if it is unlimited.
func (q ModelQuota) Max(l Limit) int64 {
	switch l {
	case LimitRPD:
		return q.MaxRPD
	case LimitTPD:
		return q.MaxTPD
	case LimitRPM:
		return q.MaxRPM
	case LimitTPM:
		return q.MaxTPM
	case LimitInputTPM:
		return q.MaxInputTPM
	case LimitOutputTPM:
		return q.MaxOutputTPM
	default:
		return 0
	}
}

// Validate returns a *ValidationError for the first negative limit, its field
// prefixed with the given name.
func (q ModelQuota) Validate(name string) error {
	for l := LimitRPD; l < limitCount; l++ {
		if v := q.Max(l); v < 0 {
			return &ValidationError{Field: name + ".max_" + l.String(), Value: strconv.FormatInt(v, 10), Rule: "must be zero (unlimited) or positive"}
		}
	}
	return nil
}

// Limit names one of the limits of a quota.
type Limit uint8

// The limits, in the order in which they are checked, in a model's quota and then
// in its key's; LimitProvider comes last of all.
const (
	LimitNone      Limit = iota
	LimitRPD             // requests per day
	LimitTPD             // tokens per day
	LimitRPM             // requests per minute
	LimitTPM             // tokens per minute
	LimitInputTPM        // input tokens per minute
	LimitOutputTPM       // output tokens per minute
	LimitProvider        // the rest in the provider's last response, see [Transport]

	limitCount = LimitProvider
)

// String returns the limit's short name, such as "rpm"; it is the part behind
// "max_" in files.
func (l Limit) String() string {
	switch l {
	case LimitNone:
		return "none"
	case LimitRPD:
		return "rpd"
	case LimitTPD:
		return "tpd"
	case LimitRPM:
		return "rpm"
	case LimitTPM:
		return "tpm"
	case LimitInputTPM:
		return "input_tpm"
	case LimitOutputTPM:
		return "output_tpm"
	case LimitProvider:
		return "provider"
	}
	return "limit(" + strconv.Itoa(int(l)) + ")"
}

// Usage is the content of the windows of one model or key at one instant.
type Usage struct {
	Requests     int64 `json:"requests"`      // in the last minute
	InputTokens  int64 `json:"input_tokens"`  // in the last minute
	OutputTokens int64 `json:"output_tokens"` // in the last minute
	DayRequests  int64 `json:"day_requests"`  // in the running day
	DayTokens    int64 `json:"day_tokens"`    // in the running day, input and output
}

// Exceeded returns the first limit that one more request with the given tokens
// would pass, or NoLimit. It is the one decision of the package; every store
// makes it with this function.
func (q *ModelQuota) Exceeded(u *Usage, input, output int64) Limit {
	if q.MaxRPD > 0 && u.DayRequests >= q.MaxRPD {
		return LimitRPD
	}
	if q.MaxTPD > 0 && u.DayTokens+input+output > q.MaxTPD {
		return LimitTPD
	}
	if q.MaxRPM > 0 && u.Requests >= q.MaxRPM {
		return LimitRPM
	}
	if q.MaxTPM > 0 && u.InputTokens+u.OutputTokens+input+output > q.MaxTPM {
		return LimitTPM
	}
	if q.MaxInputTPM > 0 && u.InputTokens+input > q.MaxInputTPM {
		return LimitInputTPM
	}
	if q.MaxOutputTPM > 0 && u.OutputTokens+output > q.MaxOutputTPM {
		return LimitOutputTPM
	}
	return LimitNone
}

// Impossible returns the first limit that the request alone exceeds, so no waiting helps, or
// NoLimit.
func (q *ModelQuota) Impossible(input, output int64) Limit {
	return q.Exceeded(&Usage{}, input, output)
}
