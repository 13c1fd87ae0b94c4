// Package expr holds conditional writes as data. An [Operation] states conditions on the attributes of one item, and
// changes of them. Its clauses repeat for the members of an attribute family, such as the limits of a bucket. A [Call]
// picks clauses and values; binding it yields a [Template], compiled once per choice of clauses and members, and the
// values of this call.
//
// Two interpreters share a template. A DynamoDB store sends its text ([Template.Condition], [Template.Update],
// [Template.Names]); an embedded store evaluates it on the stored item ([Template.Holds], [Template.Apply]). The
// semantics are DynamoDB's expression language, restricted to top-level attributes:
// https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Expressions.html.
//
// The package does no I/O, reads no clock and knows no AWS type.
package expr
