// Package leasetoken signs the leases that a service hands to its clients, and verifies them when they come back. A token of
// [zlimit.Lease.Token] is not signed: a client that changes one can return tokens to any bucket. A signed token names the namespace and the
// caller that it was given to, and opens for these alone.
//
//	signer, err := leasetoken.NewSigner(leasetoken.Key{ID: "2026-11", Secret: secret})
//	// …
//	text, err := signer.Sign(&leasetoken.Claims{Caller: "gateway", Expires: end, Last: end, Leases: leases})
//	// … later, in any process that has the key:
//	claims, err := signer.Open(text, "", "gateway", time.Now())
//
// A signed token is text: zl1.KEY.PAYLOAD.MAC, where KEY is the ID of the signing key, and MAC the HMAC-SHA-256 of everything before it.
// PAYLOAD is readable for anyone and must be kept out of logs.
//
// [Held] has the leases that a process has handed out and that are not settled yet, for a page of status.
package leasetoken

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/zlimit/zlimit-go/zlimit"
)

// The bounds of tokens and of their keys.
const (
	MaxSize   = 4096 // bytes of a token
	MaxLeases = 16   // in one token
	MinSecret = 32   // bytes of the secret of a key
)

const (
	prefix      = "zl1."
	macTextSize = (sha256.Size*8 + 5) / 6
)

// Errors of [Signer.Open]. None of them has a part of the token in its text.
var (
	// ErrInvalid says that the token was not signed by one of the keys: it was changed, or its key was retired.
	ErrInvalid = errors.New("leasetoken: invalid lease")
	// ErrForeign says that the token was given to another caller, or for another namespace.
	ErrForeign = errors.New("leasetoken: lease of another caller")
	// ErrExpired says that the time in which the lease can be settled is over.
	ErrExpired = errors.New("leasetoken: lease expired")
)

// A Key signs tokens. Its ID is part of each token, and has 1 to 32 lower-case letters, digits and dashes.
type Key struct {
	ID     string
	Secret []byte // at least [MinSecret] bytes
}

// RandomKey returns a key with the ID random and a secret that no other process has. The tokens that it signs end with the process.
func RandomKey() Key { return Key{ID: "random", Secret: []byte(rand.Text() + rand.Text())} }

// A Lease is one lease of a token.
type Lease struct {
	Token    string           // of [zlimit.Lease.Token]
	Entity   string           // of the request
	Resource string           // of the request
	Amounts  map[string]int64 // taken, by limit, in tokens
}

// Nothing returns amounts of zero of all that the lease has taken, which return it.
func (l *Lease) Nothing() zlimit.Amounts {
	none := make(zlimit.Amounts, len(l.Amounts))
	for name := range l.Amounts {
		none[name] = 0
	}
	return none
}

// Claims are what a token says.
type Claims struct {
	Namespace string
	Caller    string // the name of the principal
	Expires   time.Time
	// Last is until when [Signer.Sign] may be asked for a later Expires: the leases themselves end then.
	Last   time.Time
	Leases []Lease
}

// A Signer signs tokens with one key, and opens the tokens of all its keys. It is safe for concurrent use.
type Signer struct{ keys atomic.Pointer[keys] }

// keys are immutable.
type keys struct {
	sign    string            // the ID of the key that signs
	secrets map[string][]byte // by ID
}

// NewSigner returns a signer. It signs with the first key. The others are keys that signed before: their tokens open until the keys are
// left out. A key that breaks a rule, an ID that is given twice, and no key at all are an error.
//
// To rotate, first add the new key as the second one in every process, since a process rejects tokens of keys that it does not know. Then
// put it first everywhere. Drop the old key when its last token has expired.
func NewSigner(of ...Key) (*Signer, error) {
	s := &Signer{}
	if err := s.SetKeys(of...); err != nil {
		return nil, err
	}
	return s, nil
}

// SetKeys replaces the keys, as [NewSigner] takes them. After an error, the signer keeps those that it has.
func (s *Signer) SetKeys(of ...Key) error {
	if len(of) == 0 {
		return errors.New("leasetoken: no key: at least one key must be given")
	}
	all := &keys{sign: of[0].ID, secrets: make(map[string][]byte, len(of))}
	for i, k := range of {
		field := "keys[" + strconv.Itoa(i) + "]"
		if !keyID.MatchString(k.ID) {
			return fmt.Errorf("leasetoken: invalid %s id %q: must have 1 to 32 lower-case letters, digits and dashes", field, k.ID)
		}
		if len(k.Secret) < MinSecret {
			return fmt.Errorf("leasetoken: invalid %s secret of %d bytes: must have at least %d bytes", field, len(k.Secret), MinSecret)
		}
		if _, twice := all.secrets[k.ID]; twice {
			return fmt.Errorf("leasetoken: invalid %s id %q: is given twice", field, k.ID)
		}
		all.secrets[k.ID] = slices.Clone(k.Secret)
	}
	s.keys.Store(all)
	return nil
}

var keyID = regexp.MustCompile(`^[a-z0-9-]{1,32}$`)

// errNoKeys is the error of a signer that was not made by [NewSigner].
var errNoKeys = errors.New("leasetoken: the signer has no key: make it by NewSigner")

// current returns the keys, and an error if there are none.
func (s *Signer) current() (*keys, error) {
	if s == nil {
		return nil, errNoKeys
	}
	of := s.keys.Load()
	if of == nil {
		return nil, errNoKeys
	}
	return of, nil
}

// Sign returns the token of claims. Names that are not valid UTF-8 are an error, and so are claims whose token would be longer than
// [MaxSize]: the leases are of too many buckets and limits. It does no I/O.
func (s *Signer) Sign(c *Claims) (string, error) {
	by, err := s.current()
	if err != nil {
		return "", err
	}
	if c == nil {
		return "", errors.New("leasetoken: invalid claims: must not be nil")
	}
	if n := len(c.Leases); n == 0 || n > MaxLeases {
		return "", fmt.Errorf("leasetoken: invalid number of leases %d: must be from 1 to %d", n, MaxLeases)
	}
	if c.Expires.After(c.Last) {
		return "", fmt.Errorf("leasetoken: invalid expiry %s: must not be after the end of the leases, %s", text(c.Expires), text(c.Last))
	}
	if field, name := c.notUTF8(); field != "" {
		return "", fmt.Errorf("leasetoken: invalid %s %q: must be valid UTF-8", field, name)
	}
	payload, err := c.encode()
	if err != nil {
		return "", fmt.Errorf("leasetoken: %w", err)
	}
	signed := prefix + by.sign + "." + base64.RawURLEncoding.EncodeToString(payload)
	if size := len(signed) + 1 + macTextSize; size > MaxSize {
		return "", fmt.Errorf("leasetoken: invalid size %d: must be at most %d; the leases are of too many buckets and limits", size, MaxSize)
	}
	return signed + "." + mac(by.secrets[by.sign], signed), nil
}

// notUTF8 returns the first name that is not valid UTF-8, with its field; "" if there is none. A payload with such a name could not be read.
func (c *Claims) notUTF8() (field, name string) {
	for _, of := range [][2]string{{"namespace", c.Namespace}, {"caller", c.Caller}} {
		if !utf8.ValidString(of[1]) {
			return of[0], of[1]
		}
	}
	for i := range c.Leases {
		at, l := "leases["+strconv.Itoa(i)+"] ", &c.Leases[i]
		for _, of := range [][2]string{{"entity", l.Entity}, {"resource", l.Resource}} {
			if !utf8.ValidString(of[1]) {
				return at + of[0], of[1]
			}
		}
		for limit := range l.Amounts {
			if !utf8.ValidString(limit) {
				return at + "limit", limit
			}
		}
	}
	return "", ""
}

// Open returns the claims of a token that was given to a caller in a namespace. A token that is not signed by a key of the signer is
// an [ErrInvalid], one of another caller or namespace an [ErrForeign], and one whose time is over an [ErrExpired], in this order. It
// does no I/O.
func (s *Signer) Open(token, namespace, caller string, now time.Time) (*Claims, error) {
	c, err := s.verify(token)
	switch {
	case err != nil:
		return nil, err
	case c.Namespace != namespace || c.Caller != caller:
		return nil, ErrForeign
	case !now.Before(c.Expires):
		return nil, fmt.Errorf("%w at %s", ErrExpired, text(c.Expires))
	}
	return c, nil
}

// verify returns the claims of a token with a signature.
func (s *Signer) verify(token string) (*Claims, error) {
	by, err := s.current()
	if err != nil {
		return nil, err
	}
	invalid := func(reason string) (*Claims, error) { return nil, fmt.Errorf("%w: %s", ErrInvalid, reason) }
	if len(token) > MaxSize {
		return invalid("must have at most " + strconv.Itoa(MaxSize) + " bytes")
	}
	end := strings.LastIndexByte(token, '.')
	rest, ok := strings.CutPrefix(token, prefix)
	if !ok || end < len(prefix) {
		return invalid("must be a token of this service, which begins with " + prefix)
	}
	id, _, ok := strings.Cut(rest, ".")
	if !ok || len(prefix)+len(id) >= end {
		return invalid("must be a token of this service, of four parts")
	}
	secret, ok := by.secrets[id]
	if !ok {
		return invalid("is signed by a key that this service does not have, or no longer")
	}
	// The texts of signatures are compared, since base64 is read with line breaks, too.
	if !hmac.Equal([]byte(token[end+1:]), []byte(mac(secret, token[:end]))) {
		return invalid("the signature is wrong: the token was changed")
	}
	data, err := base64.RawURLEncoding.Strict().DecodeString(token[len(prefix)+len(id)+1 : end])
	if err != nil {
		return invalid("the payload is not base64")
	}
	c, ok := decode(data)
	if !ok {
		return invalid("the payload is of another version")
	}
	return c, nil
}

// mac returns the signature of a text, in base64.
func mac(secret []byte, signed string) string {
	h := hmac.New(sha256.New, secret)
	h.Write([]byte(signed))
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}

func text(t time.Time) string { return t.UTC().Format(time.RFC3339) }
