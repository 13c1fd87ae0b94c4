// Package stack keeps the AWS resources of zlimit as a CloudFormation stack: the table, the aggregator behind its stream,
// a bucket, alarms and policies.
package stack

import _ "embed"

// Template is the CloudFormation template of a deployment, generated from the schema of the table. Its parameters are the
// [Options].
//
//go:embed template.yaml
var Template string
