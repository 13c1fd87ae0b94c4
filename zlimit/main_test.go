package zlimit_test

import (
	"encoding/json"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
)

func TestMain(m *testing.M) {
	if job := os.Getenv(updaterEnv); job != "" {
		os.Exit(update(job))
	}
	if job := os.Getenv(workerEnv); job != "" {
		os.Exit(work(job))
	}
	if job := os.Getenv(queueEnv); job != "" {
		os.Exit(runQueuers(job))
	}
	if dsn := os.Getenv(holderEnv); dsn != "" {
		os.Exit(holdSlots(dsn))
	}
	if job := os.Getenv(trafficEnv); job != "" {
		tr := &traffic{}
		if err := json.Unmarshal([]byte(job), tr); err != nil {
			panic(err)
		}
		os.Exit(tr.run())
	}
	goleak.VerifyTestMain(enginetest.With(m))
}
