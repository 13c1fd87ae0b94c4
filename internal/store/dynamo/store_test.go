package dynamo_test

import (
	"testing"

	"github.com/zlimit/zlimit-go/internal/enginetest"
	"github.com/zlimit/zlimit-go/internal/store"
	"github.com/zlimit/zlimit-go/internal/store/dynamo"
	"github.com/zlimit/zlimit-go/internal/store/storetest"
)

func TestMain(m *testing.M) { enginetest.Main(m) }

func TestStore(t *testing.T) {
	engine := enginetest.Start(t)
	storetest.Run(t, func(t *testing.T) store.Store {
		return dynamo.New(engine.Client(), engine.Table(t), storetest.Table, storetest.CreateTable)
	}, "DELETE from a number", "an attribute without a name")
}
