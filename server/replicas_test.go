package server

import (
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
)

// TestReplicas asks four servers on one table at the same time. They admit exactly what the limit allows.
func TestReplicas(t *testing.T) {
	engine := enginetest.Start(t)
	for name, value := range map[string]string{"AWS_ENDPOINT_URL_DYNAMODB": engine.Endpoint(), "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"} {
		t.Setenv(name, value)
	}
	text := "store: dynamodb:" + engine.Table(t) + "?region=eu-central-1&timeout=30s\nsetup: true\n" + config
	path := filepath.Join(directory(t, map[string]string{
		"zlimitd.yaml": text, "a.limits.yaml": strings.Replace(limits, "unit: hour, requests_per_unit: 2", "unit: year, requests_per_unit: 100", 1),
	}), "zlimitd.yaml")
	const replicas, calls = 4, 2000
	var clients [replicas]pb.RateLimitServiceClient
	for i := range clients {
		s, _ := start(t, path)
		clients[i] = pb.NewRateLimitServiceClient(dial(t, s))
	}
	var admitted, refused atomic.Int64
	var group sync.WaitGroup
	for i := range calls {
		group.Go(func() {
			answer, err := clients[i%replicas].ShouldRateLimit(t.Context(), request("ann"))
			switch {
			case err != nil:
				t.Errorf("call %d = %v", i, err)
			case answer.OverallCode == pb.RateLimitResponse_OK:
				admitted.Add(1)
			default:
				refused.Add(1)
			}
		})
	}
	group.Wait()
	if admitted.Load() != 100 || refused.Load() != calls-100 {
		t.Errorf("%d calls were admitted, and %d refused, want 100 and %d", admitted.Load(), refused.Load(), calls-100)
	}
}
