package dynamo_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
	"github.com/zlimit/zlimit-go/internal/proof/storetest"
	"github.com/zlimit/zlimit-go/internal/store/dynamo"
)

// TestIdentity asks a server that stands in for STS.
func TestIdentity(t *testing.T) {
	isolate(t)
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIDENV")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	const arn = "arn:aws:sts::123456789012:assumed-role/ops/me"
	var asked atomic.Int64
	status := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		body, err := io.ReadAll(r.Body)
		if err != nil || !strings.Contains(string(body), "Action=GetCallerIdentity") || !strings.Contains(r.Header.Get("Authorization"), "AKIDENV/") {
			t.Errorf("request %s with %q: %v", body, r.Header.Get("Authorization"), err)
		}
		w.WriteHeader(status)
		if status != http.StatusOK {
			fmt.Fprint(w, `<ErrorResponse><Error><Type>Sender</Type><Code>InvalidClientTokenId</Code><Message>no</Message></Error></ErrorResponse>`)
			return
		}
		fmt.Fprintf(w, `<GetCallerIdentityResponse><GetCallerIdentityResult><Arn>%s</Arn></GetCallerIdentityResult></GetCallerIdentityResponse>`, arn)
	}))
	t.Setenv("AWS_ENDPOINT_URL_STS", server.URL)
	ignore := goleak.IgnoreCurrent()

	open := func(config dynamo.ClientConfig) *dynamo.Store {
		t.Helper()
		return check.Call(dynamo.Open(t.Context(), config, "table", storetest.Table, enginetest.CreateSuiteTable)).Must(t, "dynamo.Open()")
	}
	s := open(dynamo.ClientConfig{Region: "eu-central-1", Endpoint: "http://dynamodb.example"})
	if got, err := s.Identity(t.Context()); err != nil || got != arn || asked.Load() != 1 {
		t.Errorf("Identity = %q, %v after %d requests, want %q", got, err, asked.Load(), arn)
	}
	status = http.StatusForbidden
	if got, err := s.Identity(t.Context()); err == nil {
		t.Errorf("Identity = %q, want the refusal", got)
	}
	check.Error(t, "Close()", s.Close())
	if _, err := s.Identity(t.Context()); err == nil {
		t.Error("Identity of a closed store has no error")
	}
	server.CloseClientConnections()
	goleak.VerifyNone(t, ignore)
	server.Close()

	before := asked.Load()
	engine := enginetest.Start(t)
	for name, s := range map[string]*dynamo.Store{
		"somebody's client":   dynamo.New(engine.Client(), "table", storetest.Table, enginetest.CreateSuiteTable),
		"a loopback endpoint": open(dynamo.ClientConfig{Endpoint: engine.Endpoint()}),
	} {
		if got, err := s.Identity(t.Context()); err != nil || got != "" || asked.Load() != before {
			t.Errorf("%s: Identity = %q, %v, want none, and no request", name, got, err)
		}
		check.Error(t, "Close()", s.Close())
	}
}
