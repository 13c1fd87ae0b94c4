package quota

import "slices"

// A dueQueue holds the subjects of a shard, the one that gives memory back first
// at the top. It is a heap for container/heap.
type dueQueue []*subject

func (q dueQueue) first() *subject {
	if len(q) == 0 {
		return nil
	}
	return q[0]
}

func (q dueQueue) Len() int           { return len(q) }
func (q dueQueue) Less(i, j int) bool { return q[i].due < q[j].due }

func (q dueQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].place, q[j].place = i, j
}

// Push appends a subject.
func (q *dueQueue) Push(x any) {
	s := x.(*subject)
	s.place = len(*q)
	*q = append(*q, s)
}

// Pop takes the last subject out. It gives memory back once three quarters are
// empty.
func (q *dueQueue) Pop() any {
	last := len(*q) - 1
	s := (*q)[last]
	s.place = -1
	(*q)[last] = nil
	*q = (*q)[:last]
	if cap(*q) > 64 && last < cap(*q)/4 {
		*q = slices.Clip(slices.Clone(*q))
	}
	return s
}
