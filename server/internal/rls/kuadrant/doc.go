// Package kuadrant has the messages of Kuadrant's rate limits.
package kuadrant

//go:generate go run ./generate
