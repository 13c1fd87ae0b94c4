package dynamo_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/zlimit/zlimit-go/internal/proof/enginetest"
	"github.com/zlimit/zlimit-go/internal/proof/storetest"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/store/dynamo"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(enginetest.With(m)) }

func TestStream(t *testing.T) {
	storetest.RunStream(t, func(t *testing.T) store.Store {
		engine := enginetest.Fresh(t) // streams slow an engine down for all
		return dynamo.New(engine.Client(), engine.Table(t), storetest.Table, enginetest.CreateSuiteTableWithStream,
			dynamo.Streams(engine.Streams()), dynamo.ReadInterval(0))
	})
}

func TestStore(t *testing.T) {
	engine := enginetest.Start(t)
	storetest.Run(t, func(t *testing.T) store.Store {
		return dynamo.New(engine.Client(), engine.Table(t), storetest.Table, enginetest.CreateSuiteTable)
	}, "DELETE from a number", "an attribute without a name")
}
