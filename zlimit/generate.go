package zlimit

//go:generate go run ../gen -spec ../spec/schema.yaml -root ..
