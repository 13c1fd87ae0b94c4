package zlimit

import (
	"fmt"
	"strings"

	"github.com/zlimit/zlimit-go/internal/grammar"
)

// amountText returns an amount of a limit for people: a number of tokens, or dollars if the limit is in money.
func amountText(limit string, n int64) string { return grammar.AmountText(limit, n) }

// tokensText is amountText with the unit of what is not money.
func tokensText(limit string, n int64) string {
	if limit == grammar.Money {
		return amountText(limit, n)
	}
	return amountText(limit, n) + " tokens"
}

// String returns where the limit stands, such as "alice/gpt-4 rpm 59 of 60". Amounts of a limit named usd are in dollars.
func (s Status) String() string {
	return fmt.Sprintf("%s/%s %s %s of %s",
		s.Entity, s.Resource, s.Limit.Name, amountText(s.Limit.Name, s.Available), amountText(s.Limit.Name, s.Now().Capacity))
}

// String returns the state of each limit, as [Status.String] does.
func (s Statuses) String() string {
	texts := make([]string, len(s))
	for i := range s {
		texts[i] = s[i].String()
	}
	return strings.Join(texts, "; ")
}

// String returns the net consumption of the lease, such as "lease of rpm 1, tpm 620". It names a lease that is closed, and one that
// is [Lease.Degraded].
func (le *Lease) String() string {
	if le == nil || le.limiter == nil {
		return "no lease"
	}
	var texts []string
	for _, a := range le.Consumed().AppendAmounts(nil) {
		texts = append(texts, a.Limit+" "+amountText(a.Limit, a.Tokens))
	}
	kind := "lease"
	if le.degraded {
		kind = "uncounted lease"
	} else if le.isClosed() {
		kind = "closed lease"
	}
	if len(texts) == 0 {
		return kind
	}
	return kind + " of " + strings.Join(texts, ", ")
}
