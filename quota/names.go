package quota

import "context"

// A release is a model's id with the date or number of one of its releases
// behind it, such as gpt-4o-2024-11-20 or claude-sonnet-4@20250514. Its requests
// count for the model with the longest name that has a quota, unless the
// release has a quota of its own. Providers limit them together.
//
// modelOf returns the name under which requests count. has reports whether a
// name has a quota.
func modelOf(name string, has func(string) bool) string {
	if has(name) {
		return name
	}
	for i := cutRelease(name, len(name)); i > 0; i = cutRelease(name, i) {
		if has(name[:i]) {
			return name[:i]
		}
	}
	return name
}

// mayBeRelease reports whether a name is that of a release by its form. It costs
// next to nothing for names that are not.
func mayBeRelease(name string) bool {
	n := len(name)
	if n == 0 || name[n-1] != 't' && !isDigit(name[n-1]) {
		return false
	}
	digits := 0
	for digits < n && isDigit(name[n-1-digits]) {
		digits++
	}
	switch digits {
	case len("001"):
		return name[n-3] == '0' && cutRelease(name, n) > 0
	case 0, len("06"), len("0613"), len("20250514"):
		return cutRelease(name, n) > 0
	}
	return false
}

// cutRelease returns the length of the prefix of a release's name that may be
// the name of its model. It is the longest one that is shorter than below, and
// 0 without one.
func cutRelease(name string, below int) int {
	for i := below - 1; i > 0 && len(name)-i <= 1+len("2006-01-02"); i-- {
		switch c := name[i]; {
		case c == '-' || c == '@':
			if isRelease(name[i+1:]) {
				return i
			}
		case !isDigit(c) && isDigit(name[len(name)-1]): // no part of a date
			return 0
		}
	}
	return 0
}

// isRelease knows the forms that providers use.
func isRelease(s string) bool {
	switch len(s) {
	case len("001"):
		return s[:2] == "00" && isDigit(s[2])
	case len("0613"):
		return isMonth(s[:2]) && isDay(s[2:])
	case len("05-06"):
		return isMonth(s[:2]) && s[2] == '-' && isDay(s[3:])
	case len("latest"):
		return s == "latest"
	case len("09-2025"):
		return isMonth(s[:2]) && s[2] == '-' && isYear(s[3:])
	case len("20250514"):
		return isYear(s[:4]) && isMonth(s[4:6]) && isDay(s[6:])
	case len("2024-11-20"):
		return isYear(s[:4]) && s[4] == '-' && isMonth(s[5:7]) && s[7] == '-' && isDay(s[8:])
	}
	return false
}

func isDigit(c byte) bool   { return '0' <= c && c <= '9' }
func isYear(s string) bool  { return s[:2] == "20" && isDigit(s[2]) && isDigit(s[3]) }
func isMonth(s string) bool { return "01" <= s && s <= "12" && isDigit(s[1]) }
func isDay(s string) bool   { return "01" <= s && s <= "31" && isDigit(s[1]) }

// localModel returns the name under which requests for a model count, as far as
// this process knows the quotas.
func (l *Limiter) localModel(name string) string {
	if !mayBeRelease(name) {
		return name
	}
	return modelOf(name, func(name string) bool {
		return l.mem.models.has(name) || l.store != nil && l.store.hasSeen(name)
	})
}

// model returns the name under which requests for a model count. A store may
// have quotas that this process does not know.
func (l *Limiter) model(ctx context.Context, name string) (string, error) {
	switch {
	case !mayBeRelease(name) || len(name) > maxNameLen:
		return name, nil
	case l.store == nil:
		return l.localModel(name), nil
	}
	var failed error
	owner := modelOf(name, func(name string) bool {
		has, err := l.store.hasQuota(ctx, name)
		if failed == nil {
			failed = err
		}
		return has
	})
	return owner, failed
}
