package zlimit

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/internal/bucket"
	"github.com/zlimit/zlimit-go/internal/protocol"
	"github.com/zlimit/zlimit-go/internal/tool/wire"
)

// The bounds of [Lease.Token].
const (
	// MaxTokenSize is the greatest length of a token in bytes.
	MaxTokenSize = 4096
	// MinTokenTime and MaxTokenTime bound the time in which a token can be settled.
	MinTokenTime = time.Second
	MaxTokenTime = 7 * day
)

// tokenPrefix begins every token, and has the version of its form.
const tokenPrefix = "zl1."

// A leaseToken is the content of a token.
type leaseToken struct {
	id        [16]byte
	namespace string // its ID
	until     int64  // when the token expires, epoch milliseconds
	amounts   []bucket.Amount
	pending   []bucket.Amount
	receipt   *protocol.Receipt // nil for a lease of an outage, of which nothing is corrected
}

// Token returns the lease as data, and closes it in this process: afterwards every method that would change something returns
// [ErrLeaseClosed]. Any process settles the token once, within the lifetime, by [RateLimiter.Settle]. If the token is never settled, its
// tokens stay taken, as after a dropped lease.
//
// A token consists of letters, digits, dots, dashes and underscores. It has at most [MaxTokenSize] bytes, and about 300 for two limits of
// one bucket. It contains the buckets, shards, amounts and periods of quotas that the lease was taken from, and the corrections recorded
// by [Lease.Adjust]. It is neither signed nor encrypted: anyone who can change a token can return tokens to any bucket of the namespace. So a
// service that hands tokens to its clients signs them, and checks the signature before it settles, by package zlimit/leasetoken.
//
// Token returns a [*ValidationError] for a lifetime outside of [MinTokenTime] to [MaxTokenTime], for a lease that holds slots, which end
// with their process, and for a lease whose token would be too long. The lease stays open then. Token does no I/O, and costs nothing.
func (le *Lease) Token(lifetime time.Duration) (string, error) {
	if lifetime < MinTokenTime || lifetime > MaxTokenTime {
		reason := fmt.Sprintf("must be from %v to %v", MinTokenTime, MaxTokenTime)
		return "", &ValidationError{Field: "lifetime", Value: lifetime.String(), Reason: reason}
	}
	le.mu.Lock()
	defer le.mu.Unlock()
	if le.limiter == nil || le.phase != leaseOpen {
		return "", ErrLeaseClosed
	}
	if holds := len(le.receipt.Holds()); holds > 0 {
		return "", &ValidationError{Field: "lease", Value: strconv.Itoa(holds) + " slots", Reason: "must not hold slots, which end with their process"}
	}
	t := leaseToken{
		id: le.id(), namespace: le.limiter.ns.id(), until: le.limiter.now().Add(lifetime).UnixMilli(),
		amounts: le.amounts, pending: le.pending(), receipt: &le.receipt,
	}
	if le.degraded {
		t.amounts, t.pending, t.receipt = nil, nil, nil
	}
	text := t.encode()
	if err := checkTokenSize(text); err != nil {
		return "", err
	}
	le.phase = leaseClosed
	if watcher := le.limiter.options.hooks.Leases; watcher != nil {
		watcher.Settled(le)
	}
	return text, nil
}

// checkTokenSize returns an error for a token that is too long.
func checkTokenSize(text string) error {
	if len(text) <= MaxTokenSize {
		return nil
	}
	reason := fmt.Sprintf("must be at most %d: the lease is of too many buckets and limits", MaxTokenSize)
	return &ValidationError{Field: "size of the token", Value: strconv.Itoa(len(text)), Reason: reason}
}

// encode returns the text of a token.
func (t *leaseToken) encode() string {
	w := wire.Writer{Bytes: append([]byte(nil), t.id[:]...)}
	w.Text(t.namespace)
	w.Int(t.until)
	w.Flag(t.receipt != nil)
	for _, amounts := range [2][]bucket.Amount{t.amounts, t.pending} {
		w.Int(int64(len(amounts)))
		for _, a := range amounts {
			w.Text(a.Limit)
			w.Int(a.Tokens)
		}
	}
	if t.receipt != nil {
		t.receipt.Write(&w)
	}
	sum := binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE(w.Bytes))
	return tokenPrefix + base64.RawURLEncoding.EncodeToString(append(sum, w.Bytes...))
}

// decodeToken returns the content of a token of this namespace.
func (l *RateLimiter) decodeToken(text string) (*leaseToken, error) {
	wrong := func(reason string) (*leaseToken, error) {
		return nil, &ValidationError{Field: "token", Value: text, Reason: reason}
	}
	body, ok := strings.CutPrefix(text, tokenPrefix)
	if !ok {
		return wrong("must begin with " + tokenPrefix)
	}
	if len(text) > MaxTokenSize {
		return wrong(fmt.Sprintf("must have at most %d bytes", MaxTokenSize))
	}
	data, err := base64.RawURLEncoding.Strict().DecodeString(body)
	const sumSize, notToken = 4, "is not a token of a lease, or was changed"
	var t leaseToken
	if err != nil || len(data) < sumSize+len(t.id) || binary.BigEndian.Uint32(data) != crc32.ChecksumIEEE(data[sumSize:]) {
		return wrong(notToken)
	}
	copy(t.id[:], data[sumSize:])
	r := wire.NewReader(data[sumSize+len(t.id):])
	t.namespace, t.until = r.Text(), r.Int()
	counted := r.Flag()
	for _, amounts := range [2]*[]bucket.Amount{&t.amounts, &t.pending} {
		for range r.Count() {
			*amounts = append(*amounts, bucket.Amount{Limit: r.Text(), Tokens: r.Int()})
		}
	}
	if !r.OK() {
		return wrong(notToken)
	}
	if t.namespace != l.ns.id() {
		return wrong("is of another namespace")
	}
	if counted {
		t.receipt, ok = l.engine.ReadReceipt(r, func(entity, resource string) error {
			return (&Request{Entity: entity, Resource: resource}).validateNames()
		})
		if !ok || t.receipt.IsEmpty() {
			return wrong(notToken)
		}
	}
	if !r.Done() {
		return wrong(notToken)
	}
	return &t, nil
}

// expired returns an [ErrTokenExpired] if the token cannot be settled any more.
func (t *leaseToken) expired(now time.Time) error {
	if t.until > now.UnixMilli() {
		return nil
	}
	return fmt.Errorf("%w at %s", ErrTokenExpired, time.UnixMilli(t.until).UTC().Format(time.RFC3339))
}

// name returns the name of the token in its record.
func (t *leaseToken) name() string { return hex.EncodeToString(t.id[:]) }
