// Package models has an example for the official Go SDK of each provider of language models. The SDK gets an
// http.Client whose transport limits calls by their tokens.
package models
