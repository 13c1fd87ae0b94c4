// Synthesizes the construct of `zlimit stack cfn-template --format cdk`, and asks the assertions of the CDK whether what comes out is the
// template. Its arguments are the directory of make infra, one with zlimit.ts, zlimit.yaml and template.json, and one with another
// zlimit.yaml, from which the construct must synthesize something else. template.json is the template with functions in their long form. A
// test of package stack writes all of them.
import assert from 'node:assert'
import { copyFileSync, readFileSync, symlinkSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join, resolve } from 'node:path'

const [tools, dir, twin] = process.argv.slice(2).map((path) => resolve(path))
for (const each of [dir, twin]) symlinkSync(join(tools, 'node_modules'), join(each, 'node_modules'))
const require = createRequire(join(dir, 'package.json'))

const ts = require('typescript')
const program = ts.createProgram([join(dir, 'zlimit.ts')], {
  strict: true,
  module: ts.ModuleKind.CommonJS,
  moduleResolution: ts.ModuleResolutionKind.Node10,
  target: ts.ScriptTarget.ES2022,
  skipLibCheck: true,
  types: ['node'],
  typeRoots: [join(dir, 'node_modules/@types')]
})
const host = { getCanonicalFileName: (name) => name, getCurrentDirectory: () => dir, getNewLine: () => '\n' }
const wrong = ts.formatDiagnostics([...ts.getPreEmitDiagnostics(program), ...program.emit().diagnostics], host)
assert.strictEqual(wrong, '', 'the construct does not compile')

const { App, LegacyStackSynthesizer, Stack } = require('aws-cdk-lib')
const { Match, Template } = require('aws-cdk-lib/assertions')
const { Zlimit } = require(join(dir, 'zlimit.js'))
copyFileSync(join(dir, 'zlimit.js'), join(twin, 'zlimit.js'))
const { Zlimit: Twin } = require(join(twin, 'zlimit.js'))

// A synthesizer that adds nothing of its own. The rules of the CDK are those of cfn-lint, which make infra asks itself: they would take
// most of the time.
const synthesize = (props, Construct = Zlimit) => {
  const app = new App({ builtinCloudFormationValidation: false })
  const stack = new Stack(app, 'limits', { synthesizer: new LegacyStackSynthesizer() })
  new Construct(stack, 'Zlimit', props)
  return Template.fromStack(stack)
}

const want = JSON.parse(readFileSync(join(dir, 'template.json'), 'utf8'))
// The CDK writes { "Fn::GetAtt": "Table.Arn" }, which is the same to CloudFormation.
const long = (template) => JSON.parse(JSON.stringify(template.toJSON()), (key, value) =>
  key === 'Fn::GetAtt' && typeof value === 'string' ? value.split(/\.(.*)/s).slice(0, 2) : value)
const compare = (got) => {
  for (const part of new Set([...Object.keys(got), ...Object.keys(want)])) assert.deepStrictEqual(got[part], want[part], `${part} differ`)
}
const template = synthesize()
compare(long(template))
try {
  compare(long(synthesize({}, Twin)))
  console.log('cdk: the other template does not differ')
} catch (error) {
  console.log(`cdk: the other template differs: ${error.message.replaceAll('\n', ' ')}`)
}

const counts = {}
for (const { Type } of Object.values(want.Resources)) counts[Type] = (counts[Type] ?? 0) + 1
for (const [type, count] of Object.entries(counts)) template.resourceCountIs(type, count)
for (const type of ['AWS::DynamoDB::Table', 'AWS::S3::Bucket']) {
  template.allResources(type, { DeletionPolicy: 'Retain', UpdateReplacePolicy: 'Retain' })
}
template.hasResourceProperties('AWS::DynamoDB::Table', { KeySchema: want.Resources.Table.Properties.KeySchema })

// What a program gives takes the place of a parameter.
const given = synthesize({ TableName: 'mine', MemorySize: 1024, Alarms: false })
given.hasResourceProperties('AWS::Lambda::Function', Match.objectLike({ MemorySize: 1024 }))
const left = given.toJSON().Parameters
for (const name of ['TableName', 'MemorySize', 'Alarms']) assert.ok(!(name in left), `parameter ${name} is there beside its value`)

console.log(`cdk: ${Object.keys(want.Resources).length} resources of ${Object.keys(counts).length} types, as in the template`)
