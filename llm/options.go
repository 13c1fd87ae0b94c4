package llm

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

// An Option changes how a [Transport] works. Options are checked by [NewTransport].
type Option func(*config)

type config struct {
	base         http.RoundTripper
	charges      []charge
	rules        []Rule
	peek         int64
	output       int64
	includeUsage bool
	respond      bool
	account      string
	drainBytes   int64
	drainTime    time.Duration
	observe      func(context.Context, Report)
	logger       *slog.Logger
	clock        func() time.Time
}

// A charge is a limit and what a call takes of it.
type charge struct {
	limit   string
	weights Weights
}

// A Rule maps models to the resource that is limited.
type Rule struct {
	// Pattern is the name of a model; a star in it stands for any text.
	Pattern string `json:"pattern"`
	// Resource is what is limited; "" for the name of the model.
	Resource string `json:"resource"`
}

func newConfig(opts []Option) (config, error) {
	c := config{
		base:    http.DefaultTransport,
		peek:    defaultPeek,
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
		c.charges = []charge{{"rpm", PerRequest}, {"tpm", PerToken}}
	}
	return c, c.validate()
}

func (c *config) validate() error {
	switch {
	case c.base == nil:
		return invalid("base", "nil", "must not be nil")
	case c.peek < 1:
		return invalid("peek", strconv.FormatInt(c.peek, 10), "must be at least 1 byte")
	case c.output < 0 || c.output > maxReported:
		return invalid("default output", strconv.FormatInt(c.output, 10), fmt.Sprintf("must be 0 to %d tokens", maxReported))
	case c.drainBytes < 0:
		return invalid("drain", strconv.FormatInt(c.drainBytes, 10), "must not be negative")
	case c.drainTime < 0:
		return invalid("drain", c.drainTime.String(), "must not be negative")
	case c.observe == nil:
		return invalid("observer", "nil", "must not be nil")
	case c.logger == nil:
		return invalid("logger", "nil", "must not be nil")
	case c.clock == nil:
		return invalid("clock", "nil", "must not be nil")
	}
	for i, r := range c.rules {
		if r.Pattern == "" {
			return invalid(fmt.Sprintf("pattern of rule %d", i+1), "", "must not be empty")
		}
	}
	names := map[string]bool{}
	for _, ch := range c.charges {
		if names[ch.limit] {
			return invalid("limit", ch.limit, "is given twice")
		}
		names[ch.limit] = true
		for _, w := range []int64{ch.weights.Request, ch.weights.Input, ch.weights.CacheRead, ch.weights.CacheWrite, ch.weights.Output} {
			if w < 0 || w > maxWeight {
				return invalid("weights["+ch.limit+"]", strconv.FormatInt(w, 10), fmt.Sprintf("must be 0 to %d", maxWeight))
			}
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
	return func(c *config) { c.charges = append(c.charges, charge{name, w}) }
}

// WithModels maps models to resources. The first rule that matches counts. A model that none matches is refused with a
// [*zlimit.ValidationError]. Without rules the resource is the name of the model, as the request has it, and a client
// that makes up models makes up buckets.
func WithModels(rules ...Rule) Option {
	return func(c *config) { c.rules = append(c.rules, rules...) }
}

// WithPeek sets how many bytes of a request are read to find its model and settings; the default is a mebibyte. A longer
// body is sent whole, and the rest of it counts by its length.
func WithPeek(bytes int64) Option { return func(c *config) { c.peek = bytes } }

// WithDefaultOutput sets the estimate of an answer whose request sets no bound, in tokens; the default is 1,024.
func WithDefaultOutput(tokens int64) Option { return func(c *config) { c.output = tokens } }

// WithIncludeUsage makes streams of chat completions report their usage, which they do only when asked. It adds
// stream_options to the request, unless that asks already, and takes the chunk that comes of it out of the answer
// again.
func WithIncludeUsage() Option { return func(c *config) { c.includeUsage = true } }

// WithResponses answers a refusal as a provider would, with a response of status 429 that names the time to wait. The
// providers' SDKs wait that long before they try again. The default is the error, wrapped by http.Client in a
// [*net/url.Error], which some SDKs try again without regard to that time.
func WithResponses() Option { return func(c *config) { c.respond = true } }

// WithLearning keeps the bucket of an account, for each resource asked, from being above what the provider says is
// left. The difference is charged, and never given back. A response of status 429 empties the bucket until the time
// that it names, an hour at most. The account should have no parent, since the parent would be charged too. It costs a
// read and a write at most every 5 seconds for each resource. Only limits whose weights are 0 and 1 learn. The caller of
// the answer does not wait for it; [Transport.Wait] does.
func WithLearning(account string) Option { return func(c *config) { c.account = account } }

// WithDrain goes on reading an answer that the caller has left, to learn its usage. It reads at most so many bytes, for
// at most so long. The caller does not wait for it; [Transport.Wait] does. The default is to stop at once and to
// estimate.
func WithDrain(bytes int64, d time.Duration) Option {
	return func(c *config) { c.drainBytes, c.drainTime = bytes, d }
}

// WithObserver sets a function that is told of every call that was admitted, once the call is settled. The goroutine
// that reads the answer calls it, and it must not block.
func WithObserver(observe func(context.Context, Report)) Option {
	return func(c *config) { c.observe = observe }
}

// WithLogger sets where a lease is reported that cannot be settled, and what cannot be learned; by default nowhere.
func WithLogger(l *slog.Logger) Option { return func(c *config) { c.logger = l } }

// WithClock sets the time by which [WithLearning] goes; the default is [time.Now].
func WithClock(now func() time.Time) Option { return func(c *config) { c.clock = now } }

// resource returns what is limited when a model is asked.
func (c *config) resource(model string) (string, error) {
	if model == "" {
		return "", invalid("model", "", fmt.Sprintf("the request must name it, within its first %d bytes", c.peek))
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
	return "", invalid("model", model, "no rule is for it")
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
