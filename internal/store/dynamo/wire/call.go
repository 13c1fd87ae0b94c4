package wire

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/zlimit/zlimit-go/internal/tool/wait"
)

// An Output takes the body of a successful reply.
type Output interface {
	// Scan reads the body. It returns false where the SDK's deserializer is to read it, and for a reply that DynamoDB would
	// not give.
	Scan(body string) bool
	// Deserialize reads the body by the SDK's deserializer.
	smithy.Deserializable
}

// A Reply has the facts about a successful call besides its output.
type Reply struct {
	Received time.Time
	Date     time.Time // by the server's clock; zero if the reply has none
}

// Do makes one call with a copy of a body: the transport may read its copy after the reply came. Its errors are those
// of the SDK for the same outcome. A reply with a wrong checksum is an error as well, unless the client turns the check
// off. So is a reply of another server, see [Careful]. It returns ErrUnused, and nothing was sent, where the SDK is to
// make the call.
func (p *Path) Do(ctx context.Context, op Operation, body []byte, retryer aws.Retryer, out Output) (Reply, error) {
	if !p.Open() {
		return Reply{}, ErrUnused
	}
	trace, ok := p.traceID()
	if !ok {
		return Reply{}, ErrUnused
	}
	c := call{
		path: p, op: op, body: bytes.Clone(body), sum: sha256.Sum256(body), out: out,
		invocation: newInvocation(), trace: trace, retryer: retryer, max: retryer.MaxAttempts(), skew: p.correction(),
	}
	reply, err := c.try(ctx)
	if errors.Is(err, ErrUnused) {
		return Reply{}, ErrUnused
	}
	if err != nil {
		err = &smithy.OperationError{ServiceID: dynamodb.ServiceID, OperationName: op.String(), Err: err}
	}
	return reply, err
}

type call struct {
	path              *Path
	op                Operation
	body              []byte            // never changed
	sum               [sha256.Size]byte // of the body
	out               Output
	invocation, trace string
	retryer           aws.Retryer
	max               int
	skew              time.Duration // by which the next attempt corrects the time of its signature
}

// try makes attempts until one succeeds, or fails permanently.
func (c *call) try(ctx context.Context) (Reply, error) {
	released := func(error) error { return nil } // takes the outcome of an attempt that repeats another
	for attempt := 1; ; attempt++ {
		if err := ctx.Err(); err != nil {
			return Reply{}, err
		}
		reply, seen, err := c.attempt(ctx, attempt)
		_ = c.retryer.GetInitialToken()(err) // neither can fail
		_ = released(err)
		used := c.skew
		c.skew = seen.skew
		if err == nil || errors.Is(err, ErrUnused) {
			c.path.learnSkew(seen)
			return reply, err
		}
		if seen.known && !c.path.options.DisableClockSkewCorrection && skewed(err, used, seen.skew) {
			err = &skewError{err}
		}
		if !c.retryer.IsErrorRetryable(err) {
			c.path.learnSkew(seen)
			return Reply{}, err
		}
		if attempt >= c.max {
			c.path.learnSkew(seen)
			return Reply{}, &retry.MaxAttemptsError{Attempt: attempt, Err: err}
		}
		next, spent := c.retryer.GetRetryToken(ctx, err)
		if spent != nil {
			c.path.learnSkew(seen)
			return Reply{}, errors.Join(err, spent)
		}
		released = next
		delay, err := c.retryer.RetryDelay(attempt, err)
		if err == nil {
			err = wait.For(ctx, delay)
		}
		if err != nil {
			c.path.learnSkew(seen)
			return Reply{}, &aws.RequestCanceledError{Err: err}
		}
	}
}

// attempt sends the request once. From every reply it returns the server's clock.
func (c *call) attempt(ctx context.Context, number int) (reply Reply, seen sighting, err error) {
	credentials, err := c.path.options.Credentials.Retrieve(ctx)
	if err != nil {
		return reply, seen, fmt.Errorf("get identity: %w", fmt.Errorf("get credentials: %w", err))
	}
	model, err := c.path.prototype(ctx, c.op, c.retryer, &credentials)
	if err != nil {
		return reply, seen, err
	}
	x := &exchange{invocation: c.invocation, trace: c.trace, attempt: attemptHeader(ctx, number, c.max, c.skew)}
	x.body.Reset(c.body)
	x.prepare(ctx, model, io.NopCloser(&x.body), int64(len(c.body)))
	if c.path.resends {
		x.request.GetBody = c.bodyAgain
	}
	if err := x.sign(ctx, c.path, &credentials, &c.sum, time.Now().Add(c.skew)); err != nil {
		return reply, seen, fmt.Errorf("sign request: %w", err)
	}
	sent := time.Now()
	response, err := c.path.send(x.request)
	if err != nil {
		err = &smithyhttp.RequestSendError{Err: err}
		if ctx.Err() != nil {
			err = &smithy.CanceledError{Err: ctx.Err()}
		}
		return reply, seen, responseError(&http.Response{Header: http.Header{}, Body: http.NoBody}, err)
	}
	if c.path.isFollowed(response) {
		_ = response.Body.Close() // of no consequence: the SDK makes the call
		return reply, seen, ErrUnused
	}
	reply.Received = time.Now()
	reply.Date = c.path.dateOf(response.Header)
	seen = sightingOf(sent, reply, response.Header)
	if err := c.read(ctx, response); err != nil {
		return Reply{}, seen, responseError(response, err)
	}
	return reply, seen, nil
}

// bodyAgain returns the body for a connection in the place of one that took nothing of the request.
func (c *call) bodyAgain() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(c.body)), nil }

// read reads the body of a reply into the output.
func (c *call) read(ctx context.Context, response *http.Response) error {
	buffer := NewBuffer()
	defer buffer.Free()
	err := buffer.readFrom(response.Body, response.ContentLength)
	_ = response.Body.Close() // of no consequence once it is read
	if err == nil && !c.path.options.DisableValidateResponseChecksum {
		err = check(response.Header, buffer.Bytes)
	}
	text := string(buffer.Bytes)
	if err == nil && response.StatusCode == http.StatusOK && c.out.Scan(text) {
		return nil
	}
	if err == nil {
		err = doubt(c.op.String(), response, buffer.Bytes)
	}
	again := *response
	again.Body = io.NopCloser(&broken{*strings.NewReader(text), err})
	return c.path.options.Protocol.DeserializeResponse(ctx, specs[c.op].schema, dynamodb.TypeRegistry, &smithyhttp.Response{Response: &again}, c.out)
}

// A broken reader ends with an error, as the body did that it has the text of, or in order where the error is nil.
type broken struct {
	strings.Reader
	err error
}

// Read implements [io.Reader].
func (b *broken) Read(to []byte) (int, error) {
	n, err := b.Reader.Read(to)
	if errors.Is(err, io.EOF) && b.err != nil {
		err = b.err
	}
	return n, err
}

// WriteTo implements [io.WriterTo].
func (b *broken) WriteTo(to io.Writer) (int64, error) {
	n, err := b.Reader.WriteTo(to)
	if err == nil {
		err = b.err
	}
	return n, err
}

func (b *Buffer) readFrom(body io.Reader, length int64) error {
	if length > int64(cap(b.Bytes)) && length <= 16<<20 { // the longest reply of DynamoDB
		b.Bytes = make([]byte, 0, length+1)
	}
	for {
		if len(b.Bytes) == cap(b.Bytes) {
			b.Bytes = append(b.Bytes, 0)[:len(b.Bytes)]
		}
		n, err := body.Read(b.Bytes[len(b.Bytes):cap(b.Bytes)])
		b.Bytes = b.Bytes[:len(b.Bytes)+n]
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// responseError returns an error with the reply that it came with, as the SDK does.
func responseError(response *http.Response, err error) error {
	id := response.Header.Get("X-Amzn-Requestid")
	if id == "" {
		id = response.Header.Get("X-Amz-RequestId")
	}
	return &awshttp.ResponseError{
		ResponseError: &smithyhttp.ResponseError{Response: &smithyhttp.Response{Response: response}, Err: err},
		RequestID:     id,
	}
}

// An exchange is one request, with all that it points to.
type exchange struct {
	request *http.Request
	url     url.URL
	body    bytes.Reader // a type that net/http can send with the headers in one piece
	values  [6][1]string // of headers
	model   *prototype

	attempt, invocation, trace string
}

// prepare makes the request like its prototype.
func (x *exchange) prepare(ctx context.Context, model *prototype, body io.ReadCloser, length int64) {
	x.model = model
	x.request = model.request.WithContext(ctx)
	x.url = *model.request.URL // which the SDK's signer writes
	x.request.URL = &x.url
	x.request.Body, x.request.ContentLength = body, length
	x.request.Header = make(http.Header, len(model.headers)+len(ofOneRequest))
	for i := range model.headers {
		x.request.Header[model.headers[i].name] = model.headers[i].value
	}
	x.set(0, headerInvocation, x.invocation)
	x.set(1, headerAttempt, x.attempt)
	if x.trace != "" {
		x.set(2, headerTrace, x.trace)
	}
}

// set sets a header to the value with an index.
func (x *exchange) set(i int, name, value string) {
	x.values[i][0] = value
	x.request.Header[name] = x.values[i][:]
}

// newInvocation returns the id of a call in logs, a random UUID.
func newInvocation() string {
	var random [16]byte
	binary.NativeEndian.PutUint64(random[:8], rand.Uint64()) //nolint:gosec // it protects nothing
	binary.NativeEndian.PutUint64(random[8:], rand.Uint64()) //nolint:gosec // as above
	random[6] = random[6]&0x0f | 0x40
	random[8] = random[8]&0x3f | 0x80
	var text [36]byte
	hex.Encode(text[0:8], random[0:4])
	hex.Encode(text[9:13], random[4:6])
	hex.Encode(text[14:18], random[6:8])
	hex.Encode(text[19:23], random[8:10])
	hex.Encode(text[24:36], random[10:16])
	text[8], text[13], text[18], text[23] = '-', '-', '-', '-'
	return string(text[:])
}

func attemptHeader(ctx context.Context, number, most int, skew time.Duration) string {
	text := "attempt=1; max=3"
	if number != 1 || most != 3 {
		text = "attempt=" + strconv.Itoa(number)
		if most != 0 {
			text += "; max=" + strconv.Itoa(most)
		}
	}
	if deadline, ok := ctx.Deadline(); ok && skew > 0 {
		text += "; ttl=" + deadline.Add(skew).Format(timeFormat)
	}
	return text
}
