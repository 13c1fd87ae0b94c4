package zlimit

import (
	"sync"
	"testing"
	"time"
)

func TestRequestsAtOnceAfterAPause(t *testing.T) {
	const bound = 100 * time.Millisecond
	for range 5000 {
		l := &lateness{started: time.Now().Add(-time.Hour)}
		for range lateRequests {
			l.late()
		}
		l.last.Store(int64(time.Minute))
		l.since.Store(int64(time.Minute))
		var all sync.WaitGroup
		start := make(chan struct{})
		for range 3 {
			all.Go(func() {
				<-start
				if refused, tried := l.judge(bound); refused || tried {
					t.Errorf("judge after a pause = %v, %v, want neither: the store may be fast again", refused, tried)
				}
			})
		}
		close(start)
		if all.Wait(); t.Failed() {
			break
		}
	}
}
