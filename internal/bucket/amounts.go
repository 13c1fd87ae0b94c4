package bucket

import "slices"

// An Amount is what a write takes of one limit, in millitokens; negative to give back.
type Amount struct {
	Limit  string
	Tokens int64
}

// Of returns the amount of a limit in a list, 0 where it is not named.
func Of(amounts []Amount, limit string) int64 {
	for i := range amounts {
		if amounts[i].Limit == limit {
			return amounts[i].Tokens
		}
	}
	return 0
}

// An OverflowError says that a sum of amounts of a limit does not fit 64 bits.
type OverflowError struct{ Amount }

func (e *OverflowError) Error() string { return e.Limit + ": more tokens than can be counted" }

// Sum returns a new list with the amounts of both lists by limit, or an [*OverflowError].
func Sum(a, b []Amount) ([]Amount, error) {
	total := append(make([]Amount, 0, len(a)+len(b)), a...)
next:
	for _, more := range b {
		for i := range total {
			if total[i].Limit != more.Limit {
				continue
			}
			sum := total[i].Tokens + more.Tokens
			if add(total[i].Tokens, more.Tokens) != sum {
				return nil, &OverflowError{more}
			}
			total[i].Tokens = sum
			continue next
		}
		total = append(total, more)
	}
	return total, nil
}

// Negated returns a new list with the amounts turned around.
func Negated(amounts []Amount) []Amount {
	negative := make([]Amount, len(amounts))
	for i, a := range amounts {
		negative[i] = Amount{a.Limit, -a.Tokens}
	}
	return negative
}

// A Demand is what one write is to take. Limits that it does not name are neither asked nor charged.
type Demand struct {
	Amounts   []Amount // each limit at most once, all of them configured
	Unchecked bool     // taken without a check, down into debt

	// levels are the balances to leave, of limits to which refill of other shards flows in the same transaction.
	levels []Amount
}

// of returns what the write takes of a limit, and whether that much must be there. Every write takes one unit of
// [WriteUnits] without a check. A bucket that is not split goes on, and the table itself throttles it.
func (d *Demand) of(limit string) (tokens int64, checked bool) {
	if limit == WriteUnits {
		return oneWrite, false
	}
	tokens = Of(d.Amounts, limit)
	return tokens, tokens > 0 && !d.Unchecked
}

// level returns the balance that a limit is to be left with; false when that follows from its own refill.
func (d *Demand) level(limit string) (tokens int64, ok bool) {
	for i := range d.levels {
		if d.levels[i].Limit == limit {
			return d.levels[i].Tokens, true
		}
	}
	return 0, false
}

// Empty reports whether a demand takes and gives nothing.
func (d *Demand) Empty() bool {
	return !slices.ContainsFunc(d.Amounts, func(a Amount) bool { return a.Tokens != 0 })
}

// Returns reports whether a demand takes nothing.
func (d *Demand) Returns() bool {
	return !slices.ContainsFunc(d.Amounts, func(a Amount) bool { return a.Tokens > 0 })
}
