package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"slices"

	"github.com/zlimit/zlimit-go/zlimit"
)

// A gateway asks a model on behalf of tenants, as far as their limits allow.
type gateway struct {
	limiter *zlimit.RateLimiter
	model   model
	logger  *slog.Logger
}

// ServeHTTP answers POST /v1/chat, GET /stats and GET /ready.
func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.Method + " " + r.URL.Path {
	case "POST /v1/chat":
		g.chat(w, r)
	case "GET /stats":
		g.reply(w, http.StatusOK, g.limiter.Stats())
	case "GET /ready":
		if err := g.limiter.Ping(r.Context()); err != nil {
			g.refuse(w, err)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	default:
		http.NotFound(w, r)
	}
}

func (g *gateway) chat(w http.ResponseWriter, r *http.Request) {
	var q question
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&q); err != nil || q.MaxTokens < 0 {
		g.reply(w, http.StatusBadRequest, problem{"bad_request"})
		return
	}
	if !slices.Contains(models, q.Model) {
		g.reply(w, http.StatusNotFound, problem{"unknown_model"})
		return
	}
	a, err := g.ask(r.Context(), r.Header.Get("X-Tenant"), q)
	if err != nil {
		g.refuse(w, err)
		return
	}
	g.reply(w, http.StatusOK, a)
}

// ask asks the model within the limits of a tenant and of its organisation.
func (g *gateway) ask(ctx context.Context, tenant string, q question) (answer, error) {
	estimate := q.estimate()
	request := zlimit.Request{
		Entity: tenant, Resource: q.Model, Consume: zlimit.Amounts{requests: 1, tokens: estimate},
	}
	var a answer
	answered := false
	err := g.limiter.Do(ctx, request, func(ctx context.Context, lease *zlimit.Lease) (err error) {
		if lease.Degraded() {
			g.logger.Warn("admitted uncounted", "tenant", tenant)
		}
		if a, err = g.model(ctx, q); err != nil {
			return err // and what was taken is given back
		}
		answered = true
		return lease.Adjust(zlimit.Amounts{tokens: a.Tokens - estimate})
	})
	if answered && err != nil { // the settlement failed, which is no reason to keep the answer back
		g.logger.Error("settle", "tenant", tenant, "error", err)
		err = nil
	}
	return a, err
}

// A problem is the body of an answer that says what is wrong.
type problem struct {
	Error string `json:"error"`
}

// refuse answers a request that came to nothing.
func (g *gateway) refuse(w http.ResponseWriter, err error) {
	var exceeded *zlimit.ExceededError
	var invalid *zlimit.ValidationError
	var unavailable *zlimit.UnavailableError
	switch {
	case errors.As(err, &exceeded) && exceeded.Possible():
		w.Header().Set("Retry-After", exceeded.RetryAfterHeader())
		g.reply(w, http.StatusTooManyRequests, exceeded)
	case errors.As(err, &exceeded):
		g.reply(w, http.StatusRequestEntityTooLarge, exceeded)
	case errors.As(err, &invalid):
		g.reply(w, http.StatusBadRequest, problem{"invalid_" + invalid.Field})
	case errors.Is(err, zlimit.ErrNoLimits):
		g.reply(w, http.StatusForbidden, problem{"unknown_tenant"})
	case errors.As(err, &unavailable), errors.Is(err, zlimit.ErrContended):
		g.reply(w, http.StatusServiceUnavailable, problem{"try_again_later"})
	case errors.Is(err, errBroken):
		g.reply(w, http.StatusBadGateway, problem{"model_failed"})
	default:
		g.logger.Error("chat", "error", err)
		g.reply(w, http.StatusInternalServerError, problem{"internal_error"})
	}
}

func (g *gateway) reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(body); err != nil {
		g.logger.Error("reply", "error", err)
	}
}
