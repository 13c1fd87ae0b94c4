package zlimit

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/grammar"
	"github.com/zlimit/zlimit-go/internal/layout"
	"github.com/zlimit/zlimit-go/internal/protocol"
	"github.com/zlimit/zlimit-go/internal/store"
)

// The times of a request with an ID.
const (
	requestTime     = day       // for which it is remembered at least
	requestSlack    = time.Hour // clocks may be wrong
	requestLifetime = 2 * day   // in which its lease can be settled
)

// A rememberedRequest is a call of Acquire for a request with an ID. Its record has the lease as data, so that a repeated call returns a lease
// of the same tokens.
type rememberedRequest struct {
	l      *RateLimiter
	id     string
	once   protocol.Once
	key    layout.RequestKey
	asked  string // what the request asks for
	writer string
	lease  leaseToken // as it is written; without a receipt
	found  *leaseToken
	own    bool // the record that was found is of this call
}

// remember returns the call for a request with an ID.
func (l *RateLimiter) remember(op string, r *Request, amounts []bucket.Amount) (*rememberedRequest, error) {
	if err := invalid("id", r.ID, grammar.CheckName(r.ID)); err != nil {
		return nil, err
	}
	if op != OpAcquire {
		return nil, &ValidationError{Field: "id", Value: r.ID, Reason: "must be empty for a request that waits"}
	}
	asked, err := r.digest(amounts)
	if err != nil {
		return nil, err
	}
	m := &rememberedRequest{
		l: l, id: r.ID, asked: asked, writer: randomID(12), key: layout.RequestKey{NS: l.ns.id(), Entity: r.Entity, Request: r.ID},
		lease: leaseToken{namespace: l.ns.id(), until: l.now().Add(requestLifetime).UnixMilli(), amounts: amounts},
	}
	_, _ = rand.Read(m.lease.id[:]) // which never fails
	m.once = protocol.Once{Already: m.read, Record: m.record}
	return m, nil
}

// randomID returns random hexadecimal digits for a number of bytes.
func randomID(bytes int) string {
	nonce := make([]byte, bytes)
	_, _ = rand.Read(nonce) // which never fails
	return hex.EncodeToString(nonce)
}

// digest returns what a request asks for, as a hash. The failure policy does not count: it decides about outages alone.
func (r *Request) digest(amounts []bucket.Amount) (string, error) {
	inOrderOfNames := slices.Clone(amounts)
	slices.SortFunc(inOrderOfNames, func(a, b bucket.Amount) int { return strings.Compare(a.Limit, b.Limit) })
	asked := struct {
		Resource, Priority string
		Amounts            []Amount
		Limits             []Limit
	}{Resource: r.Resource, Priority: r.Priority, Limits: inOrder(r.Limits)}
	for _, a := range inOrderOfNames {
		asked.Amounts = append(asked.Amounts, Amount{a.Limit, a.Tokens})
	}
	text, err := json.Marshal(asked)
	if err != nil {
		return "", fmt.Errorf("zlimit: acquire: %w", err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}

// read reads the record of the request.
func (m *rememberedRequest) read(ctx context.Context) (bool, error) {
	items, err := m.l.table.Read(ctx, m.key.Key())
	if err != nil || items[0] == nil {
		return false, err
	}
	record, err := layout.DecodeRequest(items[0])
	if err != nil {
		return false, err
	}
	if record.Asked != m.asked {
		return false, &ReusedIDError{Entity: m.key.Entity, ID: m.id}
	}
	if m.found, err = m.l.decodeToken(record.Token); err != nil {
		return false, &store.ItemError{Key: m.key.Key(), Attribute: "token", Err: errors.New("token: is not the token of a lease of this namespace")}
	}
	m.own = record.Writer == m.writer
	return true, nil
}

// record returns the write of the record for what is taken.
func (m *rememberedRequest) record(taken *protocol.Receipt) (store.Write, error) {
	lease := m.lease
	lease.receipt = taken
	token := lease.encode()
	if err := checkTokenSize(token); err != nil {
		return store.Write{}, err
	}
	absent, err := layout.Insert()
	record := layout.Request{
		Key: m.key, Asked: m.asked, Token: token, Writer: m.writer, ExpiresAt: m.l.now().Add(requestTime + requestSlack).Unix(),
	}
	return store.Write{Kind: store.Put, Key: m.key.Key(), Item: record.Encode(), Expr: absent}, err
}

// settleAs makes a lease of the request settle as its token does. If the record was there before, the lease has the tokens of the record.
func (m *rememberedRequest) settleAs(le *Lease) {
	le.mu.Lock()
	defer le.mu.Unlock()
	of := &m.lease
	if m.once.Repeated {
		of = m.found
		le.amounts = of.amounts
		if le.receipt = (protocol.Receipt{}); of.receipt != nil {
			le.receipt = *of.receipt
		}
	}
	le.more().shared = &sharedLease{id: of.id, until: of.until, repeated: m.once.Repeated && !m.own, read: m.once.Repeated}
}

// A sharedLease is the part of a lease that other processes have, too: the lease of a request with an ID. A record makes its settlement
// unique.
type sharedLease struct {
	id         [16]byte
	until      int64 // until when it can be settled, epoch milliseconds
	repeated   bool  // an earlier call has taken the tokens
	read       bool  // the receipt was read from data, and has no parameters of limits
	unrecorded bool  // settling has begun, and its record may be missing
}

// shared returns what other processes have of the lease, nil if it is of this process alone. The lease is locked.
func (le *Lease) shared() *sharedLease {
	if le.rest == nil {
		return nil
	}
	return le.rest.shared
}

// Repeated reports whether a request with the same [Request.ID] was admitted before, by this process or another one. Then this call
// consumed nothing: the lease has the tokens of the first call.
func (le *Lease) Repeated() bool {
	le.mu.Lock()
	defer le.mu.Unlock()
	shared := le.shared()
	return shared != nil && shared.repeated
}

// settleShared settles a lease that other processes have, too: once, by the record of its token.
func (le *Lease) settleShared(ctx context.Context, op string, shared *sharedLease) error {
	corrections := le.pending()
	if op == OpRollback {
		corrections = bucket.Negated(le.amounts)
	}
	t := &leaseToken{id: shared.id, namespace: le.limiter.ns.id(), until: shared.until, amounts: le.amounts, receipt: &le.receipt}
	epoch := le.limiter.engine.NextEpoch()
	err := t.expired(le.limiter.now())
	if err == nil {
		err = le.limiter.settleToken(ctx, t, slices.DeleteFunc(slices.Clone(corrections), func(a bucket.Amount) bool { return a.Tokens == 0 }), settleOptions{})
	}
	if err == nil {
		le.limiter.watchSettled(ctx, &le.receipt, corrections, epoch)
	}
	if err == nil || protocol.IsUnknown(err) || errors.Is(err, ErrSettled) || errors.Is(err, ErrTokenExpired) {
		le.mu.Lock()
		shared.unrecorded = false
		le.mu.Unlock()
	}
	return publicError(op, err)
}

// A ReusedIDError reports a [Request.ID] under which the entity has made another request. Nothing was consumed.
type ReusedIDError struct {
	Entity string `json:"entity"`
	ID     string `json:"id"`
}

// Error names the entity and the ID.
func (e *ReusedIDError) Error() string {
	return fmt.Sprintf("%v: entity %q, id %q", ErrReusedID, e.Entity, e.ID)
}

// Unwrap returns [ErrReusedID].
func (*ReusedIDError) Unwrap() error { return ErrReusedID }
