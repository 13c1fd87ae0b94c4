package wire

import (
	"context"
	"crypto/sha256"
	"errors"
	"hash/crc32"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/schemas"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
)

// specs has what differs between the operations: the schema for the SDK's reading of a reply, and the call by which the client builds a
// request on a table.
var specs = [operations]struct {
	name   string
	schema *smithy.OperationSchema
	build  func(context.Context, *dynamodb.Client, *string, func(*dynamodb.Options)) error
}{
	UpdateItem: {
		"UpdateItem", smithy.NewOperationSchema(schemas.UpdateItem, schemas.UpdateItemInput, schemas.UpdateItemOutput),
		func(ctx context.Context, c *dynamodb.Client, table *string, option func(*dynamodb.Options)) error {
			_, err := c.UpdateItem(ctx, &dynamodb.UpdateItemInput{TableName: table, Key: anyKey}, option)
			return err
		},
	},
	PutItem: {
		"PutItem", smithy.NewOperationSchema(schemas.PutItem, schemas.PutItemInput, schemas.PutItemOutput),
		func(ctx context.Context, c *dynamodb.Client, table *string, option func(*dynamodb.Options)) error {
			_, err := c.PutItem(ctx, &dynamodb.PutItemInput{TableName: table, Item: anyKey}, option)
			return err
		},
	},
	GetItem: {
		"GetItem", smithy.NewOperationSchema(schemas.GetItem, schemas.GetItemInput, schemas.GetItemOutput),
		func(ctx context.Context, c *dynamodb.Client, table *string, option func(*dynamodb.Options)) error {
			_, err := c.GetItem(ctx, &dynamodb.GetItemInput{TableName: table, Key: anyKey}, option)
			return err
		},
	},
	BatchGetItem: {
		"BatchGetItem", smithy.NewOperationSchema(schemas.BatchGetItem, schemas.BatchGetItemInput, schemas.BatchGetItemOutput),
		func(ctx context.Context, c *dynamodb.Client, table *string, option func(*dynamodb.Options)) error {
			request := types.KeysAndAttributes{Keys: []map[string]types.AttributeValue{anyKey}}
			_, err := c.BatchGetItem(ctx, &dynamodb.BatchGetItemInput{RequestItems: map[string]types.KeysAndAttributes{*table: request}}, option)
			return err
		},
	},
}

var anyKey = map[string]types.AttributeValue{"PK": &types.AttributeValueMemberS{Value: "-"}}

// A prototype is a request built by the client, and the model of the requests of a path. It is immutable.
type prototype struct {
	identity identity
	request  http.Request // without body, and without the headers of one request
	headers  []header     // that all requests have alike
	scope    scope
	signer   *signer // nil where the SDK's signer signs
}

// A header is one of the requests. Its only value is a slice as [http.Header] takes it.
type header struct {
	name  string
	value []string
}

// An identity has the parts of the credentials that a request shows besides its signature. The endpoint may depend on
// it.
type identity struct {
	account string
	session bool
}

func identityOf(c *aws.Credentials) identity { return identity{c.AccountID, c.SessionToken != ""} }

// A scope is the set of values that a signature holds for.
type scope struct{ region, service string }

// Headers that differ from request to request.
const (
	headerAuthorization = "Authorization"
	headerDate          = "X-Amz-Date"
	headerToken         = "X-Amz-Security-Token"
	headerInvocation    = "Amz-Sdk-Invocation-Id"
	headerAttempt       = "Amz-Sdk-Request"
	headerTrace         = "X-Amzn-Trace-Id"
)

const timeFormat = "20060102T150405Z" // of X-Amz-Date

var ofOneRequest = []string{headerAuthorization, headerDate, headerToken, headerInvocation, headerAttempt, headerTrace}

// prototype returns the prototype for an operation with credentials. Where the path has none yet, it learns one from
// the client. It returns ErrUnused where it can get none now.
func (p *Path) prototype(ctx context.Context, op Operation, retryer aws.Retryer, credentials *aws.Credentials) (*prototype, error) {
	known := p.prototypes[op].Load()
	if known != nil && known.identity == identityOf(credentials) {
		return known, nil
	}
	if !p.learning.TryLock() { // another call learns it
		return nil, ErrUnused
	}
	defer p.learning.Unlock()
	learned, err := p.learn(ctx, op, retryer)
	switch {
	case err != nil:
		if refusal, ok := errors.AsType[unfit](err); ok {
			p.refuse(string(refusal))
		}
		return nil, ErrUnused
	case learned.identity != identityOf(credentials): // they have changed since
		return nil, ErrUnused
	}
	if known == nil {
		p.logger.DebugContext(ctx, "zlimit: makes calls of DynamoDB without the AWS SDK", "table", p.table, "operation", op.String(), "signs", learned.signer != nil)
	}
	p.prototypes[op].Store(learned)
	return learned, nil
}

// unfit is an error that says why requests like the client's cannot be made.
type unfit string

func (u unfit) Error() string { return string(u) }

// errRotated says that the credentials changed between two requests.
var errRotated = unfit("requests that are signed with other credentials than the client's")

// learn makes a prototype of requests that the client builds.
func (p *Path) learn(ctx context.Context, op Operation, retryer aws.Retryer) (model *prototype, err error) {
	for range 2 { // where the credentials change in between
		first, err := p.catch(ctx, op, retryer)
		if err != nil {
			return nil, err
		}
		second, err := p.catch(ctx, op, retryer)
		if err != nil {
			return nil, err
		}
		credentials, err := p.options.Credentials.Retrieve(ctx)
		if err != nil {
			return nil, err
		}
		if model, err = p.model(ctx, first, second, &credentials); err != errRotated { //nolint:errorlint // never wrapped
			return model, err
		}
	}
	return nil, errRotated
}

// model returns the prototype of two requests built by the client. They must differ only in fields known to a path.
// The path has to be able to make the second one to the byte.
func (p *Path) model(ctx context.Context, first, second *catcher, credentials *aws.Credentials) (*prototype, error) {
	model, key, err := newPrototype(second.request)
	switch {
	case err != nil:
		return nil, err
	case key != credentials.AccessKeyID:
		return nil, errRotated
	case !maps.EqualFunc(withoutOwn(first.request.Header), withoutOwn(second.request.Header), slices.Equal), *first.request.URL != *second.request.URL:
		return nil, unfit("requests of the client that differ")
	}
	model.identity = identityOf(credentials)
	if err := p.repeat(ctx, model, second, credentials); err != nil {
		return nil, err
	}
	return model, nil
}

// repeat makes a request again that the client built, and returns an error if it is another one.
func (p *Path) repeat(ctx context.Context, model *prototype, caught *catcher, credentials *aws.Credentials) error {
	signed, err := time.Parse(timeFormat, caught.request.Header.Get(headerDate))
	if err != nil {
		return unfit("requests without a time")
	}
	if skew := signed.Sub(caught.at); skew.Abs() > 2*time.Second { // which the client has learned
		p.skew.CompareAndSwap(0, int64(skew))
	}
	want := caught.request
	x := &exchange{
		attempt:    want.Header.Get(headerAttempt),
		invocation: want.Header.Get(headerInvocation),
		trace:      want.Header.Get(headerTrace),
	}
	sum := sha256.Sum256(caught.body)
	same := func() bool {
		x.prepare(ctx, model, http.NoBody, int64(len(caught.body)))
		err := x.sign(ctx, p, credentials, &sum, signed)
		return err == nil && maps.EqualFunc(x.request.Header, want.Header, slices.Equal)
	}
	model.signer = newSigner(want, model.scope)
	if !same() {
		model.signer = nil
		if !same() {
			return unfit("requests that are signed in another way")
		}
	}
	if *x.request.URL != *want.URL || x.request.Host != want.Host || x.request.ContentLength != want.ContentLength ||
		x.request.Method != want.Method || len(want.TransferEncoding) != 0 {
		return unfit("requests of another form")
	}
	return nil
}

// newPrototype returns the prototype made of a request, and the id of the access key that signed it.
func newPrototype(request *http.Request) (*prototype, string, error) {
	// AWS4-HMAC-SHA256 Credential=KEY/DAY/REGION/SERVICE/aws4_request, SignedHeaders=…, Signature=…
	credential, ok := strings.CutPrefix(request.Header.Get(headerAuthorization), "AWS4-HMAC-SHA256 Credential=")
	credential, _, _ = strings.Cut(credential, ",")
	parts := strings.Split(credential, "/")
	if !ok || len(parts) < 5 {
		return nil, "", unfit("requests that are not signed with AWS4-HMAC-SHA256")
	}
	last := len(parts) - 1
	model := &prototype{request: *request, scope: scope{region: parts[last-2], service: parts[last-1]}}
	model.request.Header, model.request.Body, model.request.GetBody = nil, nil, nil
	for name, value := range withoutOwn(request.Header) {
		model.headers = append(model.headers, header{name, slices.Clip(value)})
	}
	slices.SortFunc(model.headers, func(a, b header) int { return strings.Compare(a.name, b.name) })
	return model, strings.Join(parts[:last-3], "/"), nil
}

// withoutOwn returns the headers that all requests have alike.
func withoutOwn(all http.Header) http.Header {
	rest := maps.Clone(all)
	for _, name := range ofOneRequest {
		delete(rest, name)
	}
	return rest
}

// A catcher is an HTTP client that keeps a request to itself, and answers with an empty reply.
type catcher struct {
	request *http.Request
	body    []byte
	at      time.Time
}

// catch returns a request that the client builds.
func (p *Path) catch(ctx context.Context, op Operation, retryer aws.Retryer) (*catcher, error) {
	c := &catcher{}
	if err := specs[op].build(ctx, p.client, &p.table, func(o *dynamodb.Options) { o.HTTPClient, o.Retryer = c, retryer }); err != nil {
		return nil, err
	}
	return c, nil
}

// Do implements [dynamodb.HTTPClient].
func (c *catcher) Do(request *http.Request) (_ *http.Response, err error) {
	c.at = time.Now()
	c.request = request.Clone(context.Background()) // kept for longer than the call
	if c.body, err = io.ReadAll(request.Body); err != nil {
		return nil, err
	}
	const nothing = "{}"
	sum := strconv.FormatUint(uint64(crc32.ChecksumIEEE([]byte(nothing))), 10)
	return &http.Response{
		StatusCode: http.StatusOK, ProtoMajor: 1, ProtoMinor: 1, Request: request,
		Header: http.Header{"X-Amz-Crc32": {sum}}, Body: io.NopCloser(strings.NewReader(nothing)), ContentLength: int64(len(nothing)),
	}, nil
}
