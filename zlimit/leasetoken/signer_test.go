package leasetoken

import (
	"bytes"
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
)

var start = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

func key(id string, b byte) Key { return Key{ID: id, Secret: bytes.Repeat([]byte{b}, MinSecret)} }

func signer(t testing.TB, keys ...Key) *Signer {
	t.Helper()
	return check.Call(NewSigner(keys...)).Must(t, "NewSigner()")
}

func sign(t testing.TB, s *Signer, c *Claims) string {
	t.Helper()
	return check.Call(s.Sign(c)).Must(t, "Sign()")
}

func claims() *Claims {
	return &Claims{
		Namespace: "default", Caller: "gateway", Expires: start.Add(10 * time.Minute), Last: start.Add(24 * time.Hour),
		Leases: []Lease{
			{Token: "zl1.AAECAw", Entity: "alice", Resource: "gpt-4", Amounts: map[string]int64{"rpm": 1, "tpm": 500}},
			{Token: "of another form", Entity: "bob", Resource: "search", Amounts: map[string]int64{"rps": 9}},
		},
	}
}

func TestOpen(t *testing.T) {
	s := signer(t, key("k1", 1))
	text := sign(t, s, claims())
	got, err := s.Open(text, "default", "gateway", start)
	if diff := cmp.Diff(claims(), got); err != nil || diff != "" {
		t.Errorf("Open = %v, difference (-want +got):\n%s", err, diff)
	}
	if again := sign(t, s, got); again != text {
		t.Errorf("Sign of what was opened = %s, want the same token %s", again, text)
	}
}

// TestLeaseOfALimiter signs the token of a lease, which is not in base64 twice.
func TestLeaseOfALimiter(t *testing.T) {
	limiter := check.Call(zlimit.Open(t.Context(), "memory:")).Must(t, "zlimit.Open()")
	defer limiter.Close()
	lease := check.Call(limiter.Acquire(t.Context(), zlimit.Request{
		Entity: "alice", Resource: "gpt-4", Consume: zlimit.Amounts{"rpm": 1, "tpm": 500},
		Limits: []zlimit.Limit{zlimit.PerMinute("rpm", 60), zlimit.PerMinute("tpm", 10_000)},
	})).Must(t, "Acquire()")
	inner := check.Call(lease.Token(time.Hour)).Must(t, "Token()")
	s := signer(t, key("k1", 1))
	c := &Claims{
		Namespace: "default", Caller: "gateway", Expires: start.Add(time.Hour), Last: start.Add(time.Hour),
		Leases: []Lease{{Token: inner, Entity: "alice", Resource: "gpt-4", Amounts: lease.Consumed()}},
	}
	text := sign(t, s, c)
	if most := len(inner) + 200; len(text) > most {
		t.Errorf("a token of a lease of %d bytes has %d, want at most %d", len(inner), len(text), most)
	}
	opened := check.Call(s.Open(text, "default", "gateway", start)).Must(t, "Open()")
	check.Error(t, "Settle", limiter.Settle(t.Context(), opened.Leases[0].Token, zlimit.Amounts{"tpm": 100}))
}

// TestAltered changes each byte of a token, cuts it at each place, and adds to it.
func TestAltered(t *testing.T) {
	s := signer(t, key("k1", 1), key("k2", 2))
	text := sign(t, s, claims())
	refused := func(altered string) {
		t.Helper()
		if c, err := s.Open(altered, "default", "gateway", start); !errors.Is(err, ErrInvalid) {
			t.Errorf("Open(%q) = %v, %v, want ErrInvalid", altered, c, err)
		} else if len(altered) > 40 && strings.Contains(err.Error(), altered[20:40]) {
			t.Errorf("Open(%q) = %v, which has a part of the token", altered, err)
		}
	}
	for i := range len(text) {
		for _, b := range []byte{text[i] ^ 1, text[i] ^ 0x20, '.', 'A', '=', '\n', 0} {
			if b != text[i] {
				refused(text[:i] + string(rune(b)) + text[i+1:])
			}
		}
		refused(text[:i])
		refused(text[:i] + text[i+1:])
	}
	for _, more := range []string{"=", "A", ".", ".A", "\n", " "} {
		refused(text + more)
		refused(more + text)
	}
	parts := strings.Split(text, ".")
	refused(strings.Join([]string{parts[0], "k2", parts[2], parts[3]}, "."))               // by another key
	refused(strings.Join([]string{parts[0], parts[1], parts[2], ""}, "."))                 // without a signature
	refused(strings.Join([]string{parts[0], parts[1], "", parts[3]}, "."))                 // without a payload
	refused(strings.Join([]string{parts[0], "none", parts[2], parts[3]}, "."))             // without an algorithm
	refused(strings.Join([]string{parts[0], parts[1], parts[2], parts[2], parts[3]}, ".")) // of five parts
	refused(strings.Repeat("zl1.k1.A", MaxSize))

	other := sign(t, s, &Claims{Namespace: "default", Caller: "gateway", Expires: start.Add(time.Hour), Last: start.Add(time.Hour), Leases: []Lease{{Token: "t"}}})
	refused(strings.Join([]string{parts[0], parts[1], parts[2], strings.Split(other, ".")[3]}, ".")) // the signature of another one
}

// golden is the token of [claims] in the form of this version. Clients hold such tokens while a server is upgraded.
const golden = "zl1.k1.MIGGAgEBAgYBoiIP8cACBgGiJy0mAAwHZGVmYXVsdAwHZ2F0ZXdheTBfMC4BAf8EBAABAgMMBWFsaWNlDAVncHQtNDAVMAgMA3JwbQIBATAJDAN0cG0CAgH0" +
	"MC0BAQAED29mIGFub3RoZXIgZm9ybQwDYm9iDAZzZWFyY2gwCjAIDANycHMCAQk.Kwn2weuWMphOVOg_I-W9yl7cmakYoG_DdxFNEQyyD-I"

// TestForm holds that a token that was signed once opens in every later version. A version that signs another form keeps this token, and
// adds one of its own.
func TestForm(t *testing.T) {
	s := signer(t, key("k1", 1))
	got, err := s.Open(golden, "default", "gateway", start)
	if diff := cmp.Diff(claims(), got); err != nil || diff != "" {
		t.Errorf("Open of a token of this form = %v, difference (-want +got):\n%s", err, diff)
	}
	if text := sign(t, s, claims()); text != golden {
		t.Errorf("Sign = %s, want the form of this version, %s", text, golden)
	}
}

// TestOtherVersion refuses a form that is not known.
func TestOtherVersion(t *testing.T) {
	s := signer(t, key("k1", 1))
	payload := bytes.Replace(payloadOf(t, claims()), []byte{2, 1, version}, []byte{2, 1, version + 1}, 1)
	head := prefix + "k1." + base64.RawURLEncoding.EncodeToString(payload)
	if _, err := s.Open(head+"."+mac(s.keys.Load().secrets["k1"], head), "default", "gateway", start); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "another version") {
		t.Errorf("Open of another version = %v, want an ErrInvalid that says so", err)
	}
}

func payloadOf(t testing.TB, c *Claims) []byte {
	t.Helper()
	return check.Call(c.encode()).Must(t, "encode()")
}

// TestSignedOfOtherKinds covers payloads with a right signature that are none of this package.
func TestSignedOfOtherKinds(t *testing.T) {
	s := signer(t, key("k1", 1))
	good := payloadOf(t, claims())
	for i := range len(good) {
		head := prefix + "k1." + base64.RawURLEncoding.EncodeToString(good[:i])
		if c, err := s.Open(head+"."+mac(s.keys.Load().secrets["k1"], head), "default", "gateway", start); !errors.Is(err, ErrInvalid) {
			t.Errorf("Open of %d bytes of a payload = %v, %v, want ErrInvalid", i, c, err)
		}
	}
}

func TestWhoAndWhen(t *testing.T) {
	s := signer(t, key("k1", 1))
	text := sign(t, s, claims())
	for _, c := range []struct {
		name, namespace, caller string
		at                      time.Time
		want                    error
	}{
		{"the caller", "default", "gateway", start, nil},
		{"the caller in the last millisecond", "default", "gateway", start.Add(10*time.Minute - time.Millisecond), nil},
		{"the caller at the end", "default", "gateway", start.Add(10 * time.Minute), ErrExpired},
		{"the caller a year later", "default", "gateway", start.AddDate(1, 0, 0), ErrExpired},
		{"another caller", "default", "other", start, ErrForeign},
		{"no caller", "default", "", start, ErrForeign},
		{"another namespace", "prod", "gateway", start, ErrForeign},
		{"another caller, too late", "default", "other", start.AddDate(1, 0, 0), ErrForeign},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := s.Open(text, c.namespace, c.caller, c.at); !errors.Is(err, c.want) {
				t.Errorf("Open = %v, want %v", err, c.want)
			}
		})
	}
}

// TestRotation goes through the steps of a rotation, with a token of each step.
func TestRotation(t *testing.T) {
	before := signer(t, key("old", 1))
	prepared := signer(t, key("old", 1), key("new", 2))
	during := signer(t, key("new", 2), key("old", 1))
	after := signer(t, key("new", 2))
	impostor := signer(t, key("old", 3))
	for _, c := range []struct {
		name     string
		by, open *Signer
		want     error
	}{
		{"old token, prepared", before, prepared, nil},
		{"new token, prepared", during, prepared, nil},
		{"old token, rotated", before, during, nil},
		{"new token, rotated", during, during, nil},
		{"new token, old key retired", during, after, nil},
		{"old token, old key retired", before, after, ErrInvalid},
		{"new token at a replica that was not prepared", during, before, ErrInvalid},
		{"a key of the same name", impostor, during, ErrInvalid},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := c.open.Open(sign(t, c.by, claims()), "default", "gateway", start); !errors.Is(err, c.want) {
				t.Errorf("Open = %v, want %v", err, c.want)
			}
		})
	}
}

func TestKeys(t *testing.T) {
	short := key("k1", 1)
	short.Secret = short.Secret[1:]
	for _, c := range []struct {
		name string
		keys []Key
		want string
	}{
		{"none", nil, "leasetoken: no key: at least one key must be given"},
		{"a short secret", []Key{key("k0", 1), short}, "leasetoken: invalid keys[1] secret of 31 bytes: must have at least 32 bytes"},
		{"no name", []Key{key("", 1)}, `leasetoken: invalid keys[0] id "": must have 1 to 32 lower-case letters, digits and dashes`},
		{"a dot", []Key{key("a.b", 1)}, `leasetoken: invalid keys[0] id "a.b": must have 1 to 32 lower-case letters, digits and dashes`},
		{"twice", []Key{key("a", 1), key("a", 2)}, `leasetoken: invalid keys[1] id "a": is given twice`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := NewSigner(c.keys...); err == nil || err.Error() != c.want {
				t.Errorf("NewSigner = %v, want %s", err, c.want)
			}
		})
	}
}

// TestSetKeys takes the keys of a rotation while tokens are signed, and keeps what it has where they are wrong.
func TestSetKeys(t *testing.T) {
	s := signer(t, key("old", 1))
	old := sign(t, s, claims())
	if err := s.SetKeys(key("new", 2), key("a.b", 1)); err == nil {
		t.Error("SetKeys of a wrong ID = nil, want an error")
	}
	if again := sign(t, s, claims()); again != old {
		t.Errorf("Sign after wrong keys = %s, want %s", again, old)
	}
	check.Fatal(t, "SetKeys()", s.SetKeys(key("new", 2), key("old", 1)))
	for _, text := range []string{old, sign(t, s, claims())} {
		_, err := s.Open(text, "default", "gateway", start)
		check.Error(t, "Open()", err)
	}
	check.Fatal(t, "SetKeys()", s.SetKeys(key("new", 2)))
	if _, err := s.Open(old, "default", "gateway", start); !errors.Is(err, ErrInvalid) {
		t.Errorf("Open by a key that is gone = %v, want ErrInvalid", err)
	}
}

// TestRandomKey checks that the tokens of a random key open with its signer alone.
func TestRandomKey(t *testing.T) {
	s := signer(t, RandomKey())
	text := sign(t, s, claims())
	_, err := s.Open(text, "default", "gateway", start)
	check.Error(t, "Open()", err)
	if _, err := signer(t, RandomKey()).Open(text, "default", "gateway", start); !errors.Is(err, ErrInvalid) {
		t.Errorf("Open by another random key = %v, want ErrInvalid", err)
	}
}

func TestSignRefuses(t *testing.T) {
	s := signer(t, key("k1", 1))
	none, many, long, late := claims(), claims(), claims(), claims()
	none.Leases = nil
	many.Leases = make([]Lease, MaxLeases+1)
	long.Leases[0].Token = strings.Repeat("x", 3100)
	late.Expires = late.Last.Add(time.Millisecond)
	for name, c := range map[string]*Claims{"no leases": none, "17 leases": many, "too long": long, "beyond the leases": late} {
		if text, err := s.Sign(c); err == nil {
			t.Errorf("Sign, %s = %d bytes, want an error", name, len(text))
		}
	}
}

// TestNamesOfTokens signs names alone that a token can have: each token opens.
func TestNamesOfTokens(t *testing.T) {
	s := signer(t, key("k1", 1))
	for field, set := range map[string]func(*Claims, string){
		"namespace":          func(c *Claims, name string) { c.Namespace = name },
		"caller":             func(c *Claims, name string) { c.Caller = name },
		"leases[1] entity":   func(c *Claims, name string) { c.Leases[1].Entity = name },
		"leases[1] resource": func(c *Claims, name string) { c.Leases[1].Resource = name },
		"leases[1] limit":    func(c *Claims, name string) { c.Leases[1].Amounts[name] = 1 },
	} {
		c := claims()
		set(c, "ö\x00 #")
		if _, err := s.Open(sign(t, s, c), c.Namespace, c.Caller, start); err != nil {
			t.Errorf("Open with a strange %s = %v", field, err)
		}
		c = claims()
		set(c, "a\xff")
		want := "leasetoken: invalid " + field + ` "a\xff": must be valid UTF-8`
		if text, err := s.Sign(c); err == nil || err.Error() != want {
			t.Errorf("Sign = %q, %v, want %s", text, err, want)
		}
	}
}

// TestNothing returns errors for claims that are nil, and for a signer without keys.
func TestNothing(t *testing.T) {
	if text, err := signer(t, key("k1", 1)).Sign(nil); err == nil || err.Error() != "leasetoken: invalid claims: must not be nil" {
		t.Errorf("Sign(nil) = %q, %v", text, err)
	}
	for _, s := range []*Signer{nil, {}} {
		if text, err := s.Sign(claims()); !errors.Is(err, errNoKeys) {
			t.Errorf("Sign without keys = %q, %v", text, err)
		}
		if c, err := s.Open("zl1.k1.AAAA.AAAA", "", "", start); !errors.Is(err, errNoKeys) {
			t.Errorf("Open without keys = %v, %v", c, err)
		}
	}
}

// FuzzOpen holds that a token opens only if it is the one that a signer makes of what it says.
func FuzzOpen(f *testing.F) {
	s := signer(f, key("k1", 1), key("k2", 2))
	text := sign(f, s, claims())
	f.Add(text)
	f.Add(strings.Replace(text, "k1", "k2", 1))
	f.Add("zl1.k1..")
	f.Add("zl1...")
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := s.verify(text)
		if err != nil {
			if !errors.Is(err, ErrInvalid) {
				t.Fatalf("verify(%q) = %v, want ErrInvalid", text, err)
			}
			return
		}
		if again := sign(t, s, c); again != text {
			t.Errorf("verify(%q) = %+v, whose token is %q", text, c, again)
		}
	})
}

// FuzzPayload holds that a payload that decodes says all that it holds.
func FuzzPayload(f *testing.F) {
	f.Add(payloadOf(f, claims()))
	f.Add([]byte{0x30, 3, 2, 1, version})
	f.Fuzz(func(t *testing.T, data []byte) {
		c, ok := decode(data)
		if !ok {
			return
		}
		again, ok := decode(payloadOf(t, c))
		if diff := cmp.Diff(c, again); !ok || diff != "" {
			t.Errorf("decode(encode) = %v, difference:\n%s", ok, diff)
		}
	})
}

func BenchmarkOpen(b *testing.B) {
	s := signer(b, key("k1", 1))
	text := sign(b, s, claims())
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Open(text, "default", "gateway", start); err != nil {
			b.Fatalf("Open() = %v", err)
		}
	}
}
