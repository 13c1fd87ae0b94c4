package models_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/types"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
	"google.golang.org/genai"

	"github.com/zlimit/zlimit-go/llm"
	"github.com/zlimit/zlimit-go/zlimit"
)

// open returns a limiter in memory with limits for every model.
func open(ctx context.Context, limits ...zlimit.Limit) *zlimit.RateLimiter {
	stopped := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC) // so that nothing flows in meanwhile
	limiter, err := zlimit.Open(ctx, "memory:", zlimit.WithClock(func() time.Time { return stopped }))
	if err != nil {
		panic(err)
	}
	if err := limiter.Limits.Set(ctx, zlimit.Level{}, zlimit.Config{Limits: limits}); err != nil {
		panic(err)
	}
	return limiter
}

// report prints what calls took.
func report(_ context.Context, r llm.Report) {
	fmt.Println(r.Resource, "took", r.Usage.Total(), "tokens, complete:", r.Usage.Complete)
}

// The base path stands in for the provider's; in earnest there is none to set.
func Example_openAI() {
	ctx := context.Background()
	limiter := open(ctx, zlimit.PerMinute("rpm", 500), zlimit.PerMinute("tpm", 30_000))
	defer limiter.Close()

	transport, err := llm.NewTransport(limiter, llm.For("team-a"), llm.WithIncludeUsage(), llm.WithObserver(report))
	if err != nil {
		panic(err)
	}
	client := openai.NewClient(
		option.WithHTTPClient(&http.Client{Transport: transport}),
		option.WithBaseURL(server.URL+"/v1/"), option.WithAPIKey("secret"),
	)
	stream := client.Chat.Completions.NewStreaming(ctx, openai.ChatCompletionNewParams{
		Model:    "gpt-4o-mini",
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Why is the sky blue?")},
	})
	text := ""
	for stream.Next() {
		for _, choice := range stream.Current().Choices {
			text += choice.Delta.Content
		}
	}
	if err := errors.Join(stream.Err(), stream.Close()); err != nil {
		panic(err)
	}
	fmt.Println(text)

	// Output:
	// gpt-4o-mini took 2306 tokens, complete: true
	// The sky "is" blüe, "usage":{"prompt_tokens":99}
}

func Example_openAIResponses() {
	ctx := context.Background()
	limiter := open(ctx, zlimit.PerMinute("rpm", 500), zlimit.PerMinute("tpm", 30_000))
	defer limiter.Close()

	transport, err := llm.NewTransport(limiter, llm.For("team-a"), llm.WithObserver(report))
	if err != nil {
		panic(err)
	}
	client := openai.NewClient(
		option.WithHTTPClient(&http.Client{Transport: transport}),
		option.WithBaseURL(server.URL+"/v1/"), option.WithAPIKey("secret"),
	)
	response, err := client.Responses.New(ctx, responses.ResponseNewParams{
		Model: "gpt-5", Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("Why is the sky blue?")},
	})
	if err != nil {
		panic(err)
	}
	fmt.Println(response.OutputText())

	// Output:
	// gpt-5 took 123 tokens, complete: true
	// Blue.
}

// Anthropic limits the prompt and the answer apart, and counts what a cache served in neither.
func Example_anthropic() {
	ctx := context.Background()
	limiter := open(ctx, zlimit.PerMinute("rpm", 50), zlimit.PerMinute("itpm", 30_000), zlimit.PerMinute("otpm", 8_000))
	defer limiter.Close()

	transport, err := llm.NewTransport(
		limiter, llm.For("team-a"),
		llm.WithLimit("rpm", llm.PerRequest), llm.WithLimit("itpm", llm.PerInput), llm.WithLimit("otpm", llm.PerOutput),
		llm.WithModels(llm.Rule{Pattern: "claude-sonnet-*", Resource: "claude-sonnet"}),
		llm.WithObserver(report),
	)
	if err != nil {
		panic(err)
	}
	client := anthropic.NewClient(
		anthropicoption.WithHTTPClient(&http.Client{Transport: transport}),
		anthropicoption.WithBaseURL(server.URL), anthropicoption.WithAPIKey("secret"),
	)
	stream := client.Messages.NewStreaming(ctx, anthropic.MessageNewParams{
		Model: "claude-sonnet-4-5-20250929", MaxTokens: 1024,
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("Why is the sky blue?"))},
	})
	text := ""
	for stream.Next() {
		text += stream.Current().Delta.Text
	}
	if err := errors.Join(stream.Err(), stream.Close()); err != nil {
		panic(err)
	}
	fmt.Println(text)
	statuses, err := limiter.Available(ctx, zlimit.AvailableQuery{Entity: "team-a", Resource: "claude-sonnet"})
	if err != nil {
		panic(err)
	}
	for _, s := range statuses {
		fmt.Println(s.Limit.Name, s.Limit.Capacity-s.Available)
	}

	// Output:
	// claude-sonnet took 1800 tokens, complete: true
	// Okay, let me look
	// itpm 680
	// otpm 120
	// rpm 1
}

func Example_gemini() {
	ctx := context.Background()
	limiter := open(ctx, zlimit.PerMinute("rpm", 10), zlimit.PerMinute("tpm", 250_000))
	defer limiter.Close()

	transport, err := llm.NewTransport(limiter, llm.For("team-a"), llm.WithObserver(report))
	if err != nil {
		panic(err)
	}
	client, err := genai.NewClient(ctx, &genai.ClientConfig{
		Backend: genai.BackendGeminiAPI, APIKey: "secret",
		HTTPClient: &http.Client{Transport: transport}, HTTPOptions: genai.HTTPOptions{BaseURL: server.URL},
	})
	if err != nil {
		panic(err)
	}
	text := ""
	for answer, err := range client.Models.GenerateContentStream(ctx, "gemini-2.5-flash", genai.Text("Why is the sky blue?"), nil) {
		if err != nil {
			panic(err)
		}
		text += answer.Text()
	}
	fmt.Println(text)

	// Output:
	// gemini-2.5-flash took 79 tokens, complete: true
	// Blue.
}

// Bedrock counts a token of Claude's answer five times.
func Example_bedrock() {
	ctx := context.Background()
	limiter := open(ctx, zlimit.PerMinute("rpm", 100), zlimit.PerMinute("tpm", 200_000))
	defer limiter.Close()

	transport, err := llm.NewTransport(
		limiter, llm.For("team-a"),
		llm.WithLimit("rpm", llm.PerRequest), llm.WithLimit("tpm", llm.PerBedrockToken),
		llm.WithModels(llm.Rule{Pattern: "*claude-sonnet-4-*", Resource: "claude-sonnet-4"}),
		llm.WithObserver(report),
	)
	if err != nil {
		panic(err)
	}
	client := bedrockruntime.New(bedrockruntime.Options{
		Region: "eu-central-1", BaseEndpoint: aws.String(server.URL),
		Credentials: credentials.NewStaticCredentialsProvider("id", "secret", ""),
		HTTPClient:  &http.Client{Transport: transport},
	})
	answer, err := client.ConverseStream(ctx, &bedrockruntime.ConverseStreamInput{
		ModelId: aws.String("eu.anthropic.claude-sonnet-4-20250514-v1:0"),
		Messages: []types.Message{{
			Role: types.ConversationRoleUser, Content: []types.ContentBlock{&types.ContentBlockMemberText{Value: "Hello"}},
		}},
	})
	if err != nil {
		panic(err)
	}
	stream, text := answer.GetStream(), ""
	for event := range stream.Events() {
		if delta, ok := event.(*types.ConverseStreamOutputMemberContentBlockDelta); ok {
			if piece, ok := delta.Value.Delta.(*types.ContentBlockDeltaMemberText); ok {
				text += piece.Value
			}
		}
	}
	if err := errors.Join(stream.Err(), stream.Close()); err != nil {
		panic(err)
	}
	fmt.Println(text)
	statuses, err := limiter.Available(ctx, zlimit.AvailableQuery{Entity: "team-a", Resource: "claude-sonnet-4"})
	if err != nil {
		panic(err)
	}
	for _, s := range statuses {
		fmt.Println(s.Limit.Name, s.Limit.Capacity-s.Available)
	}

	// Output:
	// claude-sonnet-4 took 146 tokens, complete: true
	// Hello world
	// rpm 1
	// tpm 200
}

// A refusal is an error of the SDK, with the status of every limit.
func Example_refused() {
	ctx := context.Background()
	limiter := open(ctx, zlimit.PerMinute("rpm", 1), zlimit.PerMinute("tpm", 30_000))
	defer limiter.Close()

	transport, err := llm.NewTransport(limiter, llm.For("team-a"))
	if err != nil {
		panic(err)
	}
	client := openai.NewClient(
		option.WithHTTPClient(&http.Client{Transport: transport}), option.WithMaxRetries(0),
		option.WithBaseURL(server.URL+"/v1/"), option.WithAPIKey("secret"),
	)
	for range 2 {
		_, err := client.Responses.New(ctx, responses.ResponseNewParams{
			Model: "gpt-5", Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("Hello")},
		})
		var exceeded *zlimit.ExceededError
		if errors.As(err, &exceeded) {
			fmt.Println("refused by", exceeded.Violations()[0].Limit.Name)
		}
	}

	// Output:
	// refused by rpm
}
