package buckets

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/zlimit"
)

// lookRejected reads who was rejected.
func (t *top) lookRejected(ctx context.Context, l *zlimit.RateLimiter) (TopLook, error) {
	now := t.app.Now().UTC()
	q := zlimit.RejectedQuery{From: now.Add(-t.within), To: now}
	if len(t.resources) > 0 {
		q.Resource = t.resources[0]
	}
	rejected, err := l.Usage.Rejected(ctx, q)
	if err != nil {
		return TopLook{}, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return TopLook{
		Time: now, Rows: []topRow{}, Rejected: &rejected, Coverage: map[string]zlimit.Coverage{}, Calls: t.calls, ReadUnits: t.units,
	}, nil
}

// limitRejected leaves as many rows as are shown.
func (t *top) limitRejected(r *zlimit.Rejections) {
	if len(r.Heaviest) > t.max {
		r.Heaviest = r.Heaviest[:t.max]
	}
}

// printRejected writes who was rejected, the heaviest first.
func (t *top) printRejected(p *show.Page, look *TopLook) {
	r := look.Rejected
	of := "all resources"
	if len(t.resources) > 0 {
		of = "resource " + t.resources[0]
	}
	p.Linef("%s  rejections of %s in %s; this look: %s, %s read units", look.Time.Format(time.DateTime), of, show.Brief(t.within),
		show.Counted(look.Calls, "call"), show.Decimal(look.ReadUnits))
	if r.Reports == 0 {
		p.Linef("nothing was reported yet: a process reports its rejections a minute after the first one, where it is set to,")
		p.Linef("by zlimit.WithRejectionReports in Go, and by dashboard: true in the file of zlimitd")
		return
	}
	rows := make([][]string, len(r.Heaviest))
	for i, row := range r.Heaviest {
		of := ""
		if row.LimitEntity != row.Entity {
			of = row.LimitEntity
		}
		count := show.Grouped(row.Count)
		if row.AtLeast != row.AtMost {
			count = fmt.Sprintf("%s to %s", show.Grouped(row.AtLeast), show.Grouped(row.AtMost))
		}
		share := float64(row.Count) / float64(max(r.Total, 1))
		rows[i] = []string{
			row.Entity, row.Resource, limitOf(&row), of, count, strconv.Itoa(int(share*100+0.5)) + " %", show.Bar(share, 10, "█", "░"),
		}
	}
	p.Table([]string{"entity", "resource", "limit", "of", "rejected>", "share>", ""}, rows)
	p.Linef("all: %s in %s", show.Counted(int(r.Total), "rejection"), show.Counted(r.Reports, "report"))
}

// limitOf names the limit, with its resource if that is a wider one, and says if the requests were larger than it.
func limitOf(r *zlimit.Rejection) string {
	text := r.Limit
	if r.LimitResource != r.Resource {
		text += " for " + r.LimitResource
	}
	if r.Impossible {
		text += ", too large for it"
	}
	return text
}
