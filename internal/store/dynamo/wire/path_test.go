package wire

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/smithy-go"
	"pgregory.net/rapid"
)

// A silent transport answers every request with nothing.
type silent struct{ t testing.TB }

// RoundTrip implements [http.RoundTripper].
func (s silent) RoundTrip(r *http.Request) (*http.Response, error) {
	_, err := io.Copy(io.Discard, r.Body)
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody, Request: r}, err
}

// nothing is an output that takes nothing.
type nothing struct{}

func (nothing) Scan(string) bool                           { return true }
func (nothing) Deserialize(smithy.ShapeDeserializer) error { return nil }

func client(t testing.TB, options ...func(*dynamodb.Options)) *dynamodb.Client {
	return dynamodb.New(dynamodb.Options{
		Region: "us-east-1", BaseEndpoint: aws.String("http://dynamodb.test"), HTTPClient: &http.Client{Transport: silent{t}},
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "AKID", SecretAccessKey: "secret"}, nil
		}),
	}, options...)
}

// TestWhoSigns pins where the path signs itself, where it leaves that to the SDK's signer, and where it makes no calls.
func TestWhoSigns(t *testing.T) {
	for _, test := range []struct {
		name    string
		option  func(*dynamodb.Options)
		own     bool
		refusal string
	}{
		{"a plain client", func(*dynamodb.Options) {}, true, ""},
		{"a path to escape", func(o *dynamodb.Options) { o.BaseEndpoint = aws.String("http://dynamodb.test/a%20b") }, false, ""},
	} {
		p := New(client(t, test.option), "table", slog.New(slog.DiscardHandler))
		for op := range operations {
			_, err := p.Do(t.Context(), op, []byte("{}"), aws.NopRetryer{}, nothing{})
			if err != nil {
				t.Errorf("%s: %v = %v", test.name, op, err)
			}
			if model := p.prototypes[op].Load(); model == nil || (model.signer != nil) != test.own {
				t.Errorf("%s: the prototype of %v is %+v, want one with a signer of its own: %t", test.name, op, model, test.own)
			}
		}
		if got := p.Refusal(); got != test.refusal {
			t.Errorf("%s: Refusal() = %q, want %q", test.name, got, test.refusal)
		}
	}
}

// In TestSelfTest, the path meets requests that it cannot repeat.
func TestSelfTest(t *testing.T) {
	count := 0
	for _, test := range []struct {
		name   string
		change func(*http.Request)
		want   string
	}{
		{"a signature of another kind", func(r *http.Request) { r.Header.Set("Authorization", "Bearer x") }, "AWS4-HMAC-SHA256"},
		{"another signature", func(r *http.Request) { r.Header.Set("Authorization", r.Header.Get("Authorization")+"0") }, "signed in another way"},
		{"a header after the signature", func(r *http.Request) { r.Header.Set("X-Later", "x") }, "signed in another way"},
		{"a header that changes", func(r *http.Request) { count++; r.Header.Set("X-Count", fmt.Sprint(count)) }, "differ"},
		{"the key of another signer", func(r *http.Request) {
			r.Header.Set("Authorization", strings.Replace(r.Header.Get("Authorization"), "=AKID/", "=OTHER/", 1))
		}, "other credentials"},
		{"another host", func(r *http.Request) { r.Host = "elsewhere" }, "signed in another way"},
		{"chunks", func(r *http.Request) { r.TransferEncoding = []string{"chunked"} }, "another form"},
	} {
		p := New(client(t), "table", slog.New(slog.DiscardHandler))
		var caught [2]*catcher
		for i := range caught {
			var err error
			if caught[i], err = p.catch(t.Context(), UpdateItem, aws.NopRetryer{}); err != nil {
				t.Fatalf("catch() = %v", err)
			}
			test.change(caught[i].request)
		}
		_, err := p.model(t.Context(), caught[0], caught[1], &aws.Credentials{AccessKeyID: "AKID", SecretAccessKey: "secret"})
		if want := unfit(""); !errors.As(err, &want) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: model = %v, want %q", test.name, err, test.want)
		}
	}
}

// TestSignatures signs requests of any credentials, time and body, and compares them with the SDK's.
func TestSignatures(t *testing.T) {
	p := New(client(t), "table", slog.New(slog.DiscardHandler))
	if _, err := p.Do(t.Context(), UpdateItem, []byte("{}"), aws.NopRetryer{}, nothing{}); err != nil {
		t.Fatalf("Do() = %v", err)
	}
	model := p.prototypes[UpdateItem].Load()
	word := rapid.StringMatching(`[!-~]{1,40}`)
	rapid.Check(t, func(r *rapid.T) {
		credentials := aws.Credentials{
			AccessKeyID: word.Draw(r, "id"), SecretAccessKey: word.Draw(r, "secret"), SessionToken: rapid.StringMatching(`[!-~]{0,40}`).Draw(r, "token"),
		}
		at := time.Unix(rapid.Int64Range(0, 1<<33).Draw(r, "time"), 0)
		body := rapid.SliceOf(rapid.Byte()).Draw(r, "body")
		if len(body) == 0 {
			body = []byte("{}")
		}
		own, theirs := &exchange{invocation: newInvocation(), attempt: "attempt=2; max=3"}, &exchange{}
		theirs.invocation, theirs.attempt = own.invocation, own.attempt
		// A session token is signed where the prototype has one, and so has one of its own.
		if credentials.SessionToken != "" {
			request := model.request.Clone(t.Context())
			own.prepare(t.Context(), model, http.NoBody, 1)
			request.Header = own.request.Header.Clone()
			for _, name := range []string{headerDate, headerToken} {
				request.Header.Set(name, "x")
			}
			session := *model
			session.signer = newSigner(request, model.scope)
			own.prepare(t.Context(), &session, http.NoBody, int64(len(body)))
		} else {
			own.prepare(t.Context(), model, http.NoBody, int64(len(body)))
		}
		theirs.prepare(t.Context(), model, http.NoBody, int64(len(body)))
		sum := sha256.Sum256(body)
		if err := own.sign(t.Context(), p, &credentials, &sum, at); err != nil {
			r.Fatalf("the signature: %v", err)
		}
		if err := v4.NewSigner().SignHTTP(t.Context(), credentials, theirs.request, hex.EncodeToString(sum[:]), "dynamodb", "us-east-1", at); err != nil {
			r.Fatalf("the signature: %v", err)
		}
		if got, want := own.request.Header.Get("Authorization"), theirs.request.Header.Get("Authorization"); got != want {
			r.Fatalf("Authorization = %s, want %s", got, want)
		}
	})
}

// FuzzAppendString compares strings with what a reader of JSON makes of them.
func FuzzAppendString(f *testing.F) {
	for _, s := range []string{"", "plain", "\"\\/\b\f\n\r\t\x00\x1f\x7f", "é\u2028\u2029\U0001F600", "\xff\xc3", "a\xed\xa0\x80b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var got string
		if err := json.Unmarshal(AppendString(nil, s), &got); err != nil {
			t.Fatalf("AppendString(%q) = %s: %v", s, AppendString(nil, s), err)
		}
		if want := string([]rune(s)); got != want { // each byte that is not UTF-8 becomes U+FFFD
			t.Errorf("AppendString(%q) is read as %q, want %q", s, got, want)
		}
	})
}
