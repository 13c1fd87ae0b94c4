package httplimit

import (
	"net/http"
	"strconv"

	"github.com/zlimit/zlimit-go/internal/edge/fields"
	"github.com/zlimit/zlimit-go/zlimit"
)

// The names of the fields, in canonical form.
const (
	fieldPolicy = "Ratelimit-Policy"
	fieldState  = "Ratelimit"
)

// describe sets the fields for limits. The values are kept in an array of the caller's.
func (m *middleware) describe(header http.Header, statuses zlimit.Statuses, values *[2]string) {
	if len(statuses) == 0 {
		return
	}
	statuses = fields.InOrder(statuses)
	values[0], values[1] = m.format.Values(statuses)
	header[fieldPolicy], header[fieldState] = values[0:1:1], values[1:2:2]
	if m.legacy {
		setLegacy(header, statuses)
	}
}

// setLegacy sets the fields from before the draft, for the limit with the smallest part left.
func setLegacy(header http.Header, statuses zlimit.Statuses) {
	least := statuses[0]
	for _, s := range statuses[1:] {
		if float64(s.Available)/float64(s.Now().Capacity) < float64(least.Available)/float64(least.Now().Capacity) {
			least = s
		}
	}
	header.Set("X-RateLimit-Limit", strconv.FormatInt(least.Now().Capacity, 10))
	header.Set("X-RateLimit-Remaining", strconv.FormatInt(max(0, least.Available), 10))
	header.Set("X-RateLimit-Reset", strconv.FormatInt(fields.Wait(least, least.Exceeded), 10))
}
