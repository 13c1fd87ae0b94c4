package layout

import (
	"crypto/rand"
	"encoding/base64"
)

// NewNamespaceID returns 8 random bytes in unpadded URL-safe base64, never starting with a hyphen, which command lines
// would take for an option.
func NewNamespaceID() string {
	for {
		var b [8]byte
		_, _ = rand.Read(b[:]) // never fails
		if id := base64.RawURLEncoding.EncodeToString(b[:]); id[0] != '-' {
			return id
		}
	}
}
