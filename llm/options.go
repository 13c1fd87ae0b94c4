package llm

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/internal/edge/fields"
	"github.com/zlimit/zlimit-go/internal/grammar"
	"github.com/zlimit/zlimit-go/price"
	"github.com/zlimit/zlimit-go/zlimit"
)

// An Option changes how a [Transport] works. Options are checked by [NewTransport].
type Option func(*config)

type config struct {
	base         http.RoundTripper
	charges      []charge
	rules        []Rule
	unknown      Unknown
	formats      []Format
	table        table
	memory       int64
	most         int64
	output       int64
	check        func(*http.Request, Call) error
	estimate     func(*http.Request, Call) Call
	fields       *fields.Format
	learned      *lengths
	includeUsage bool
	respond      bool
	account      string
	pace         string   // the limit that holds the learned share of the rate
	scaled       []string // the limits that it is of
	paced        bool
	drainBytes   int64
	drainTime    time.Duration
	cutOff       int64
	cutsOff      bool
	maxWait      time.Duration
	priority     string
	observe      func(context.Context, Report)
	logger       *slog.Logger
	clock        func() time.Time
}

// A charge is a limit with the amount of a call.
type charge struct {
	limit   string
	weights Weights // the zero value where of is not that of weights
	of      func(asked string, u Usage) (int64, error)
	unit    string // of the fields; "" for requests
}

func chargeByWeights(limit string, w Weights) charge {
	unit := "tokens"
	if w == PerRequest {
		unit = ""
	}
	return charge{limit, w, func(_ string, u Usage) (int64, error) { return w.Of(u), nil }, unit}
}

// A Rule maps models to the resource that is limited.
type Rule struct {
	// Pattern is the name of a model; a star in it stands for any text.
	Pattern string `json:"pattern"`
	// Resource is the limited resource; "" for the name of the model.
	Resource string `json:"resource"`
}

func newConfig(opts []Option) (config, error) {
	c := config{
		base:    http.DefaultTransport,
		memory:  defaultMemory,
		most:    defaultMost,
		output:  defaultOutput,
		observe: func(context.Context, Report) {},
		logger:  slog.New(slog.DiscardHandler),
		clock:   time.Now,
	}
	for i, opt := range opts {
		if opt == nil {
			return c, invalid("option "+strconv.Itoa(i+1), "nil", "must not be nil")
		}
		opt(&c)
	}
	if len(c.charges) == 0 {
		c.charges = []charge{chargeByWeights("rpm", PerRequest), chargeByWeights("tpm", PerToken)}
	}
	if err := c.validate(); err != nil {
		return c, err
	}
	for _, ch := range c.charges {
		if c.fields != nil && ch.unit != "" {
			c.fields.SetUnit("llm", ch.limit, ch.unit)
		}
	}
	if c.table = known; len(c.formats) > 0 {
		c.table = append(newTable(c.formats), known...)
	}
	return c, nil
}

func (c *config) validate() error {
	switch {
	case c.base == nil:
		return invalid("base", "nil", "must not be nil")
	case c.memory < 1:
		return invalid("memory of bodies", strconv.FormatInt(c.memory, 10), "must be at least 1 byte")
	case c.most < 1:
		return invalid("size of bodies", strconv.FormatInt(c.most, 10), "must be at least 1 byte")
	case c.output < 0 || c.output > maxReported:
		return invalid("default output", strconv.FormatInt(c.output, 10), fmt.Sprintf("must be 0 to %d tokens", maxReported))
	case c.drainBytes < 0:
		return invalid("drain", strconv.FormatInt(c.drainBytes, 10), "must not be negative")
	case c.drainTime < 0:
		return invalid("drain", c.drainTime.String(), "must not be negative")
	case c.cutsOff && (c.cutOff < 1 || c.cutOff > maxReported):
		return invalid("cut-off step", strconv.FormatInt(c.cutOff, 10), fmt.Sprintf("must be 1 to %d tokens", maxReported))
	case c.maxWait < 0:
		return invalid("max wait", c.maxWait.String(), "must not be negative")
	case c.priority != "" && grammar.CheckLimitName(c.priority) != "":
		return invalid("priority", c.priority, grammar.CheckLimitName(c.priority))
	case c.observe == nil:
		return invalid("observer", "nil", "must not be nil")
	case c.logger == nil:
		return invalid("logger", "nil", "must not be nil")
	case c.clock == nil:
		return invalid("clock", "nil", "must not be nil")
	}
	if l := c.learned; l != nil && !(l.part > 0 && l.part < 1) {
		return invalid("learned output", strconv.FormatFloat(l.part, 'g', -1, 64), "must be a part of the answers between 0 and 1")
	}
	if c.unknown > UnknownPass {
		return invalid("unknown", strconv.Itoa(int(c.unknown)), "must be Refuse, Observe, Estimate or Pass")
	}
	for i := range c.formats {
		if err := c.formats[i].validate(i); err != nil {
			return err
		}
	}
	if at := slices.IndexFunc(c.rules, func(r Rule) bool { return r.Pattern == "" }); at >= 0 {
		return invalid(fmt.Sprintf("pattern of rule %d", at+1), "", "must not be empty")
	}
	return c.validateCharges()
}

func (c *config) validateCharges() error {
	names := map[string]bool{}
	for _, ch := range c.charges {
		if names[ch.limit] {
			return invalid("limit", ch.limit, "is given twice")
		}
		names[ch.limit] = true
		if ch.of == nil {
			return invalid("charge["+ch.limit+"]", "nil", "must not be nil")
		}
		for _, w := range []int64{ch.weights.Request, ch.weights.Input, ch.weights.CacheRead, ch.weights.CacheWrite, ch.weights.Output} {
			if w < 0 || w > maxWeight {
				return invalid("weights["+ch.limit+"]", strconv.FormatInt(w, 10), fmt.Sprintf("must be 0 to %d", maxWeight))
			}
		}
	}
	if !c.paced {
		return nil
	}
	if rule := grammar.CheckLimitName(c.pace); rule != "" {
		return invalid("pace", c.pace, rule)
	}
	if names[c.pace] {
		return invalid("pace", c.pace, "must not be a limit that calls are charged to")
	}
	if len(c.scaled) == 0 {
		return invalid("scaled limits", "", "must be at least one")
	}
	for _, limit := range c.scaled {
		if !names[limit] {
			return invalid("scaled limit", limit, "must be a limit that calls are charged to")
		}
	}
	return nil
}

func invalid(field, value, reason string) error {
	return &zlimit.ValidationError{Field: field, Value: value, Reason: reason}
}

// WithBase sets what sends the requests; the default is [http.DefaultTransport].
func WithBase(base http.RoundTripper) Option { return func(c *config) { c.base = base } }

// WithLimit makes calls take tokens of a limit by weights. Every resource that is asked must have the limit. Given once
// or more, it replaces the default, which is rpm by [PerRequest] and tpm by [PerToken].
func WithLimit(name string, w Weights) Option {
	return func(c *config) { c.charges = append(c.charges, chargeByWeights(name, w)) }
}

// WithCharge makes calls take of a limit the result of a function, such as weights that differ from model to model. The
// function gets the model that was asked. It is called before the call with the estimate, and afterwards with the
// usage. It must not refuse an estimate where it would accept the usage. An error of it refuses a call. When the answer
// is there, the estimate then stays charged, and [Report].Err has the error. The function must not block, and is called
// by many goroutines.
func WithCharge(name string, of func(asked string, u Usage) (int64, error)) Option {
	return func(c *config) { c.charges = append(c.charges, charge{limit: name, of: of, unit: "tokens"}) }
}

// WithPrices makes calls take their price of a limit, in nano-dollars: a limit of 25 dollars has a capacity of
// 25*[price.Dollar]. The price is that of the answering model, or of the requested one where the table lacks the other.
// It is that of the class of service, the speed and the region in [Usage], and of the hour at which the answer ends: see
// [price.Model]. A call of a model that the table does not have is refused with a [*zlimit.ValidationError].
func WithPrices(name string, table *price.Table) Option {
	if table == nil {
		return WithCharge(name, nil)
	}
	return func(c *config) {
		c.charges = append(c.charges, charge{limit: name, unit: fields.NanoDollars, of: func(asked string, u Usage) (int64, error) {
			model := u.Model
			if !table.Has(model) {
				model = asked
			}
			if !table.Has(model) {
				return 0, invalid("model", model, "has no price for limit "+strconv.Quote(name))
			}
			call := u.priced(model)
			if table.Timed(model) {
				call.Time = c.clock()
			}
			cost, err := table.CostOf(call, u.units())
			return int64(cost), err
		}})
	}
}

// WithModels maps models to resources. The first rule that matches counts. A model that none matches is refused with a
// [*zlimit.ValidationError]. Without rules the resource is the name of the model, as the request has it, and a client
// that makes up models makes up buckets.
func WithModels(rules ...Rule) Option {
	return func(c *config) { c.rules = append(c.rules, rules...) }
}

// WithBodies sets the bytes of a request kept in memory while it is read to its end, and the longest request. The
// defaults are a mebibyte and 128 MiB. What does not fit into memory is read again by GetBody where the request has it,
// and kept in a temporary file otherwise. A longer request is refused with a [*zlimit.ValidationError].
func WithBodies(memory, most int64) Option {
	return func(c *config) { c.memory, c.most = memory, most }
}

// WithDefaultOutput sets the estimate of an answer whose request sets no bound, in tokens; the default is 1,024.
func WithDefaultOutput(tokens int64) Option { return func(c *config) { c.output = tokens } }

// WithIncludeUsage makes streams of chat completions report their usage, which they do only when asked. It adds
// stream_options to the request, unless the request has it, and takes the resulting chunk out of the answer again. Events
// are known by their beginning, whatever type the server gives them, so an answer that may have the chunk has no
// Content-Length.
func WithIncludeUsage() Option { return func(c *config) { c.includeUsage = true } }

// WithResponses answers refused calls as the provider would: by a response, whose body has the form that the provider's
// SDK reads. Status 429 names the time to wait, and SDKs wait that long before they try again. A request that breaks a
// rule is answered by 400. An unknown one or one without limits gets 403, and one in an outage of the store 503. The
// default is the error, wrapped by http.Client in a [*net/url.Error]. Some SDKs try it again without regard to the time
// to wait. Other errors, such as an application's own of [WithCheck], are returned in any case. So are errors after the
// end of the context.
func WithResponses() Option { return func(c *config) { c.respond = true } }

// WithCheck asks a function about each call before anything is taken, such as whether its key may ask that model. An error
// of the function refuses the call. It must not read the body.
func WithCheck(check func(*http.Request, Call) error) Option {
	return func(c *config) { c.check = check }
}

// WithFields adds the fields RateLimit-Policy and RateLimit to answers, and to the refusals of [WithResponses]. They
// describe the limits of the call, in place of fields that the provider may have sent. A limit of [WithPrices], and
// one named usd, has the unit nano-usd, and another one that is not of requests has tokens.
func WithFields() Option { return func(c *config) { c.fields = new(fields.Format) } }

// WithLearning keeps the bucket of an account, for each resource asked, from being above the provider's remaining
// figure. The difference is charged, and never given back. A response of status 429 empties the bucket until the time
// that it names, an hour at most. The account should have no parent, since the parent would be charged too. It costs a
// read and a write at most every 5 seconds for each resource. Only limits whose weights are 0 and 1 learn. The caller
// of the answer does not wait for it; [Transport.Wait] does.
func WithLearning(account string) Option { return func(c *config) { c.account = account } }

// WithDrain continues to read an answer that the caller has left, to learn its usage, for at most the given bytes and time.
// The caller does not wait for it; [Transport.Wait] does. By default the transport stops reading and
// estimates.
func WithDrain(bytes int64, d time.Duration) Option {
	return func(c *config) { c.drainBytes, c.drainTime = bytes, d }
}

// WithMaxWait makes calls wait for their tokens, up to a time, in one queue over all processes, as [zlimit.RateLimiter.Wait] does. A call
// whose wait would exceed it, or the deadline of its context, is rejected immediately. By default no call waits.
func WithMaxWait(d time.Duration) Option { return func(c *config) { c.maxWait = d } }

// WithPriority makes calls ones of a priority: they leave to others the part of limits that [zlimit.Limit.Floor] says. The name has the
// form of [zlimit.Request.Priority].
func WithPriority(name string) Option { return func(c *config) { c.priority = name } }

// WithObserver sets a function that is called for every admitted call, once the call is settled, and for unknown requests as
// [WithUnknown] describes. The goroutine that reads the answer calls it, and it must not block.
func WithObserver(observe func(context.Context, Report)) Option {
	return func(c *config) { c.observe = observe }
}

// WithLogger sets the log for leases that cannot be settled, for failures to learn, and for calls whose limits are missing. Each has a
// line a minute at most; by default there is none.
func WithLogger(l *slog.Logger) Option { return func(c *config) { c.logger = l } }

// WithClock sets the time for [WithLearning], and for prices that depend on the hour; the default is [time.Now].
func WithClock(now func() time.Time) Option { return func(c *config) { c.clock = now } }

func (c *config) resource(model string) (string, error) {
	if model == "" {
		return "", invalid("model", "", "must be named by the request")
	}
	if len(c.rules) == 0 {
		return model, nil
	}
	for _, r := range c.rules {
		if r.matches(model) {
			if r.Resource == "" {
				return model, nil
			}
			return r.Resource, nil
		}
	}
	return "", invalid("model", model, "must match a rule")
}

func (r Rule) matches(model string) bool {
	first, rest, star := strings.Cut(r.Pattern, "*")
	model, ok := strings.CutPrefix(model, first)
	if !star {
		return ok && model == ""
	}
	pieces := strings.Split(rest, "*")
	last := len(pieces) - 1
	for _, piece := range pieces[:last] { // the first place of each is as good as any
		var found bool
		_, model, found = strings.Cut(model, piece)
		ok = ok && found
	}
	return ok && strings.HasSuffix(model, pieces[last])
}
