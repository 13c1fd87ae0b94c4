package stack

import (
	"fmt"
	"strings"
)

// CDK returns a construct for the AWS CDK, in TypeScript, that includes [Template] from the file zlimit.yaml beside it.
func CDK() string {
	var b strings.Builder
	b.WriteString(`// zlimit for the AWS CDK. The template beside it is that of ` + "`zlimit stack cfn-template > zlimit.yaml`" + `.
import { CfnInclude } from 'aws-cdk-lib/cloudformation-include'
import { Construct } from 'constructs'
import * as path from 'path'

/** What differs from deployment to deployment; what is left out has its default. */
export interface ZlimitProps {
`)
	for _, s := range templateSettings() {
		fmt.Fprintf(&b, "  /** %s */\n  readonly %s?: %s\n", capital(s.Doc), s.Parameter, map[Kind]string{KindText: "string", KindNumber: "number", KindSwitch: "boolean"}[s.Kind])
	}
	b.WriteString(`}

/** The table of zlimit, with its aggregator, alarms and policies. */
export class Zlimit extends Construct {
  readonly template: CfnInclude

  constructor(scope: Construct, id: string, props: ZlimitProps = {}) {
    super(scope, id)
    const parameters = Object.fromEntries(Object.entries(props).map(([name, value]) => [name, String(value)]))
    this.template = new CfnInclude(this, 'Template', {
      templateFile: path.join(__dirname, 'zlimit.yaml'),
      preserveLogicalIds: true,
      parameters
    })
  }
}
`)
	return b.String()
}

// Terraform returns a module for Terraform that deploys [Template] from the file zlimit.yaml beside it, as a
// CloudFormation stack. So there is one definition for every way to deploy it.
func Terraform() string {
	var b strings.Builder
	b.WriteString(`# zlimit for Terraform. The template beside it is that of ` + "`zlimit stack cfn-template > zlimit.yaml`" + `.
variable "name" {
  description = "Name of the stack"
  type        = string
}

variable "parameters" {
  description = "Parameters of the template that differ from their defaults"
  type        = map(string)
  default     = {}

  validation {
    condition     = length(setsubtract(keys(var.parameters), local.known)) == 0
    error_message = "The template has no such parameter."
  }
}

locals {
  known = [
`)
	for _, s := range templateSettings() {
		fmt.Fprintf(&b, "    %q,\n", s.Parameter)
	}
	b.WriteString(`  ]
}

resource "aws_cloudformation_stack" "zlimit" {
  name          = var.name
  template_body = file("${path.module}/zlimit.yaml")
  parameters    = var.parameters
  capabilities  = ["CAPABILITY_NAMED_IAM"]

  lifecycle {
    prevent_destroy = true
  }
}

output "outputs" {
  description = "Outputs of the stack, such as TableName and AcquirePolicyArn"
  value       = aws_cloudformation_stack.zlimit.outputs
}
`)
	return b.String()
}

// templateSettings are the settings, and those parameters that [Manager.Deploy] sets by itself.
func templateSettings() []Setting {
	return append(Settings(),
		Setting{Parameter: "CodeKey", Doc: "key of the function's zip in the bucket; no function without"},
		Setting{Parameter: "CodeBucket", Doc: "bucket of the function's zip, the stack's by default"},
		Setting{Parameter: "Architecture", Doc: "what the function is built for, arm64 or x86_64"},
	)
}

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
