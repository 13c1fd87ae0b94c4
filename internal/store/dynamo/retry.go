package dynamo

import (
	"context"
	"errors"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"

	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/store/dynamo/wire"
	"github.com/zlimit/zlimit-go/internal/tool/wait"
)

const maxAttempts = 3

// backoff is how long a call pauses between attempts, and afterConflict how long it pauses when the last attempt met a transaction, which
// is over in milliseconds.
var (
	backoff       = wait.Backoff{First: 50 * time.Millisecond, Longest: time.Second}
	afterConflict = wait.Backoff{First: 10 * time.Millisecond, Longest: time.Second, Least: 5 * time.Millisecond}
)

// retries are the rule by which a store repeats attempts. Its calls share a budget, so they do not make the trouble of
// a table three times as great. They are made once: passing them costs a call nothing.
type retries struct {
	budget      *ratelimit.TokenRateLimit
	write, read *retryer // that calls share

	writing, reading []func(*dynamodb.Options)
	streaming        []func(*dynamodbstreams.Options)
}

// The budget is that of the SDK's standard retryer. A repetition costs tokens, which it gets back when it succeeds. Each
// successful attempt adds one. So a hundred repetitions may fail, and then one for every five calls that succeed.
const (
	budgetTokens = retry.DefaultRetryRateTokens
	retryCost    = retry.DefaultRetryCost
	successEarns = retry.DefaultNoRetryIncrement
)

func newRetries() *retries {
	r := &retries{budget: ratelimit.NewTokenRateLimit(budgetTokens)}
	r.write, r.read = r.retryer(), r.retryer()
	r.write.shared, r.read.shared, r.read.repeatable = true, true, true
	r.writing = []func(*dynamodb.Options){r.write.use}
	r.reading = []func(*dynamodb.Options){r.read.use}
	r.streaming = []func(*dynamodbstreams.Options){func(o *dynamodbstreams.Options) { o.Retryer = r.read }}
	return r
}

func (r *retries) retryer() *retryer {
	own := &retryer{budget: r.budget}
	own.earn = func(failure error) error {
		if failure == nil {
			return own.budget.AddTokens(successEarns)
		}
		return nil
	}
	return own
}

// A retryer decides for the SDK, and for the wire path, which attempts to repeat.
type retryer struct {
	budget *ratelimit.TokenRateLimit
	earn   func(error) error // takes the outcome of an attempt

	// repeatable says that an attempt with an unknown outcome may be repeated: it reads, or carries a token by which
	// DynamoDB recognises the repetition.
	repeatable bool
	// doubt says that the outcome of an attempt was unknown.
	doubt bool
	// shared says that calls share the retryer, and doubt is not recorded.
	shared bool
	// transaction says that the caller is to judge a conflict: it may plan another transaction.
	transaction bool
}

// IsErrorRetryable implements [aws.Retryer].
func (r *retryer) IsErrorRetryable(err error) bool {
	switch classify(err) {
	case throttled, unsent:
		return true
	case conflict:
		return !r.transaction
	case unknown:
		if !r.shared {
			r.doubt = true
		}
		return r.repeatable
	case refused:
		// The SDK marks answers that reject the time of the signature, and then corrects its clock.
		var skewed interface{ RetryableError() bool }
		return errors.As(err, &skewed) && skewed.RetryableError()
	default:
		return false
	}
}

// MaxAttempts implements [aws.Retryer].
func (*retryer) MaxAttempts() int { return maxAttempts }

// RetryDelay implements [aws.Retryer].
func (*retryer) RetryDelay(attempt int, err error) (time.Duration, error) {
	pauses := &backoff
	if classify(err) == conflict {
		pauses = &afterConflict
	}
	return pauses.Pause(max(attempt, 1) - 1), nil
}

// GetRetryToken implements [aws.Retryer]. It fails when the budget is spent: the call then ends with the error of its last
// attempt. What throttles a single key costs nothing, since calls of other keys succeed.
func (r *retryer) GetRetryToken(ctx context.Context, err error) (func(error) error, error) {
	store.NoteSent(ctx) // after a pause
	if classify(err) == throttled && (&store.Error{Throttles: throttlesIn(err)}).KeyThrottled() {
		return func(error) error { return nil }, nil
	}
	refund, err := r.budget.GetToken(ctx, retryCost)
	if err != nil {
		return nil, err
	}
	return func(failure error) error {
		if failure == nil {
			return refund()
		}
		return nil
	}, nil
}

// GetInitialToken implements [aws.Retryer].
func (r *retryer) GetInitialToken() func(error) error { return r.earn }

// GetAttemptToken implements [aws.RetryerV2].
func (r *retryer) GetAttemptToken(context.Context) (func(error) error, error) { return r.earn, nil }

var _ aws.RetryerV2 = (*retryer)(nil)

// use is the option that makes one call use the retryer. The call then believes DynamoDB's replies alone.
func (r *retryer) use(o *dynamodb.Options) {
	o.Retryer = r
	wire.Careful(o)
}
