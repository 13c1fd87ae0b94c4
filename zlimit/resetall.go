package zlimit

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/zlimit/zlimit-go/internal/expr"
	"github.com/zlimit/zlimit-go/internal/layout"
)

// A ResetReport is the progress of a reset of many buckets.
type ResetReport struct {
	OperationID string `json:"operation_id"`
	Buckets     int    `json:"buckets"`  // that are reset by now, whether by this call or an earlier one
	Repeated    int    `json:"repeated"` // buckets that an earlier call with the operation ID has reset
	Skipped     int    `json:"skipped"`  // that have none of the limits
}

// ResetAll resets all buckets of a resource, of an entity, or of both, one by one, each as [LimitService.Reset] does.
// The request names the resource, the entity, or both. With [ResetRequest.Limits] it resets these, and skips the
// buckets that lack one of them.
//
// An interrupted or failed call resumes when it is made again with the operation ID of its report, within three days.
// It resets no bucket a second time. On an error, the report has the progress up to then. It may miss buckets that are
// created while it runs: they start full. progress is called after each bucket, one call at a time, unless it is nil.
//
// Limits that no bucket has are a [*ValidationError]. Each bucket costs what Reset does: eight write units for one of a
// single item, and about four reads. On DynamoDB the buckets of a resource are found by a consistent scan of the whole
// table: twice the reads that [NamespaceService.PurgeCost] reports. The buckets of an entity are found in an index. It
// is safe for concurrent use.
func (s *LimitService) ResetAll(ctx context.Context, r ResetRequest, progress func(ResetReport)) (ResetReport, error) {
	if err := s.l.check(r.validateWalk()); err != nil {
		return ResetReport{}, err
	}
	if r.OperationID == "" {
		r.OperationID = s.l.eventIDs.next(s.l.now())
	}
	walk := resetWalk{s: s, asked: r, progress: progress, report: ResetReport{OperationID: r.OperationID}}
	err := s.walk(ctx, Level{Entity: r.Entity, Resource: r.Resource}, func(ctx context.Context, k layout.BucketKey, _ expr.Item) error {
		if k.Shard > 0 { // each bucket has one first item
			return nil
		}
		return walk.reset(ctx, k.Entity, k.Resource)
	})
	if err == nil && walk.report.Buckets == 0 && walk.lacking != nil {
		err = walk.lacking
	}
	return walk.report, publicError("reset buckets", err)
}

// validateWalk checks a request of many buckets.
func (r *ResetRequest) validateWalk() error {
	at := Level{Entity: r.Entity, Resource: r.Resource}
	if at == (Level{}) {
		return &ValidationError{Field: "level", Value: at.String(), Reason: "must name an entity, a resource or both"}
	}
	one := *r // the rules are the same as for one bucket
	if one.Entity == "" {
		one.Entity = "any"
	}
	if one.Resource == "" {
		one.Resource = "any"
	}
	return one.validate()
}

// A resetWalk is one call of [LimitService.ResetAll]. It is safe for concurrent use.
type resetWalk struct {
	s        *LimitService
	asked    ResetRequest
	progress func(ResetReport)

	mu      sync.Mutex
	report  ResetReport
	lacking error // of a bucket that lacks a limit
}

func (w *resetWalk) reset(ctx context.Context, entity, resource string) error {
	r := w.asked
	r.Entity, r.Resource, r.Limits = entity, resource, slices.Clone(w.asked.Limits)
	made, err := w.s.Reset(ctx, r)
	var invalid *ValidationError
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case errors.As(err, &invalid) && invalid.Field == "limits":
		w.lacking = err
		w.report.Skipped++
	case err != nil:
		return err
	default:
		w.report.Buckets++
		if made.Repeated {
			w.report.Repeated++
		}
	}
	if w.progress != nil {
		w.progress(w.report)
	}
	return nil
}
