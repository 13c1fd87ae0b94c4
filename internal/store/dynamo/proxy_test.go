package dynamo_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/internal/proof/storetest"
	"github.com/zlimit/zlimit-go/internal/store/dynamo"
)

// TestProxy makes calls through the proxy of the client's transport, in both ways: it sees the same requests.
func TestProxy(t *testing.T) {
	seen := map[string][]string{}
	for way, options := range ways {
		var mu sync.Mutex
		proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			authorization, _, _ := strings.Cut(r.Header.Get("Authorization"), "Signature=")
			mu.Lock()
			defer mu.Unlock()
			seen[way] = append(seen[way], fmt.Sprint(r.URL, r.Host, r.Header.Get("X-Amz-Target"), r.Header.Get("Proxy-Authorization"),
				len(body) > 0, strings.Contains(authorization, "AWS4-HMAC-SHA256 Credential=")))
			fmt.Fprint(w, `{"Attributes":{"PK":{"S":"p"},"SK":{"S":"one"},"n":{"N":"7"}}}`)
		}))
		address := check.Call(url.Parse(proxy.URL)).Must(t, "url.Parse()")
		address.User = url.UserPassword("user", "secret")
		transport := &http.Transport{Proxy: http.ProxyURL(address)}
		client := storeClient(transport, provide(staticKey))
		s := dynamo.New(client, "table", storetest.Table, nil, options...)
		for range 2 {
			result, err := s.Write(t.Context(), count(t, one))
			if n, _ := result.Item.Get("n").Int(); err != nil || n != 7 {
				t.Errorf("%s: Write = %v, %v", way, result, err)
			}
		}
		if path := s.Path(); path.Own != (way == "wire") {
			t.Errorf("%s: Path() = %+v", way, path)
		}
		transport.CloseIdleConnections()
		proxy.Close()
	}
	if !slices.Equal(seen["wire"], seen["SDK"]) || len(seen["SDK"]) != 2 || !strings.HasPrefix(seen["SDK"][0], "http://dynamodb.test/") {
		t.Errorf("the proxy saw %q, and of the SDK %q", seen["wire"], seen["SDK"])
	}
}
