package dashboard

import (
	"cmp"
	"context"
	"encoding/csv"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/zlimit/ledger"
)

// usageCSV is the month of the usage screen as a file.
func (p *page) usageCSV(ctx context.Context, given url.Values) (view, error) {
	q, err := p.usageQuery(ctx, given)
	if err == nil && q.Resource == "" {
		err = &statusError{http.StatusNotFound, "Nothing is limited yet"}
	}
	if err != nil {
		return view{}, err
	}
	of, err := p.bookOf(ctx, q)
	return view{File: func(w http.ResponseWriter) { writeUsage(w, q, of) }}, err
}

func writeUsage(w http.ResponseWriter, q *usageQuery, of *book) {
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
