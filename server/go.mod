module github.com/zlimit/zlimit-go/server

go 1.26.0

replace github.com/zlimit/zlimit-go => ../

require (
	github.com/google/go-cmp v0.7.0
	github.com/zlimit/zlimit-go v0.0.0
)

require (
	github.com/maypok86/otter/v2 v2.4.0 // indirect
	github.com/oklog/ulid/v2 v2.1.2 // indirect
	golang.org/x/sync v0.24.0 // indirect
)
