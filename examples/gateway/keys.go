package main

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path"
	"strings"
	"time"

	"github.com/zlimit/zlimit-go/httplimit"
)

// A virtualKey lets a team ask models through the gateway. Who reads the file of keys cannot use them: it has hashes.
type virtualKey struct {
	Hash    string    `json:"hash"` // SHA-256, in hexadecimal digits
	Team    string    `json:"team"`
	Models  []string  `json:"models,omitempty"`  // patterns of names, in which a star stands for any text; none for all models
	Expires time.Time `json:"expires,omitempty"` // the zero time for never
}

// allows reports whether the key may ask a model.
func (k *virtualKey) allows(model string) bool {
	for _, pattern := range k.Models {
		if ok, _ := path.Match(pattern, model); ok {
			return true
		}
	}
	return len(k.Models) == 0
}

// A keyring finds keys by their hashes.
type keyring struct {
	keys map[string]virtualKey
	now  func() time.Time
}

func newKeyring(keys []virtualKey) (*keyring, error) {
	ring := &keyring{map[string]virtualKey{}, time.Now}
	for i, k := range keys {
		if raw, err := hex.DecodeString(k.Hash); err != nil || len(raw) != sha256.Size || k.Hash != strings.ToLower(k.Hash) {
			return nil, fmt.Errorf("key %d: hash %q must be 64 hexadecimal digits in lower case", i+1, k.Hash)
		}
		if k.Team == "" {
			return nil, fmt.Errorf("key %d: team must not be empty", i+1)
		}
		for _, pattern := range k.Models {
			if _, err := path.Match(pattern, ""); err != nil || strings.ContainsAny(pattern, `[]?\`) {
				return nil, fmt.Errorf("key %d: model %q must be a name, in which * stands for any text", i+1, pattern)
			}
		}
		ring.keys[k.Hash] = k
	}
	return ring, nil
}

// readKeyring reads a file of keys, a list in JSON.
func readKeyring(name string) (*keyring, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var keys []virtualKey
	if err := json.Unmarshal(text, &keys); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return newKeyring(keys)
}

// newKey makes a key, and its entry in the file of keys.
func newKey(team string) (secret string, entry []byte, err error) {
	secret = "zk-" + rand.Text()
	entry, err = json.Marshal([]virtualKey{{Hash: hashOf(secret), Team: team}})
	return secret, entry, err
}

func hashOf(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// secretOf returns the key of a request, in the header in which the SDK of a provider sends it.
func secretOf(r *http.Request) string {
	for _, name := range []string{"X-Api-Key", "X-Goog-Api-Key"} {
		if key := r.Header.Get(name); key != "" {
			return key
		}
	}
	if key, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		return key
	}
	return r.URL.Query().Get("key")
}

// find returns the key of a request.
func (ring *keyring) find(r *http.Request) (virtualKey, error) {
	k, ok := ring.keys[hashOf(secretOf(r))]
	switch {
	case !ok:
		return k, &httplimit.KeyError{Source: "request", Reason: "is missing or not known", Challenge: "Bearer"}
	case !k.Expires.IsZero() && !ring.now().Before(k.Expires):
		return k, &httplimit.KeyError{Source: "request", Reason: "has expired", Challenge: "Bearer"}
	}
	return k, nil
}
