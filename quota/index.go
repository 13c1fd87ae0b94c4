package quota

// An index finds the subjects of a shard by hash and name: open addressing with
// linear probing, at most three quarters full. A lookup hashes once and touches
// one cache line beside the subject's own. A decision among many names is
// therefore as fast as one among few. A built-in map hashes a second time and
// follows more pointers. The zero value is empty.
type index struct {
	slots []slot // length zero or a power of two
	n     int
}

type slot struct {
	hash uint64
	s    *subject
}

func (x *index) find(hash uint64, name string) *subject {
	mask := uint64(len(x.slots) - 1)
	if x.n == 0 {
		return nil
	}
	for i := hash & mask; ; i = (i + 1) & mask {
		at := &x.slots[i]
		if at.s == nil {
			return nil
		}
		if at.hash == hash && at.s.name == name {
			return at.s
		}
	}
}

// insert adds a subject that is not in the index.
func (x *index) insert(s *subject) {
	if 4*(x.n+1) > 3*len(x.slots) {
		x.resize(max(4, 2*len(x.slots)))
	}
	x.put(s)
	x.n++
}

func (x *index) put(s *subject) {
	mask := uint64(len(x.slots) - 1)
	i := s.hash & mask
	for x.slots[i].s != nil {
		i = (i + 1) & mask
	}
	x.slots[i] = slot{s.hash, s}
}

func (x *index) resize(size int) {
	old := x.slots
	x.slots = make([]slot, size)
	for _, at := range old {
		if at.s != nil {
			x.put(at.s)
		}
	}
}

// remove takes a subject out and moves the ones behind it up, so that no probe
// ends early. It gives memory back once seven eighths are empty.
func (x *index) remove(s *subject) {
	mask := uint64(len(x.slots) - 1)
	i := s.hash & mask
	for x.slots[i].s != s {
		i = (i + 1) & mask
	}
	for j := (i + 1) & mask; x.slots[j].s != nil; j = (j + 1) & mask {
		// A subject may move to i unless its own place lies between i and j.
		if (j-x.slots[j].hash)&mask >= (j-i)&mask {
			x.slots[i] = x.slots[j]
			i = j
		}
	}
	x.slots[i] = slot{}
	x.n--
	if len(x.slots) > 8 && 8*x.n < len(x.slots) {
		x.resize(len(x.slots) / 2)
	}
}
