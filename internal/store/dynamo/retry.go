package dynamo

import (
	"context"
	"errors"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/zlimit/zlimit-go/internal/wait"
)

const maxAttempts = 3

// backoff is how long a call pauses between attempts.
var backoff = wait.Backoff{First: 50 * time.Millisecond, Longest: time.Second}

// A retryer decides for the SDK which attempts to repeat. It has no quota of tokens: with three attempts at most, and no
// more than one call per acquire, there is no storm to contain.
type retryer struct {
	// repeatable says that an attempt may be repeated whose outcome is unknown: it reads, or carries a token by which
	// DynamoDB recognises the repetition.
	repeatable bool
	// doubt says that the outcome of an attempt was unknown.
	doubt bool
	// shared says that calls share the retryer, so that doubt is not recorded.
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
		return !r.transaction // the other transaction is over in milliseconds
	case unknown:
		if !r.shared {
			r.doubt = true
		}
		return r.repeatable
	case refused:
		// The SDK marks answers that reject the time of the signature, after which it corrects its clock.
		var skewed interface{ RetryableError() bool }
		return errors.As(err, &skewed) && skewed.RetryableError()
	default:
		return false
	}
}

// MaxAttempts implements [aws.Retryer].
func (*retryer) MaxAttempts() int { return maxAttempts }

// RetryDelay implements [aws.Retryer].
func (*retryer) RetryDelay(attempt int, _ error) (time.Duration, error) {
	return backoff.Pause(max(attempt, 1) - 1), nil
}

// GetRetryToken implements [aws.Retryer].
func (*retryer) GetRetryToken(context.Context, error) (func(error) error, error) { return release, nil }

// GetInitialToken implements [aws.Retryer].
func (*retryer) GetInitialToken() func(error) error { return release }

// GetAttemptToken implements [aws.RetryerV2].
func (*retryer) GetAttemptToken(context.Context) (func(error) error, error) { return release, nil }

func release(error) error { return nil }

var _ aws.RetryerV2 = (*retryer)(nil)

// The retryers that calls share, and the options that make a call use them, whatever the client's own retryer. They are
// made once: passing them costs a call nothing.
var (
	writeRetryer = &retryer{shared: true}
	readRetryer  = &retryer{shared: true, repeatable: true}

	writing = []func(*dynamodb.Options){func(o *dynamodb.Options) { o.Retryer = writeRetryer }}
	reading = []func(*dynamodb.Options){func(o *dynamodb.Options) { o.Retryer = readRetryer }}
)

// use returns the option that makes one call use the retryer.
func (r *retryer) use(o *dynamodb.Options) { o.Retryer = r }
