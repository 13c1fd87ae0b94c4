package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/zlimit"
	"github.com/zlimit/zlimit-go/zlimit/blocking"
)

// A summarizer works through files, one after the other. It is code of a time before contexts, and waits when the limits
// of its tenant are exceeded.
type summarizer struct {
	limiter *blocking.RateLimiter
	model   model
	sleep   func(time.Duration)
}

// run writes a summary of each file.
func (s *summarizer) run(files []string, w io.Writer) error {
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		summary, err := s.summarize(question{Model: "small", Prompt: strings.TrimSpace(string(text)), MaxTokens: 1_000})
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if _, err := fmt.Fprintln(w, summary); err != nil {
			return err
		}
	}
	return nil
}

func (s *summarizer) summarize(q question) (string, error) {
	lease, err := s.acquire(zlimit.Request{
		Entity: "acme-batch", Resource: q.Model, Consume: zlimit.Amounts{requests: 1, tokens: q.estimate()},
	})
	if err != nil {
		return "", err
	}
	a, err := s.model(context.Background(), q)
	if err != nil {
		return "", errors.Join(err, lease.Rollback())
	}
	if err := lease.Adjust(zlimit.Amounts{tokens: a.Tokens - q.estimate()}); err != nil {
		return "", err
	}
	return a.Text, lease.Commit()
}

// acquire waits until a request is admitted.
func (s *summarizer) acquire(r zlimit.Request) (*blocking.Lease, error) {
	for {
		lease, err := s.limiter.Acquire(r)
		var exceeded *zlimit.ExceededError
		if !errors.As(err, &exceeded) || !exceeded.Possible() {
			return lease, err
		}
		s.sleep(exceeded.RetryAfter())
	}
}
