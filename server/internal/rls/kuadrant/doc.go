// Package kuadrant has the messages and the service of Kuadrant's rate limits.
package kuadrant

//go:generate go run ./generate
