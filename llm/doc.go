// Package llm limits calls of language models by their usage: requests, and tokens of the prompt, of caches and of the
// answer. It speaks the protocols of OpenAI, Anthropic, Gemini and Vertex AI, and Amazon Bedrock, streamed or not. A
// [Format] adds others, and [WithUnknown] decides about requests without a format.
//
// A [Transport] goes into the http.Client of a provider's SDK, or into a reverse proxy. It takes an estimate before a
// request is sent, passes the answer through unchanged, and settles the lease by the usage in the answer:
//
//	transport, err := llm.NewTransport(limiter, llm.For("team-a"))
//	client := openai.NewClient(option.WithHTTPClient(&http.Client{Transport: transport}))
//
// A [Meter] finds the usage in an answer that something else has asked for.
package llm
