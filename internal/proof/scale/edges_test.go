package scale

import (
	"testing"
	"time"
)

// In TestMidnight, a fleet crosses the end of a month with a budget of a day and one of a month in each bucket. One write brings a bucket
// into both periods, and it is the request's own one. The first second costs what the one before costs.
func TestMidnight(t *testing.T) {
	t.Parallel()
	for _, c := range []Case{
		midnightCase("many", 500, 20, 150, 16*time.Second),
		midnightCase("one", 1, 50, 100, 12*time.Second),
	} {
		c.Params.Lost = 0
		o := run(t, &c.Load, c.Params)
		before, after := o.Spans[0], o.Spans[1]
		if o.Crossed != [2]int{c.Load.Known, 0} || o.Admitted < o.Offered || o.Over > 0 {
			t.Errorf("%s: %v of %d buckets crossed by one write, and by more; %+v", c.Label, o.Crossed, c.Load.Known, o.Tally)
		}
		if perRequest := after.Writes / float64(after.Offered); perRequest > 1.15 || before.Writes == 0 || after.Throttled > 0 {
			t.Errorf("%s: %.2f write units a request in the first second: %+v, before %+v", c.Label, perRequest, *after, *before)
		}
	}
}

// In TestSwitch, an operator disables a resource by a walk that ends halfway, and by another one that goes on. No bucket is left open, none is
// marked again, and nothing is admitted after the walk.
func TestSwitch(t *testing.T) {
	t.Parallel()
	c := switchCase(3000, 20, 100, true)
	c.Load.For = 20 * time.Second
	o := run(t, &c.Load, c.Params)
	w := o.Walk
	if w.Missed > 0 || w.Last > w.Seconds+1 || o.Refused == 0 || o.Admitted+o.Refused < o.Offered {
		t.Errorf("%+v, %+v", *w, o.Tally)
	}
	if w.Buckets != 3000 || w.Writes > 3000*1.1 || w.Writes < 3000 {
		t.Errorf("%v write units for %d buckets: %d are marked", w.Writes, 3000, w.Buckets)
	}
}

// In TestHerd, callers who were refused before midnight come back at the reported time, all of one bucket. With the exact time, many fail. With
// spread times, all are admitted.
func TestHerd(t *testing.T) {
	t.Parallel()
	c := herdCase(2000, 1, 100, asTold)
	c.Params.PartitionWrites, c.Params.PartitionReads = 100, 300 // a tenth, as the callers are of those of `make scale`
	o := run(t, &c.Load, c.Params)
	if back := o.Spans[1]; back.Admitted < 2000*99/100 || back.Rejected > 0 || o.Over > 0 {
		t.Errorf("of those that come back: %+v; %d over", *back, o.Over)
	}
}

// In TestQueue, waiters come to one key far more often than it bears writes, and twice as often as their limit has tokens. They share
// writes, and of a thousand at most one fails: transactions of several shards are throttled, too. The bucket is split while they come. Each
// shard has its part of the queue: nearly all are served as if there were one queue, and at most as much later as the throttled key holds
// them back. Callers who book while a queue is halved are early by as much at most.
func TestQueue(t *testing.T) {
	t.Parallel()
	const rate, halving = 8000, 50 * time.Millisecond
	c := queueCase(rate, rate/2, 2*time.Second)
	c.Load.Processes, c.Params.Lost = 400, 0
	o := run(t, &c.Load, c.Params)
	q := o.Queue
	if o.Admitted < o.Offered-o.Offered/1000 || float64(o.Over) > rate*halving.Seconds() || o.Used.Writes > 3*uint64(o.Offered)/4 || o.Shards < 4 {
		t.Errorf("%+v, %d over, %d writes, %d shards, %v", o.Tally, o.Over, o.Used.Writes, o.Shards, o.Errors)
	}
	if q.Wait > 1.5*q.Ideal+1 || q.Late > 2 || q.Passed > 3.5 || q.Last > 1.5 {
		t.Errorf("not as in one queue: %+v", *q)
	}
}
