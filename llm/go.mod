module github.com/zlimit/zlimit-go/llm

go 1.26.0

replace github.com/zlimit/zlimit-go => ../

require (
	github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream v1.7.26
	github.com/dunglas/httpsfv v1.1.2
	go.uber.org/goleak v1.3.0
	pgregory.net/rapid v1.3.0
)

require (
	github.com/maypok86/otter/v2 v2.4.0 // indirect
	github.com/oklog/ulid/v2 v2.1.2 // indirect
	golang.org/x/sync v0.24.0 // indirect
)

require (
	github.com/aws/smithy-go v1.28.8 // indirect
	github.com/zlimit/zlimit-go v0.0.0
)
