package protocol

import (
	"context"
	"time"
)

// inTurn does something that looks at buckets, one goroutine of the process at a time for each of them. What one looked at
// serves those who waited. A goroutine waits no longer than maxTurn for each bucket.
func (e *Engine) inTurn(ctx context.Context, levels []level, look func() error) error {
	for i := len(levels) - 1; i >= 0; i-- { // parents first, which is the same order for all their children
		leave, err := enter(ctx, levels[i].bucket.looking)
		if err != nil {
			return err
		}
		defer leave()
	}
	return look()
}

// maxTurn bounds how long a goroutine waits for its turn: the one before it may be held up by its network.
const maxTurn = 100 * time.Millisecond

// enter waits for a turn, which a token in a channel stands for, and returns the function that ends the turn.
func enter(ctx context.Context, turn chan struct{}) (leave func(), err error) {
	leave = func() { <-turn }
	select {
	case turn <- struct{}{}:
		return leave, nil
	default:
	}
	timer := time.NewTimer(maxTurn)
	defer timer.Stop()
	select {
	case turn <- struct{}{}:
		return leave, nil
	case <-timer.C:
		return func() {}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
