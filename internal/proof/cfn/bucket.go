package cfn

import (
	"bytes"
	"context"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/zlimit/zlimit-go/stack"
)

// HeadObject reports whether an object exists.
func (s *Service) HeadObject(_ context.Context, in *s3.HeadObjectInput, _ ...func(*s3.Options)) (*s3.HeadObjectOutput, error) {
	return called(s, "HeadObject", func() (*s3.HeadObjectOutput, error) {
		if _, ok := s.Objects[*in.Bucket+"/"+*in.Key]; !ok {
			return nil, Fault("NotFound", "Not Found")
		}
		return &s3.HeadObjectOutput{}, nil
	})
}

// GetObject returns an object.
func (s *Service) GetObject(_ context.Context, in *s3.GetObjectInput, _ ...func(*s3.Options)) (*s3.GetObjectOutput, error) {
	return called(s, "GetObject", func() (*s3.GetObjectOutput, error) {
		body, ok := s.Objects[*in.Bucket+"/"+*in.Key]
		if !ok {
			return nil, Fault("NoSuchKey", "The specified key does not exist")
		}
		return &s3.GetObjectOutput{Body: io.NopCloser(bytes.NewReader(body))}, nil
	})
}

// PutObject stores an object. It reads the content of a call that it refuses, too.
func (s *Service) PutObject(_ context.Context, in *s3.PutObjectInput, _ ...func(*s3.Options)) (*s3.PutObjectOutput, error) {
	body, err := io.ReadAll(in.Body)
	if err != nil {
		return nil, err
	}
	return called(s, "PutObject", func() (*s3.PutObjectOutput, error) {
		s.Objects[*in.Bucket+"/"+*in.Key] = body
		return &s3.PutObjectOutput{}, nil
	})
}

// ListObjectsV2 lists the objects of a bucket, two to a page.
func (s *Service) ListObjectsV2(_ context.Context, in *s3.ListObjectsV2Input, _ ...func(*s3.Options)) (*s3.ListObjectsV2Output, error) {
	return called(s, "ListObjectsV2", func() (*s3.ListObjectsV2Output, error) {
		out := &s3.ListObjectsV2Output{}
		for _, name := range slices.Sorted(maps.Keys(s.Objects)) {
			key, ok := strings.CutPrefix(name, *in.Bucket+"/")
			if !ok || in.Prefix != nil && !strings.HasPrefix(key, *in.Prefix) {
				continue
			}
			if len(out.Contents) == 2 {
				more := true
				out.IsTruncated, out.NextContinuationToken = &more, &key
				break
			}
			if in.ContinuationToken == nil || key >= *in.ContinuationToken {
				out.Contents = append(out.Contents, types.Object{Key: &key, LastModified: &s.Uploaded})
			}
		}
		return out, nil
	})
}

// DeleteObjects deletes objects.
func (s *Service) DeleteObjects(_ context.Context, in *s3.DeleteObjectsInput, _ ...func(*s3.Options)) (*s3.DeleteObjectsOutput, error) {
	return called(s, "DeleteObjects", func() (*s3.DeleteObjectsOutput, error) {
		for _, o := range in.Delete.Objects {
			delete(s.Objects, *in.Bucket+"/"+*o.Key)
		}
		return &s3.DeleteObjectsOutput{}, nil
	})
}

// DeleteBucket deletes a bucket, once it is empty.
func (s *Service) DeleteBucket(_ context.Context, in *s3.DeleteBucketInput, _ ...func(*s3.Options)) (*s3.DeleteBucketOutput, error) {
	return called(s, "DeleteBucket", func() (*s3.DeleteBucketOutput, error) {
		for name := range s.Objects {
			if strings.HasPrefix(name, *in.Bucket+"/") {
				return nil, Fault("BucketNotEmpty", "The bucket you tried to delete is not empty")
			}
		}
		if s.Deleted[*in.Bucket] {
			return nil, Fault("NoSuchBucket", "The specified bucket does not exist")
		}
		s.Deleted[*in.Bucket] = true
		return &s3.DeleteBucketOutput{}, nil
	})
}

// identity is an STS that knows one account.
type identity struct{}

// GetCallerIdentity returns a user of the account.
func (identity) GetCallerIdentity(context.Context, *sts.GetCallerIdentityInput, ...func(*sts.Options)) (*sts.GetCallerIdentityOutput, error) {
	account, arn := Account, "arn:aws-cn:iam::"+Account+":user/test"
	return &sts.GetCallerIdentityOutput{Account: &account, Arn: &arn}, nil
}

// Clients returns the service as the clients of package stack.
func (s *Service) Clients() stack.Clients {
	return stack.Clients{CloudFormation: s, CloudWatch: Watch{s}, DynamoDB: Tables{s}, Lambda: Watch{s}, S3: s, SQS: Watch{s}, Streams: Watch{s}, STS: identity{}}
}
