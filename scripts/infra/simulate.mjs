// Asks iam-simulate what policies say to calls, and compares. Its argument is the directory of make infra: the tools, and
// iam-*.json, which tests of package stack write.
import { readdirSync, readFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { createRequire } from 'node:module'

const dir = resolve(process.argv[2])
const { runSimulation } = createRequire(join(dir, 'package.json'))('@cloud-copilot/iam-simulate')

// These keys hold several values.
const arrays = new Set(['dynamodb:LeadingKeys'])

let asked = 0
let wrong = 0
for (const name of readdirSync(dir).filter((f) => f.startsWith('iam-'))) {
  const { policies, questions } = JSON.parse(readFileSync(join(dir, name), 'utf8'))
  for (const { Policy, Request, Want } of questions) {
    const contextVariables = {}
    for (const [key, values] of Object.entries(Request.Context ?? {})) {
      contextVariables[key] = arrays.has(key) ? values : values[0]
    }
    const result = await runSimulation(
      {
        request: {
          principal: 'arn:aws:iam::123456789012:role/tried',
          action: Request.Action,
          resource: { resource: Request.Resource, accountId: '123456789012' },
          contextVariables
        },
        identityPolicies: [{ name: Policy, policy: policies[Policy] }],
        serviceControlPolicies: [],
        resourceControlPolicies: []
      },
      {}
    )
    asked++
    const allowed = result.resultType !== 'error' && result.overallResult === 'Allowed'
    if (result.resultType === 'error' || allowed !== Want) {
      wrong++
      console.error(`${name}: ${Policy}: ${JSON.stringify(Request)}: ${JSON.stringify(result.errors ?? result.overallResult)}, want allowed ${Want}`)
    }
  }
}
console.log(`iam-simulate: ${asked} questions, ${wrong} answers differ`)
process.exit(wrong > 0 || asked === 0 ? 1 : 0)
