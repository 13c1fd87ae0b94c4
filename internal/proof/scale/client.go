package scale

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/tool/wait"
)

// A Client is the view that one process has of a table: it repeats attempts as the store on DynamoDB does, within the
// same budget. It is safe for concurrent use.
type Client struct {
	*Table
	attempts attemptBudget
}

// An attemptBudget is that of the SDK's standard retryer. It is safe for concurrent use.
type attemptBudget struct{ spent atomic.Int64 }

const (
	attemptTokens = 500
	retryCost     = 5
)

// take reports whether there are tokens for one more attempt, and takes them.
func (b *attemptBudget) take() bool {
	if b.spent.Add(retryCost) <= attemptTokens {
		return true
	}
	b.spent.Add(-retryCost)
	return false
}

// add gives tokens back.
func (b *attemptBudget) add(tokens int64) {
	for {
		spent := b.spent.Load()
		if spent == 0 || b.spent.CompareAndSwap(spent, max(spent-tokens, 0)) {
			return
		}
	}
}

// Client returns a client for another process.
func (t *Table) Client() *Client { return &Client{Table: t} }

// Ping is a read of one of many keys.
func (c *Client) Ping(ctx context.Context) error {
	c.mu.Lock()
	n := c.random.IntN(64)
	c.mu.Unlock()
	_, err := c.Read(ctx, []store.Key{{PK: "_/PING#" + strconv.Itoa(n), SK: "#"}}, false)
	return err
}

// Read reads items. Keys that are throttled are left out and asked for again, as long as each call reads some. A read
// of a single key is throttled as a whole.
func (c *Client) Read(ctx context.Context, keys []store.Key, consistent bool) ([]expr.Item, error) {
	const op = "BatchGetItem"
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	items := make([]expr.Item, len(keys))
	left := make([]int, len(keys))
	for i := range keys {
		left[i] = i
	}
	for fruitless := 0; ; {
		before := len(left)
		var limit *met
		var err error
		if left, limit, err = c.readSome(ctx, keys, left, items, consistent); err != nil || len(left) == 0 {
			return items, err
		}
		if len(left) < before {
			fruitless = 0
		} else if fruitless++; fruitless == attempts {
			return nil, limit.err(op)
		}
		if err := wait.For(ctx, backoff.Pause(fruitless)); err != nil {
			return nil, &store.Error{Op: op, Err: err}
		}
		store.NoteSent(ctx)
	}
}

// Write does one write. A conflict with a transaction is tried again, as a throttle is.
func (c *Client) Write(ctx context.Context, w store.Write) (result store.Result, err error) {
	if err := ctx.Err(); err != nil {
		return result, fmt.Errorf("UpdateItem: %w", err)
	}
	err = c.repeat(ctx, true, func() error {
		result, err = c.write(ctx, w)
		return err
	})
	return result, err
}

// Transact does all writes or none.
func (c *Client) Transact(ctx context.Context, writes []store.Write) (results []store.Result, err error) {
	const op = "TransactWriteItems"
	if err := ctx.Err(); err != nil || len(writes) == 0 {
		return nil, err
	}
	if len(writes) == 1 {
		result, err := c.Write(ctx, writes[0])
		if result.Applied {
			result.Item = nil
		}
		return []store.Result{result}, err
	}
	err = c.repeat(ctx, false, func() error {
		results, err = c.transact(ctx, writes, op)
		return err
	})
	return results, err
}

// Delete deletes items.
func (c *Client) Delete(ctx context.Context, keys []store.Key) error {
	for _, k := range keys {
		if _, err := c.Write(ctx, store.Write{Kind: store.Delete, Key: k}); err != nil {
			return err
		}
	}
	return nil
}

// The pauses and tries of the store on DynamoDB.
const attempts = 3

var (
	backoff       = wait.Backoff{First: 50 * time.Millisecond, Longest: time.Second}
	afterConflict = wait.Backoff{First: 10 * time.Millisecond, Longest: time.Second, Least: 5 * time.Millisecond}
)

// repeat makes attempts of a call until one is done, fails permanently, or the budget is spent.
func (c *Client) repeat(ctx context.Context, conflicts bool, attempt func() error) error {
	paid := int64(0) // for the attempt
	for n := range attempts {
		err := attempt()
		how := store.OutcomeOf(err)
		if err == nil {
			c.attempts.add(paid + 1)
		}
		if how != store.Throttled && (how != store.Conflicted || !conflicts) || n == attempts-1 {
			return err
		}
		paid = 0
		if known := (*store.Error)(nil); !errors.As(err, &known) || !known.KeyThrottled() {
			if !c.attempts.take() {
				return err
			}
			paid = retryCost
		}
		pauses := &backoff
		if how == store.Conflicted {
			pauses = &afterConflict
		}
		if ended := wait.For(ctx, pauses.Pause(n)); ended != nil {
			return &store.Error{Op: "call", Err: ended}
		}
	}
	return nil
}
