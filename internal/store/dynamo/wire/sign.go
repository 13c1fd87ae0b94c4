package wire

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// sign signs the request: by the path's own signer where it was seen to sign as the SDK's does, and else by that.
func (x *exchange) sign(ctx context.Context, p *Path, credentials *aws.Credentials, sum *[sha256.Size]byte, at time.Time) error {
	if x.model.signer != nil {
		x.model.signer.sign(x, credentials, sum, p.stampOf(at))
		return nil
	}
	scope := &x.model.scope
	err := p.options.HTTPSignerV4.SignHTTP(ctx, *credentials, x.request, hex.EncodeToString(sum[:]), scope.service, scope.region, at)
	if err != nil {
		return fmt.Errorf("sign http: %w", err)
	}
	return nil
}

// A stamp is a second, as X-Amz-Date has it.
type stamp struct {
	unix int64
	text string
}

// stampOf returns the second of a time.
func (p *Path) stampOf(at time.Time) string {
	unix := at.Unix()
	if last := p.stamp.Load(); last != nil && last.unix == unix {
		return last.text
	}
	next := &stamp{unix, at.UTC().Format(timeFormat)}
	p.stamp.Store(next)
	return next.text
}

// A signer makes the signatures of AWS (version 4) for requests like a prototype. The canonical forms differ in the
// values of a few headers alone. A signer is safe for concurrent use.
//
// https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
type signer struct {
	parts           []part
	end             string // of the canonical form, except the hash of the body
	names           string // of the signed headers
	scope           string // after the day
	region, service string
	key             atomic.Pointer[signingKey]
}

// A part of the canonical form is a text that all requests have alike, followed by the value of a header.
type part struct{ text, header string }

// headerLength is not in the map of headers; net/http writes it.
const headerLength = "Content-Length"

// unsigned are headers that are no part of a signature.
var unsigned = map[string]bool{
	headerAuthorization: true, headerTrace: true, headerLength: true, "User-Agent": true, "Expect": true, "Transfer-Encoding": true,
}

// newSigner returns a signer for requests like one that the client built.
func newSigner(request *http.Request, scope scope) *signer {
	host := request.Host
	if host == "" {
		host = request.URL.Host
	}
	type signed struct{ name, value string }
	headers := []signed{{"host", host}, {"content-length", ""}}
	for name, values := range request.Header {
		if !unsigned[name] {
			headers = append(headers, signed{strings.ToLower(name), strings.Join(values, ",")})
		}
	}
	slices.SortFunc(headers, func(a, b signed) int { return strings.Compare(a.name, b.name) })

	s := &signer{scope: "/" + scope.region + "/" + scope.service + "/aws4_request", region: scope.region, service: scope.service}
	names := make([]string, len(headers))
	text := request.Method + "\n" + max(request.URL.EscapedPath(), "/") + "\n" + request.URL.RawQuery + "\n"
	for i, h := range headers {
		names[i] = h.name
		text += h.name + ":"
		if own := http.CanonicalHeaderKey(h.name); own == headerLength || slices.Contains(ofOneRequest, own) {
			s.parts = append(s.parts, part{text, own})
			text = ""
		} else {
			text += h.value
		}
		text += "\n"
	}
	s.names = strings.Join(names, ";")
	s.end = text + "\n" + s.names + "\n"
	return s
}

// sign adds the headers of a signature to a request. stamp is the time of the signature.
func (s *signer) sign(x *exchange, credentials *aws.Credentials, sum *[sha256.Size]byte, stamp string) {
	x.set(3, headerDate, stamp)
	if credentials.SessionToken != "" {
		x.set(4, headerToken, credentials.SessionToken)
	}
	buffer := NewBuffer()
	defer buffer.Free()
	b := buffer.Bytes
	for i := range s.parts {
		b = append(b, s.parts[i].text...)
		if header := s.parts[i].header; header == headerLength {
			b = strconv.AppendInt(b, x.request.ContentLength, 10)
		} else if value := x.request.Header[header]; len(value) == 1 {
			b = append(b, value[0]...)
		}
	}
	b = hex.AppendEncode(append(b, s.end...), sum[:])
	canonical := sha256.Sum256(b)

	day := stamp[:len("20060102")]
	b = append(b[:0], "AWS4-HMAC-SHA256\n"...)
	b = append(append(b, stamp...), '\n')
	b = append(append(b, day...), s.scope...)
	b = hex.AppendEncode(append(b, '\n'), canonical[:])
	key := s.keyOf(credentials, day)
	mac := key.macs.Get().(hash.Hash)
	mac.Reset()
	mac.Write(b) // never fails
	signature := mac.Sum(canonical[:0])
	key.macs.Put(mac)

	b = append(b[:0], "AWS4-HMAC-SHA256 Credential="...)
	b = append(append(b, credentials.AccessKeyID...), '/')
	b = append(append(b, day...), s.scope...)
	b = append(append(b, ", SignedHeaders="...), s.names...)
	b = hex.AppendEncode(append(b, ", Signature="...), signature)
	x.set(5, headerAuthorization, string(b))
	buffer.Bytes = b
}

type signingKey struct {
	id, secret, day string
	macs            sync.Pool // of hash.Hash
}

// keyOf returns the key of a day, made once.
func (s *signer) keyOf(credentials *aws.Credentials, day string) *signingKey {
	known := s.key.Load()
	if known != nil && known.day == day && known.secret == credentials.SecretAccessKey && known.id == credentials.AccessKeyID {
		return known
	}
	secret := []byte("AWS4" + credentials.SecretAccessKey)
	for _, text := range []string{day, s.region, s.service, "aws4_request"} {
		mac := hmac.New(sha256.New, secret)
		mac.Write([]byte(text)) // never fails
		secret = mac.Sum(nil)
	}
	key := &signingKey{id: credentials.AccessKeyID, secret: credentials.SecretAccessKey, day: day}
	key.macs.New = func() any { return hmac.New(sha256.New, secret) }
	s.key.Store(key)
	return key
}
