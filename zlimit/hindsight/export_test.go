package hindsight

import (
	"context"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
)

// AnswerOf answers a question from refusals of the entity, whoever has reported them.
func AnswerOf(ctx context.Context, l *zlimit.RateLimiter, q Question, refused ...Refused) (Answer, error) {
	q.complete()
	return newPast(l, q.Resource).answer(ctx, &q, refused)
}

// Was says what a limit was in a minute, and is now.
func Was(ctx context.Context, l *zlimit.RateLimiter, w *Words, at zlimit.Level, limit string, minute, now time.Time) (string, error) {
	h, err := newPast(l, at.Resource).history(ctx, at.Entity, at.Resource)
	if err != nil {
		return "", err
	}
	present, _ := h.limit(limit, now)
	return w.sentence(h.stretches(limit, minute, minute.Add(time.Minute)), present), nil
}
