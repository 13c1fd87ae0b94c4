// Package llm knows the limits of the models that the application uses. All but this comment is generated from
// limits.yaml.
package llm

//go:generate go tool zlimitgen -limits limits.yaml -out limits_gen.go
