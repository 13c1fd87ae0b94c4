package zlimit

import (
	"cmp"
	"log/slog"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/hooks"
	"github.com/zlimit/zlimit-go/internal/store"
)

// An Option changes how a limiter works. Options are checked by [Open] and [New].
type Option func(*options)

type options struct {
	namespace      string
	clock          func() time.Time
	ownClock       bool // it was set by WithClock
	configTTL      time.Duration
	freshness      time.Duration // or defaultFreshness
	policy         FailurePolicy
	defaults       []Limit // used if none are stored
	rejectionCache time.Duration
	mixedFleet     bool
	writesAtOnce   int  // of one bucket before requests share them; 0 for no sharing
	listing        bool // new buckets enter the index of their resource, see [UsageService.Buckets]
	callTimeout    time.Duration
	decision       time.Duration // 0 for that of the failure policy
	tuning         Tuning
	setup          bool
	table          TableSettings // of a new table
	principal      string
	logger         *slog.Logger
	observer       Observer         // nil for none
	rejections     RejectionReports // the zero value for none
	alerts         *budgetAlerts    // nil for none
	hooks          hooks.Limiter
}

// defaultFreshness stands for a freshness that follows from the limits of each bucket.
const defaultFreshness = time.Duration(math.MinInt64)

// maxShards is the default of [Tuning.MaxShards], and the most.
const maxShards = 32

func newOptions(opts []Option) (options, error) {
	o := options{
		namespace:      DefaultNamespace,
		clock:          time.Now, //nolint:forbidigo // the default of WithClock
		configTTL:      time.Minute,
		freshness:      defaultFreshness,
		rejectionCache: 250 * time.Millisecond,
		writesAtOnce:   byStore,
		listing:        true,
		tuning: Tuning{
			BucketTTL: bucket.DefaultExpiryFactor, CacheSize: 100_000, ClockSkew: 5 * time.Second, MaxInFlight: 256, MaxShards: maxShards,
		},
		logger: slog.New(slog.DiscardHandler),
	}
	for i, opt := range opts {
		if opt == nil {
			return o, &ValidationError{Field: "option " + strconv.Itoa(i+1), Value: "nil", Reason: "must not be nil"}
		}
		opt(&o)
	}
	return o, o.validate()
}

func (o *options) validate() error {
	if err := validateNamespace(o.namespace); err != nil {
		return err
	}
	t := &o.tuning
	for _, check := range []struct {
		ok            bool
		field, reason string
		value         string
	}{
		{o.clock != nil, "clock", "must not be nil", "nil"},
		{o.logger != nil, "logger", "must not be nil", "nil"},
		{o.configTTL >= 0, "config TTL", "must not be negative", o.configTTL.String()},
		{o.freshness == defaultFreshness || o.freshness >= 0, "freshness", "must not be negative", o.freshness.String()},
		{o.freshness == defaultFreshness || o.freshness%time.Millisecond == 0, "freshness", "must be whole milliseconds", o.freshness.String()},
		{o.policy <= PolicyAllow, "failure policy", "must be PolicyInherit, PolicyBlock or PolicyAllow", o.policy.String()},
		{t.BucketTTL >= -1, "bucket TTL", "must be positive, or -1", strconv.Itoa(t.BucketTTL)},
		{bits.OnesCount(uint(t.MaxShards)) == 1 && t.MaxShards <= maxShards, "max shards", "must be 1, 2, 4, 8, 16 or 32", strconv.Itoa(t.MaxShards)},
		{o.rejectionCache >= 0, "rejection cache", "must not be negative", o.rejectionCache.String()},
		{t.ClockSkew > 0 && t.ClockSkew <= math.MaxInt64/2, "clock skew", "must be positive, and at most 146 years", t.ClockSkew.String()},
		{o.callTimeout >= 0, "call timeout", "must not be negative", o.callTimeout.String()},
		{o.decision >= 0, "decision timeout", "must not be negative", o.decision.String()},
		{t.MaxInFlight > 0, "max in flight", "must be positive", strconv.Itoa(t.MaxInFlight)},
		{t.CacheSize > 0, "cache size", "must be positive", strconv.Itoa(t.CacheSize)},
		{o.rejections.Top >= 0 && o.rejections.Top <= maxTop, "rejection reports top", "must be from 1 to 100", strconv.Itoa(o.rejections.Top)},
		{
			o.rejections.Keep == 0 || o.rejections.Keep >= time.Hour && o.rejections.Keep <= maxKeep,
			"rejection reports keep", "must be from an hour to 30 days", o.rejections.Keep.String(),
		},
	} {
		if !check.ok {
			return &ValidationError{Field: check.field, Value: check.value, Reason: check.reason}
		}
	}
	if field, value, rule, ok := store.CheckSettings(o.table); !ok {
		return &ValidationError{Field: field, Value: value, Reason: rule}
	}
	if err := o.alerts.validate(); err != nil {
		return err
	}
	if err := validateLimits("default limits", o.defaults, time.Millisecond); err != nil {
		return err
	}
	return validatePrincipal(o.principal)
}

// WithNamespace makes the limiter work in a namespace: entities, limits and buckets of one namespace are not visible
// from another. The default is [DefaultNamespace].
func WithNamespace(name string) Option { return func(o *options) { o.namespace = name } }

// WithClock sets the clock of the limiter; the default is [time.Now]. The function must be safe for concurrent use. It
// is for tests and simulations: processes that share a table must agree on the time. The limiter does not correct this
// clock, however far it is from the store's.
func WithClock(now func() time.Time) Option {
	return func(o *options) { o.clock, o.ownClock = now, true }
}

// WithConfigTTL sets how long stored limits are kept in memory, which bounds how long a change of limits takes to reach
// every process. The default is a minute. The bound is longer by the lag of DynamoDB's eventual reads, usually well
// below a second. On DynamoDB a process also uses another process's reads for an entity, within the same bound. This
// holds while no clock is further off than [WithClockSkew].
//
// With 0 every request uses the limits stored when it arrived. It costs a consistent batch read: a read unit for each
// of the four levels and for the entity's record, and the same for each parent.
func WithConfigTTL(d time.Duration) Option { return func(o *options) { o.configTTL = d } }

// WithFreshness sets δ, the greatest age of a bucket's refill stamp for a write that does not move it. Such writes of
// several processes do not conflict. In return, each time the bucket is full, it may admit up to the refill of δ more
// than an ideal bucket. The default is a hundredth of the shortest time in which a limit of the bucket fills up, at
// most a second; 0 is exact. It must be whole milliseconds.
func WithFreshness(d time.Duration) Option { return func(o *options) { o.freshness = d } }

// WithFailurePolicy sets what happens to requests while the store is unavailable, if neither the request nor the stored
// limits decide: see [Config]. The default is [PolicyBlock]. A stored policy counts as this process last saw it. A
// process that has not seen the store yet uses the option.
//
// With [PolicyAllow] a limiter can be opened in an outage, too. It probes the store in the background, at least every
// five seconds, and then finishes opening. Until then requests follow the failure policy, and every other call returns
// an [*UnavailableError]. If the store comes back without the namespace, or rejects this client, all calls return the
// error that [Open] would have returned.
func WithFailurePolicy(p FailurePolicy) Option { return func(o *options) { o.policy = p } }

// WithDefaultLimits sets the limits of entities and resources for which no level has limits: the level after the
// system's, as [SourceDefault]. They apply to the requests of this process, and to parents too. Processes that share a
// table should have the same defaults. By default a request without limits fails with [ErrNoLimits].
func WithDefaultLimits(limits ...Limit) Option {
	return func(o *options) { o.defaults = slices.Clone(limits) }
}

// WithRejectionCache sets for how long this process may reject requests by its last view of a bucket, without a call. The default is 250
// ms. Such a rejection costs nothing. It ignores tokens that other processes took or returned within the last d, and so does its reported
// wait. A view never admits a request. With 0 the store decides every rejection, as long as it answers.
//
// Many processes may compete for the refill of a used-up limit. While at least a quarter of its requests fall short, a process counts on
// its own part of the refill since that view, less what its earlier requests are about to take: others have mostly taken the rest. Then,
// and once a request has found that others took what it expected, two shards of a split bucket decide. Such a rejection may come up to d
// too early.
//
// While DynamoDB throttles the reads of a bucket, the last view of this process rejects at any age, if it falls short even with the whole
// refill since. It does not know of tokens that others returned meanwhile. The process reads the bucket again at least every 3 s. With 0 a
// request waits for that read, and is rejected by the last view after seven throttles in a row.
func WithRejectionCache(d time.Duration) Option { return func(o *options) { o.rejectionCache = d } }

// Tuning has settings that few programs need to change. A field that is 0 keeps the default.
type Tuning struct {
	// BucketTTL is how long unused buckets are kept if the limits are not the entity's own, as a multiple of the time
	// in which they fill up. The default is 7; -1 keeps them forever.
	BucketTTL int
	// CacheSize is how many buckets a limiter remembers, together with the stored limits of each. The default is 100,000. A
	// bucket that is forgotten costs a read at its next request.
	CacheSize int
	// ClockSkew is how far the clock of a process may be from the true time. The default is 5 seconds. A refill stamp
	// that is ahead by more than twice this was not written by such a process. The next write that finds such a stamp
	// sets it back, and may admit one capacity more than the limit. The process that wrote the stamp notices, and uses
	// the others' time for an hour. A process sets each bucket back at most once an hour. If the bucket is ahead again
	// sooner, its tokens can be taken, and nothing is refilled until the clock has reached it. So a process costs at
	// most one capacity an hour. On DynamoDB limiters use the time of its replies, so the machines' clocks do not
	// matter.
	ClockSkew time.Duration
	// MaxInFlight is the maximum number of concurrent calls of the store. The default is 256, which keeps the
	// connections of one process busy. Further calls wait for their turn, as long as their contexts allow. A request
	// that gives up before its turn was not sent, and is charged nothing. Limiters returned by [RateLimiter.Namespace]
	// share the bound of the original limiter.
	MaxInFlight int
	// MaxShards is into how many items the bucket of one entity and resource may be split: 1, 2, 4, 8, 16 or 32. The default is
	// 32. A bucket is split when it is written more often than DynamoDB serves one key, 1,000 times a second.
	MaxShards int
}

// WithTuning changes settings that few programs need to change. A field of [Tuning] that is 0 keeps the default.
func WithTuning(t Tuning) Option {
	return func(o *options) {
		o.tuning = Tuning{
			BucketTTL:   cmp.Or(t.BucketTTL, o.tuning.BucketTTL),
			CacheSize:   cmp.Or(t.CacheSize, o.tuning.CacheSize),
			ClockSkew:   cmp.Or(t.ClockSkew, o.tuning.ClockSkew),
			MaxInFlight: cmp.Or(t.MaxInFlight, o.tuning.MaxInFlight),
			MaxShards:   cmp.Or(t.MaxShards, o.tuning.MaxShards),
		}
	}
}

// maxLead returns the greatest lead of a refill stamp: a fast clock wrote it, and a slow one reads it.
func (o *options) maxLead() time.Duration { return 2 * o.tuning.ClockSkew }

// WithMixedFleet is for buckets that zae-limiter, a Python package, writes as well. That client takes tokens from an
// idle bucket without a refill, so the refill of the idle time seems to be still due. With this option the limiter
// records the counts in each item, and refills no time for which others may have taken the tokens already. Their tokens
// count as taken at the last moment: a full bucket from which others took n tokens is refilled up to its capacity less
// n.
//
// Every program of the fleet that uses this package should have the option. Programs without it also respect recorded counts. Each write
// moves the refill stamp, as with a freshness of 0, and [WithFreshness] has no effect. A rejection after others took tokens costs a write.
// See also [TableSettings.MixedFleet].
func WithMixedFleet() Option { return func(o *options) { o.mixedFleet = true } }

// byStore stands for the number of concurrent writes that follows from the store.
const byStore = -1

// sharedAfter is the number of writes of one bucket that a process has under way before requests share them by default.
// Up to there sharing would only make requests wait.
const sharedAfter = 8

// WithCoalescing makes the requests of this process share writes as early as possible. A request that arrives during a write of its bucket
// waits for the end of that write, and shares the next one with all others that wait. So one write unit is enough for all requests of a
// bucket that arrive during a call. The bucket may belong to one busy entity, or to a parent of many children. A request waits for two
// calls at most instead of one.
//
// By default requests share writes only while eight writes of their bucket are in flight, so requests of a bucket that is not crowded do
// not wait. They share as early as with this option if DynamoDB throttles the bucket's key and other processes write it often, too. A
// crowded bucket is always written by one call at a time. A store in memory is written immediately, and shares nothing by default.
//
// In either case each request is admitted, rejected and settled by itself. Requests are admitted in the order of arrival, as long as they
// fit. Requests that settle share writes, too.
func WithCoalescing() Option { return func(o *options) { o.writesAtOnce = 1 } }

// WithoutCoalescing gives each request its own write, however many concurrent requests a bucket has. A request whose
// bucket DynamoDB throttles then follows the failure policy, and does not wait to share a later write. See
// [WithCoalescing].
func WithoutCoalescing() Option { return func(o *options) { o.writesAtOnce = 0 } }

// WithCallTimeout bounds one call to the store, including its retries, from the moment it is sent. A call that takes longer is an outage.
// The default, which 0 stands for, is 2 seconds on DynamoDB, or the timeout parameter of a data source name. It is a minute on stores
// without a network, where a call waits only for other writers. A SQLite file that another process keeps locked is an outage after 15
// seconds.
func WithCallTimeout(d time.Duration) Option { return func(o *options) { o.callTimeout = d } }

// WithDecisionTimeout bounds the time to decide a request, with all of its reads, writes, throttles and retries. The failure policy
// decides a request that takes longer:
//
//   - Under [PolicyAllow] it is admitted uncounted, and its calls continue in the background for up to 5 seconds. It may still be counted
//     then, and holds no slots.
//   - Under [PolicyBlock] its calls are cancelled, and it fails with an [*UnavailableError], whose Unknown says whether a write was sent.
//
// The bound applies to [RateLimiter.Acquire] and [RateLimiter.Do]. If the context ends earlier, the call ends with it.
//
// If several requests in a row are late, the policy decides the next ones immediately. The limiter then tries one request in every two of
// these times, until one is in time; under PolicyAllow no caller waits for it. After a pause of two of these times all requests are tried
// again. If the store is always slower than the bound, nearly all requests are uncounted under PolicyAllow: set a longer one.
//
// The default, for 0, is 250 ms under PolicyAllow. Calls usually take a few milliseconds, and a decision after much longer is hardly
// better than the policy's. Requests for a key that DynamoDB throttles wait longer by default: that is no outage, and the policy would
// admit what their bucket rejects. Under PolicyBlock there is no bound by default, since a caller that waits may still be admitted, and
// loses nothing. A store in memory answers immediately, and needs no bound.
func WithDecisionTimeout(d time.Duration) Option { return func(o *options) { o.decision = d } }

// allowDecision is the default of [WithDecisionTimeout] under [PolicyAllow].
const allowDecision = 250 * time.Millisecond

func defaultCallTimeout(s store.Store) time.Duration {
	if named, ok := s.(interface{ CallTimeout() time.Duration }); ok && named.CallTimeout() > 0 {
		return named.CallTimeout()
	}
	if s.Partitioned() {
		return 2 * time.Second
	}
	return time.Minute
}

// WithSetup creates the table and registers the namespace, if they are missing, before the limiter opens them; see
// [RateLimiter.Setup].
func WithSetup() Option { return func(o *options) { o.setup = true } }

// WithTable gives a DynamoDB table that setup creates these settings. Setup does not change the settings of an existing
// table. It logs a warning if the table lacks the protection, or has other ceilings. Other stores have no such
// settings.
func WithTable(settings TableSettings) Option { return func(o *options) { o.table = settings } }

// TableSettings are settings of a DynamoDB table in addition to its layout:
//
//   - WarmReadUnits and WarmWriteUnits are the capacity units a second that the table serves immediately, and each of its
//     indexes. They start at 12,000 reads and 4,000 writes. DynamoDB charges for each of them once. 0 leaves them to
//     DynamoDB.
//   - MaxReadUnits and MaxWriteUnits are ceilings, in capacity units a second, beyond which DynamoDB throttles. They
//     bound the cost of the table; the one of reads holds for each index, too. 0 is for none.
//   - DeletionProtection makes DynamoDB refuse to delete the table.
//   - MixedFleet is for a table that zae-limiter, a Python package, uses as well. Its index GSI2 then holds whole items
//     for that package, and every acquire costs a write unit more. DynamoDB cannot change the projection of an index:
//     setup of a table with an index of keys alone returns an error. Programs on such a table want [WithMixedFleet],
//     too.
type TableSettings = store.TableSettings

// WithPrincipal sets who makes the changes of entities and limits, for the audit events. By default it is the caller as
// the store knows it. For a DynamoDB table opened by [Open], that is the ARN of the AWS identity, which STS returns at
// the first change. For a database file or memory it is the user of the operating system. A store made by dynamo.New
// knows none. [ContextWithPrincipal] names another one for single calls.
//
// A name has at most 256 bytes of UTF-8 without control characters.
func WithPrincipal(name string) Option { return func(o *options) { o.principal = name } }

// WithObserver reports the limiter's actions to an observer: decisions, settlements, calls of the store, splits of
// buckets, changes of limits. See [LogTo], [OnLevel] and [Observers]. The default is none, which costs nothing.
func WithObserver(o Observer) Option { return func(opts *options) { opts.observer = o } }

// WithLogger sets the logger for events that an operator should know about, such as a failed refresh of limits. By
// default nothing is logged.
func WithLogger(l *slog.Logger) Option { return func(o *options) { o.logger = l } }

// WithHooks is only for packages of this module, for tests and deployments. The type of its argument is internal, so no other program can
// call it.
func WithHooks(h hooks.Limiter) Option { return func(o *options) { o.hooks = h } }

// freshnessOf returns δ for limits, in milliseconds.
func (o *options) freshnessOf(params []bucket.Params) int64 {
	if o.freshness == defaultFreshness {
		return bucket.DefaultFreshness(params)
	}
	return o.freshness.Milliseconds()
}
