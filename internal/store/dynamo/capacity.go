package dynamo

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/zlimit/zlimit-go/internal/store"
)

// A meter adds the capacity units of one call to the [store.Units] of its context.
type meter struct {
	units *store.Units // nil where nothing counts them
	ask   types.ReturnConsumedCapacity
}

func (h *handle) meter(ctx context.Context) meter {
	m := meter{store.UnitsOf(ctx), h.capacity}
	if m.ask == "" && m.units != nil {
		m.ask = types.ReturnConsumedCapacityTotal
	}
	return m
}

func (m meter) read(units float64) {
	if m.units != nil {
		m.units.Read += units
	}
}

// write adds the units of a writing call.
func (m meter) write(units float64) {
	if m.units != nil {
		m.units.Write += units
	}
}

func unitsOf(reported ...types.ConsumedCapacity) float64 {
	sum := 0.0
	for i := range reported {
		if reported[i].CapacityUnits != nil {
			sum += *reported[i].CapacityUnits
		}
	}
	return sum
}

// unitsOfOne returns the units in the reply of a call for one item.
func unitsOfOne(reported *types.ConsumedCapacity) float64 {
	if reported == nil {
		return 0
	}
	return unitsOf(*reported)
}
