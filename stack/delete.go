package stack

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	cfntypes "github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"
)

// A Deletion is what [Manager.Delete] is about to delete.
type Deletion struct {
	Stack  string `json:"stack"`
	Table  string `json:"table,omitempty"`  // "" when there is none
	Items  int64  `json:"items"`            // of the table, as DynamoDB counted them some hours ago
	Bucket string `json:"bucket,omitempty"` // "" when there is none
	Data   bool   `json:"data"`             // whether table and bucket are deleted, with all that they hold
}

// Delete deletes a stack. Table and bucket stay, unless data is set. With data they go first, so that an interrupted deletion can be
// repeated. Delete calls confirm before it deletes anything, and reports what CloudFormation does to watch. A stack that does not exist
// is [ErrNotFound]; a deletion under way is joined.
func (m *Manager) Delete(ctx context.Context, name string, data bool, confirm func(*Deletion) (bool, error), watch func(Event)) (*Deletion, error) {
	if err := validateName(name); err != nil {
		return nil, err
	}
	s, err := m.describe(ctx, name)
	if err != nil {
		return nil, err
	}
	if busy(s.StackStatus) && s.StackStatus != cfntypes.StackStatusDeleteInProgress {
		return nil, fmt.Errorf("stack: %s is %s: delete it when that is done", name, s.StackStatus)
	}
	d, err := m.deletion(ctx, name, data)
	if err != nil {
		return nil, err
	}
	switch yes, err := confirm(d); {
	case err != nil:
		return nil, err
	case !yes:
		return nil, ErrDeclined
	}
	if data {
		if err := m.deleteData(ctx, d); err != nil {
			return d, err
		}
	}
	_, err = call(ctx, m.account, m.clients.CloudFormation.DeleteStack, &cloudformation.DeleteStackInput{StackName: s.StackId})
	if err != nil {
		return d, fmt.Errorf("stack: delete %s: %w", name, err)
	}
	left, err := m.follow(ctx, name, watch)
	if err == nil && left != nil {
		err = &FailedError{Stack: name, Status: string(left.StackStatus)}
	}
	return d, err
}

// deletion returns the resources to delete.
func (m *Manager) deletion(ctx context.Context, name string, data bool) (*Deletion, error) {
	ids, err := m.resources(ctx, name)
	if err != nil {
		return nil, err
	}
	d := &Deletion{Stack: name, Table: ids["Table"], Bucket: ids["Bucket"], Data: data}
	if d.Table == "" {
		return d, nil
	}
	table, err := inspector{m.account}.table(ctx, d.Table)
	switch {
	case hasCode(err, "ResourceNotFoundException"):
		d.Table = ""
	case err != nil:
		return nil, fmt.Errorf("stack: count the items of %s: %w", d.Table, err)
	default:
		d.Items = table.Items
	}
	return d, nil
}

func hasCode(err error, codes ...string) bool {
	var api smithy.APIError
	return errors.As(err, &api) && slices.Contains(codes, api.ErrorCode())
}

// deleteData deletes table and bucket. It ignores a table or a bucket that is already gone.
func (m *Manager) deleteData(ctx context.Context, d *Deletion) error {
	if d.Table != "" {
		off := false
		_, err := call(ctx, m.account, m.clients.DynamoDB.UpdateTable, &dynamodb.UpdateTableInput{TableName: &d.Table, DeletionProtectionEnabled: &off})
		if err == nil {
			_, err = call(ctx, m.account, m.clients.DynamoDB.DeleteTable, &dynamodb.DeleteTableInput{TableName: &d.Table})
		}
		if err != nil && !hasCode(err, "ResourceNotFoundException") {
			return fmt.Errorf("stack: delete table %s: %w", d.Table, err)
		}
	}
	if d.Bucket == "" {
		return nil
	}
	for {
		if err := (bucket{m.account, d.Bucket}).empty(ctx); err != nil && !hasCode(err, "NoSuchBucket") {
			return fmt.Errorf("stack: empty bucket %s: %w", d.Bucket, err)
		}
		_, err := call(ctx, m.account, m.clients.S3.DeleteBucket, &s3.DeleteBucketInput{Bucket: &d.Bucket})
		switch {
		case err == nil, hasCode(err, "NoSuchBucket"):
			return nil
		case !hasCode(err, "BucketNotEmpty"): // the aggregator has archived meanwhile
			return fmt.Errorf("stack: delete bucket %s: %w", d.Bucket, err)
		}
		if err := m.sleep(ctx, m.poll); err != nil {
			return err
		}
	}
}

// empty deletes the objects of a bucket, page by page.
func (b bucket) empty(ctx context.Context) error {
	for {
		page, err := call(ctx, b.account, b.clients.S3.ListObjectsV2, &s3.ListObjectsV2Input{Bucket: &b.name})
		if err != nil || len(page.Contents) == 0 {
			return err
		}
		var gone []s3types.ObjectIdentifier
		for _, o := range page.Contents {
			gone = append(gone, s3types.ObjectIdentifier{Key: o.Key})
		}
		out, err := call(ctx, b.account, b.clients.S3.DeleteObjects, &s3.DeleteObjectsInput{Bucket: &b.name, Delete: &s3types.Delete{Objects: gone}})
		if err != nil {
			return err
		}
		if len(out.Errors) > 0 {
			return fmt.Errorf("object %s: %s", value(out.Errors[0].Key), value(out.Errors[0].Message))
		}
	}
}
