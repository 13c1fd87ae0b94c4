package zlimit

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/protocol"
	"github.com/zlimit/zlimit-go/internal/store"
)

// A BudgetAlert reports that a budget has reached a threshold: a quota, a session quota or a prepaid limit.
type BudgetAlert struct {
	ID        string    `json:"id"` // of the budget, its period and the threshold: the same in each process
	Entity    string    `json:"entity"`
	Resource  string    `json:"resource"`
	Limit     string    `json:"limit"`
	Threshold int       `json:"threshold"` // percent
	Used      int64     `json:"used"`      // tokens, or billionths of a dollar for a limit in money
	Capacity  int64     `json:"capacity"`  // with grants
	Time      time.Time `json:"time"`
	Ends      time.Time `json:"ends,omitzero"` // of the period; the zero time for a prepaid limit
}

// budgetAlerts are the settings of [WithBudgetAlerts].
type budgetAlerts struct {
	notify     func(context.Context, BudgetAlert) error
	thresholds []int
}

// WithBudgetAlerts calls notify when a budget reaches one of the thresholds, in percent of its capacity with grants: once per period in the
// whole fleet. Budgets are quotas, session quotas and prepaid limits, of entities and of parents. The first process that sees it writes an
// item conditionally, notifies observers of an [EventAlert], and calls notify in a goroutine of its own, with a timeout of half a minute.
// An error of notify is logged, and the call is not retried: package httplimit has a webhook that retries. [UsageService.Alerts] lists the
// alerts.
//
// Every process of the fleet should have the option. A threshold costs one write unit per period, and one more for each other process that
// reaches it later. A settlement that charges more than was taken also costs a read unit for each bucket, if it is of a token, or of a
// lease whose request has an ID. No caller waits for that. A threshold that is crossed during an outage is reported after it.
func WithBudgetAlerts(notify func(context.Context, BudgetAlert) error, thresholds ...int) Option {
	return func(o *options) { o.alerts = &budgetAlerts{notify, thresholds} }
}

// validate returns the rule that the option breaks.
func (b *budgetAlerts) validate() error {
	switch {
	case b == nil:
		return nil
	case b.notify == nil:
		return &ValidationError{Field: "budget alerts notify", Value: "nil", Reason: "must not be nil"}
	case len(b.thresholds) == 0 || len(b.thresholds) > maxThresholds:
		return &ValidationError{Field: "budget alerts thresholds", Value: strconv.Itoa(len(b.thresholds)), Reason: "must be from 1 to 10 numbers"}
	}
	for i, t := range b.thresholds {
		if t < 1 || t > 100 || i > 0 && t <= b.thresholds[i-1] {
			return &ValidationError{Field: fmt.Sprintf("budget alerts thresholds[%d]", i), Value: strconv.Itoa(t), Reason: "must be from 1 to 100, and more than the one before"}
		}
	}
	return nil
}

const (
	maxThresholds = 10
	maxAlerts     = 10_000 // that a process remembers
	alertTimeout  = 10 * time.Second
	notifyTimeout = 30 * time.Second
	alertRetry    = time.Minute
	alertKept     = 35 * 24 * time.Hour // after the end of its period
	prepaidKept   = 400 * 24 * time.Hour
)

// An alertLog notices budgets that come to a threshold.
type alertLog struct {
	l *RateLimiter

	mu     sync.Mutex
	seen   map[layout.AlertKey]time.Time // from when to look again; the zero time for never
	closed bool
	work   sync.WaitGroup
}

// watchBudgets looks at where the limits of a lease stand.
func (l *RateLimiter) watchBudgets(ctx context.Context, lease *Lease) {
	if l.alerts == nil {
		return
	}
	var space [4]Status
	l.alerts.look(ctx, lease.AppendStatuses(space[:0]))
}

// watchSettled looks at where the limits of a receipt stand after a settlement that has charged more. Its writes may have left nothing in
// memory, so the buckets that were not seen since an epoch are read, in a goroutine of its own.
func (l *RateLimiter) watchSettled(ctx context.Context, receipt *protocol.Receipt, corrections []bucket.Amount, epoch int64) {
	if l.alerts == nil || !slices.ContainsFunc(corrections, func(a bucket.Amount) bool { return a.Tokens > 0 }) {
		return
	}
	background := context.WithoutCancel(ctx)
	l.alerts.goes(func() {
		ctx, cancel := context.WithTimeout(background, alertTimeout)
		defer cancel()
		levels, err := l.engine.StatusesSince(ctx, receipt, epoch)
		if err != nil {
			l.options.logger.Log(ctx, slog.LevelWarn, "zlimit: the budgets of a settlement could not be read, and are looked at with the next request",
				"entity", receipt.Entity(), "resource", receipt.Resource(), "error", publicError("read budgets", err))
			return
		}
		var statuses Statuses
		for i := range levels {
			statuses = appendStatuses(statuses, &levels[i])
		}
		l.alerts.look(background, statuses)
	})
}

// goes calls a function in a goroutine, unless the limiter is closed.
func (a *alertLog) goes(do func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.closed {
		a.work.Go(do)
	}
}

// look notes the budgets that have come to a threshold.
func (a *alertLog) look(ctx context.Context, statuses Statuses) {
	now := a.l.now()
	for i := range statuses {
		s := &statuses[i]
		if !s.isBudget() {
			continue
		}
		capacity := s.holds()
		used := float64(capacity - s.Available)
		for _, threshold := range a.l.options.alerts.thresholds {
			if capacity > 0 && used*100 >= float64(threshold)*float64(capacity) {
				a.cross(ctx, s, threshold, capacity, now)
			}
		}
	}
}

// cross notes that a budget has come to a threshold, unless this process knows.
func (a *alertLog) cross(ctx context.Context, s *Status, threshold int, capacity int64, now time.Time) {
	key := layout.AlertKey{Entity: s.Entity, Resource: s.Resource, Limit: s.Limit.Name, Threshold: threshold}
	alert := BudgetAlert{
		Entity: s.Entity, Resource: s.Resource, Limit: s.Limit.Name, Threshold: threshold, Used: capacity - s.Available, Capacity: capacity, Time: now.UTC(),
	}
	kept := now.Add(prepaidKept)
	if s.Limit.isPrepaid() {
		key.Since = int(s.Granted) // a top-up begins a budget of its own
	} else {
		began, ok := s.began()
		if !ok {
			return
		}
		key.Since = int(began.UnixMilli())
		alert.Ends, kept = s.ResetsAt, s.ResetsAt.Add(alertKept)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if again, known := a.seen[key]; a.closed || known && (again.IsZero() || now.Before(again)) {
		return
	}
	if len(a.seen) >= maxAlerts {
		clear(a.seen)
	}
	a.seen[key] = time.Time{}
	background := context.WithoutCancel(ctx)
	a.work.Go(func() { a.note(background, key, alert, kept) })
}

// note writes the item of an alert, and notifies if no other process has.
func (a *alertLog) note(background context.Context, key layout.AlertKey, alert BudgetAlert, kept time.Time) {
	ctx, cancel := context.WithTimeout(background, alertTimeout)
	defer cancel()
	first, err := a.save(ctx, key, &alert, kept)
	if err != nil {
		a.l.options.logger.Log(ctx, slog.LevelWarn, "zlimit: an alert of a budget could not be noted, and is tried again", "error", publicError("note an alert", err))
		a.mu.Lock()
		a.seen[key] = alert.Time.Add(alertRetry)
		a.mu.Unlock()
		return
	}
	if !first {
		return
	}
	a.l.emit(ctx, stopwatch{}, Event{
		Kind: EventAlert, Operation: "budget", Entity: alert.Entity, Resource: alert.Resource, Limit: alert.Limit, LimitEntity: alert.Entity,
		Amounts: []Amount{{alert.Limit, alert.Used}},
	})
	notifying, cancel := context.WithTimeout(background, notifyTimeout)
	defer cancel()
	if err := a.l.options.alerts.notify(notifying, alert); err != nil {
		a.l.options.logger.Log(ctx, slog.LevelError, "zlimit: an alert of a budget could not be sent", "alert", alert.ID, "error", err)
	}
}

// save reports whether this process is the first to write the item.
func (a *alertLog) save(ctx context.Context, key layout.AlertKey, alert *BudgetAlert, kept time.Time) (bool, error) {
	if key.NS = a.l.ns.id(); key.NS == "" {
		return false, errNotEntered
	}
	alert.ID = alertID(key)
	item := layout.Alert{Key: key, At: alert.Time.UnixMilli(), Used: alert.Used, ExpiresAt: kept.Unix()}
	absent, err := layout.Insert()
	if err != nil {
		return false, err
	}
	result, err := a.l.table.Write(ctx, store.Write{Kind: store.Put, Key: key.Key(), Item: a.l.unlisted(item.Encode()), Expr: absent})
	return result.Applied, err
}

// alertID names an alert.
func alertID(key layout.AlertKey) string {
	return fmt.Sprintf("%s/%s/%s/%d/%d", key.Entity, key.Resource, key.Limit, key.Since, key.Threshold)
}

// close waits for what is under way.
func (a *alertLog) close() {
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	a.work.Wait()
}

// Alerts returns the alerts of the budgets of an entity for a resource, see [WithBudgetAlerts], in no particular order. They are kept for
// 35 days after their period, alerts of prepaid limits for 400 days. Capacity and Ends are not kept. It makes one query, at half a read
// unit per 4 KB, about 20 alerts. It is safe for concurrent use.
func (s *UsageService) Alerts(ctx context.Context, entity, resource string) ([]BudgetAlert, error) {
	if err := validateEntity("entity", entity); err != nil {
		return nil, err
	}
	if err := s.l.check(validateResource(resource)); err != nil {
		return nil, err
	}
	alerts := []BudgetAlert{}
	for item, err := range s.l.table.Items(ctx, layout.QueryAlerts(s.l.ns.id(), entity, resource, 0)) {
		var alert layout.Alert
		if err == nil {
			alert, err = layout.DecodeAlert(item)
		}
		if err != nil {
			return nil, publicError("read alerts", err)
		}
		alerts = append(alerts, BudgetAlert{
			ID: alertID(alert.Key), Entity: entity, Resource: resource, Limit: alert.Key.Limit, Threshold: alert.Key.Threshold, Used: alert.Used,
			Time: time.UnixMilli(alert.At).UTC(),
		})
	}
	return alerts, nil
}
