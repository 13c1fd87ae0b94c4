package page

import (
	"cmp"
	"context"
	"encoding/csv"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/zlimit/ledger"
)

func (p *page) usageCSV(w http.ResponseWriter, r *http.Request, u User) {
	ctx, cancel := context.WithTimeout(r.Context(), readTimeout)
	defer cancel()
	var v view
	q, _, _, err := p.usageQuery(ctx, r, &v)
	if err == nil && q.Resource == "" {
		err = &statusError{http.StatusNotFound, "Nothing is limited yet"}
	}
	var of *book
	if err == nil {
		of, _, err = p.bookOf(ctx, q)
	}
	if err != nil {
		p.fail(w, r, u, err)
		return
	}
	w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	w.Header().Set("Content-Disposition", `attachment; filename="usage-`+q.From.Format("2006-01")+`.csv"`)
	out := csv.NewWriter(w)
	_ = out.Write([]string{"day", "zone", "resource", "limit", "entity", "amount"})
	resource := cmp.Or(oneResource(q.Resource), "(all)")
	for day := range q.Days() {
		for _, g := range append(slices.Clone(of.Groups), ledger.Group{Entity: "(total)", Days: of.Total}) {
			if n := g.Days[of.Before+day]; n != 0 {
				text := strconv.FormatFloat(n, 'f', -1, 64)
				if isMoney(q.Limit) {
					text = strconv.FormatFloat(n/nanoDollars, 'f', 6, 64)
				}
				_ = out.Write([]string{q.From.AddDate(0, 0, day).Format(time.DateOnly), q.Zone.String(), disarmed(resource), disarmed(q.Limit), disarmed(g.Entity), text})
			}
		}
	}
	out.Flush()
}

// disarmed puts an apostrophe before what a spreadsheet would take for a formula.
func disarmed(text string) string {
	if text != "" && strings.ContainsRune("=+-@\t\r", rune(text[0])) {
		return "'" + text
	}
	return text
}
