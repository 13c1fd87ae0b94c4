package zlimit

// Statuses returns where the limits of the request stand after it was admitted, those of the entity first and then those
// of the parents that were charged, as the last write of each bucket left them and as they refill until now. Requested is
// what the lease holds of each limit. It makes no call, so that what other processes took since is not in it. A lease that
// is [Lease.Degraded], and the zero value, have none.
func (le *Lease) Statuses() Statuses {
	le.mu.Lock()
	defer le.mu.Unlock()
	if le.degraded || le.limiter == nil {
		return nil
	}
	var statuses Statuses
	now := le.limiter.now().UnixMilli()
	for i := range le.links {
		k := link{bucket: le.links[i].bucket, limits: le.links[i].limits} // which asks nothing
		states := k.bucket.states(nil)
		level := k.statuses(states, now)
		for j := range level {
			s := &level[j]
			s.Requested = tokensOf(le.links[i].demand.Amounts, s.Limit.Name) / millis
			if len(states) == 0 { // the bucket was created with others in a transaction, which returns no images
				s.Available -= s.Requested
			}
		}
		if statuses == nil {
			statuses = level
			continue
		}
		statuses = append(statuses, level...)
	}
	return statuses
}
