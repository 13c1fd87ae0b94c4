package main

import (
	"context"
	"errors"
	"strings"
)

// models are those that there are. Each has buckets of its own, so that made up names would be made up limits.
var models = []string{"small", "large"}

// A question is what a tenant asks a model.
type question struct {
	Model     string `json:"model"`
	Prompt    string `json:"prompt"`
	MaxTokens int64  `json:"max_tokens"`
}

// estimate returns the most tokens that a question may take: a token is about four characters long.
func (q question) estimate() int64 { return int64(len(q.Prompt))/4 + 1 + q.MaxTokens }

// An answer is what a model says.
type answer struct {
	Text   string `json:"text"`
	Tokens int64  `json:"tokens"` // of the prompt and the text
}

// A model answers questions.
type model func(ctx context.Context, q question) (answer, error)

// errBroken is what the made up model says to a prompt that it does not like.
var errBroken = errors.New("the model is broken")

// fakeModel repeats the prompt. A token is a word.
func fakeModel(ctx context.Context, q question) (answer, error) {
	if err := ctx.Err(); err != nil {
		return answer{}, err
	}
	if strings.Contains(q.Prompt, "break") {
		return answer{}, errBroken
	}
	return answer{Text: "You said: " + q.Prompt, Tokens: 2*int64(len(strings.Fields(q.Prompt))) + 2}, nil
}
