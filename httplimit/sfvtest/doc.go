// Package sfvtest reads the fields of package httplimit with a parser of structured fields that has nothing to do with
// it. It is a module of its own, so that no user of httplimit depends on the parser.
package sfvtest
