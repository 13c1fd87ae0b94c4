package httplimit

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

// Rejected returns a handler that answers with the heaviest rejections that processes have reported, as JSON: see
// [zlimit.WithRejectionReports]. The parameters of the query are all optional: minutes, 10 by default and at most 1,440; resource;
// entity; and max, 20 by default. It names entities, so serve it to operators alone. A request costs what [zlimit.UsageService.Rejected]
// costs.
func Rejected(l *zlimit.RateLimiter) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		parameters := r.URL.Query()
		number := func(name string, standard, most int) (int, bool) {
			text := parameters.Get(name)
			if text == "" {
				return standard, true
			}
			n, err := strconv.Atoi(text)
			if err != nil || n < 1 || n > most {
				http.Error(w, name+" must be a number from 1 to "+strconv.Itoa(most), http.StatusBadRequest)
				return 0, false
			}
			return n, true
		}
		minutes, ok := number("minutes", 10, 24*60)
		if !ok {
			return
		}
		most, ok := number("max", 20, 1000)
		if !ok {
			return
		}
		now := time.Now() //nolint:forbidigo // of the machine, as reports are
		rejected, err := l.Usage.Rejected(r.Context(), zlimit.RejectedQuery{
			From: now.Add(-time.Duration(minutes) * time.Minute), To: now, Entity: parameters.Get("entity"), Resource: parameters.Get("resource"), Max: most,
		})
		switch {
		case errors.As(err, new(*zlimit.ValidationError)):
			http.Error(w, err.Error(), http.StatusBadRequest)
		case err != nil:
			http.Error(w, "rejections cannot be read now", http.StatusServiceUnavailable)
		default:
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Cache-Control", "no-store")
			_ = json.NewEncoder(w).Encode(rejected) // the caller is gone
		}
	})
}
