package dynamo

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/zlimit/zlimit-go/internal/store"
)

// A handle is a table as all parts of a [Store] reach it.
type handle struct {
	clock
	client   Client
	name     string
	schema   store.Table
	capacity types.ReturnConsumedCapacity
	retries  *retries
	closed   atomic.Bool
}

// begin returns the error of a call that must not be made: the store is closed, or the context has ended.
func (h *handle) begin(ctx context.Context, op string) error {
	if h.closed.Load() {
		return &store.Error{Op: op, Err: store.ErrClosed}
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	return nil
}

// index returns the key attributes of an index, or of the table for "".
func (h *handle) index(name string) (pk, sk string, err error) {
	if name == "" {
		return store.PK, store.SK, nil
	}
	for i := range h.schema.Indexes {
		if x := &h.schema.Indexes[i]; x.Name == name {
			return x.PK, x.SK, nil
		}
	}
	return "", "", fmt.Errorf("no index %q", name)
}

func (h *handle) describe(ctx context.Context) (*types.TableDescription, error) {
	const op = "DescribeTable"
	if err := h.begin(ctx, op); err != nil {
		return nil, err
	}
	out, err := h.client.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &h.name}, h.retries.reading...)
	if err != nil {
		return nil, failure(ctx, op, err, false, false)
	}
	return out.Table, nil
}
