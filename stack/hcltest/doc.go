// Package hcltest reads the module for Terraform of package stack with the parser and the formatter of Terraform itself.
// It is a module of its own, so that users do not require them.
package hcltest
