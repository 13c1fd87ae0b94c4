package llm

import (
	"math"
	"math/bits"
	"net/url"
	"strings"

	"github.com/zlimit/zlimit-go/price"
)

// Usage is the usage of one call of a model, in tokens. Every token is in exactly one of Input, CacheRead, CacheWrite
// and Output, however the provider's own fields overlap.
type Usage struct {
	// Model is the answering model, as the answer names it; otherwise the requested one.
	Model string `json:"model"`
	// Input are the tokens of the prompt that were neither read from a cache nor written to one.
	Input int64 `json:"input"`
	// CacheRead are the tokens of the prompt that came from a cache.
	CacheRead int64 `json:"cache_read"`
	// CacheWrite are the tokens of the prompt that were written to a cache.
	CacheWrite int64 `json:"cache_write"`
	// Output are the tokens of the answer, with those that the model used to think.
	Output int64 `json:"output"`
	// Reasoning is the part of Output that the provider reports as thinking.
	Reasoning int64 `json:"reasoning"`
	// CacheWriteHour is the part of CacheWrite that is kept for an hour.
	CacheWriteHour int64 `json:"cache_write_hour,omitempty"`
	// CacheWrite12Hours is the part of CacheWrite that is kept for twelve hours.
	CacheWrite12Hours int64 `json:"cache_write_12_hours,omitempty"`
	// AudioInput is the sound in Input, and AudioOutput the sound in Output.
	AudioInput  int64 `json:"audio_input,omitempty"`
	AudioOutput int64 `json:"audio_output,omitempty"`
	// AudioCacheRead is the sound in CacheRead.
	AudioCacheRead int64 `json:"audio_cache_read,omitempty"`
	// ImageInput are the pictures in Input, and ImageOutput the pictures in Output.
	ImageInput  int64 `json:"image_input,omitempty"`
	ImageOutput int64 `json:"image_output,omitempty"`
	// ImageCacheRead are the pictures in CacheRead.
	ImageCacheRead int64 `json:"image_cache_read,omitempty"`
	// VideoInput are the videos in Input, and VideoOutput the videos in Output.
	VideoInput  int64 `json:"video_input,omitempty"`
	VideoOutput int64 `json:"video_output,omitempty"`
	// Searches are searches of the web that a tool of the provider made.
	Searches int64 `json:"searches,omitempty"`
	// Service is the class of service that the answer names, such as "flex"; "" where it names none.
	Service string `json:"service,omitempty"`
	// Speed is how fast the model was asked to be, such as "fast", and Region is where it ran, such as "us"; "" where neither
	// the answer nor the address of the request says.
	Speed  string `json:"speed,omitempty"`
	Region string `json:"region,omitempty"`
	// Mismatch is the provider's own total less the sum of its counts; 0 if they agree, or if it has no total. A
	// positive one is charged in Output, or in Input where a call has no answer. Complete is false where they disagree.
	Mismatch int64 `json:"mismatch,omitempty"`
	// Complete says that the provider reported all counts at the end of the answer. Otherwise the provider has reported
	// nothing, or the answer was cut off. At least a part is then an estimate: a token for each four bytes of text.
	Complete bool `json:"complete"`
}

// Total returns all tokens of the call.
func (u Usage) Total() int64 {
	return plus(plus(u.Input, u.CacheRead), plus(u.CacheWrite, u.Output))
}

// within keeps the parts of the classes within these.
func (u *Usage) within() {
	for _, class := range [...]struct {
		of    int64
		parts []*int64
	}{
		{u.Input, []*int64{&u.AudioInput, &u.ImageInput, &u.VideoInput}},
		{u.CacheRead, []*int64{&u.AudioCacheRead, &u.ImageCacheRead}},
		{u.CacheWrite, []*int64{&u.CacheWrite12Hours, &u.CacheWriteHour}},
		{u.Output, []*int64{&u.AudioOutput, &u.ImageOutput, &u.VideoOutput}},
	} {
		for _, part := range class.parts {
			*part = min(max(0, *part), class.of)
			class.of -= *part
		}
	}
}

// units returns the usage by the classes that have prices, with one request.
func (u Usage) units() price.Usage {
	said := u.Output - u.AudioOutput - u.ImageOutput - u.VideoOutput // in words, or thought
	return price.Usage{
		price.Input: u.Input - u.AudioInput - u.ImageInput - u.VideoInput, price.AudioInput: u.AudioInput, price.ImageInput: u.ImageInput, price.VideoInput: u.VideoInput,
		price.CacheRead: u.CacheRead - u.AudioCacheRead - u.ImageCacheRead, price.AudioCacheRead: u.AudioCacheRead, price.ImageCacheRead: u.ImageCacheRead,
		price.CacheWrite: u.CacheWrite - u.CacheWriteHour - u.CacheWrite12Hours, price.CacheWriteHour: u.CacheWriteHour, price.CacheWrite12Hours: u.CacheWrite12Hours,
		price.Output: max(0, said-u.Reasoning), price.Reasoning: min(u.Reasoning, said),
		price.AudioOutput: u.AudioOutput, price.ImageOutput: u.ImageOutput, price.VideoOutput: u.VideoOutput,
		price.Request: 1, price.Search: u.Searches,
	}
}

// priced returns what the price of a call depends on beside its usage and the hour.
func (u Usage) priced(model string) price.Call {
	call := price.Call{Model: model, Service: strings.ToLower(u.Service), Speed: strings.ToLower(u.Speed), Region: strings.ToLower(u.Region)}
	if call.Region == "not_available" { // of Anthropic, for a model that runs anywhere
		call.Region = ""
	}
	return call
}

// Weights say how much of a limit a call takes: a fixed amount, and an amount for each token of a class. Fractions are
// expressed by larger limits: with a limit in tenths of a token, a token weighs 10 and a cached one 1. None may be negative
// or above 1,000,000.
type Weights struct {
	Request    int64 `json:"request"`     // of the call itself
	Input      int64 `json:"input"`       // of a token of the prompt that no cache was involved in
	CacheRead  int64 `json:"cache_read"`  // of a token that came from a cache
	CacheWrite int64 `json:"cache_write"` // of a token that was written to a cache
	Output     int64 `json:"output"`      // of a token of the answer, thinking included
}

// Weights of common limits.
var (
	// PerRequest counts calls.
	PerRequest = Weights{Request: 1}
	// PerToken counts every token alike, as OpenAI's limits of tokens per minute do.
	PerToken = Weights{Input: 1, CacheRead: 1, CacheWrite: 1, Output: 1}
	// PerInput counts the prompt without tokens served by a cache, as Anthropic's limits of input tokens per minute do
	// for current models.
	PerInput = Weights{Input: 1, CacheWrite: 1}
	// PerOutput counts the answer.
	PerOutput = Weights{Output: 1}
	// PerBedrockToken counts as the quotas of Amazon Bedrock do for Anthropic's models since Claude 3.7. A token of the
	// answer takes five, and one from a cache none.
	PerBedrockToken = Weights{Input: 1, CacheWrite: 1, Output: 5}
)

// maxWeight is the most that a token may weigh.
const maxWeight = 1_000_000

// Of returns the amount of a call for a limit with these weights.
func (w Weights) Of(u Usage) int64 {
	sum := w.Request
	sum = plus(sum, times(w.Input, u.Input))
	sum = plus(sum, times(w.CacheRead, u.CacheRead))
	sum = plus(sum, times(w.CacheWrite, u.CacheWrite))
	return plus(sum, times(w.Output, u.Output))
}

// maxAmount is the most that a limit can be asked for.
const maxAmount = math.MaxInt64 / 1000

// plus returns a + b of numbers that are not negative, saturated.
func plus(a, b int64) int64 { return min(min(a, maxAmount)+min(b, maxAmount), maxAmount) }

// times returns a · b of numbers that are not negative, saturated.
func times(a, b int64) int64 {
	high, low := bits.Mul64(uint64(a), uint64(b))
	if high > 0 || low > maxAmount {
		return maxAmount
	}
	return int64(low)
}

// tokensOf estimates how many tokens a text has: four bytes make one.
func tokensOf(bytes int64) int64 { return (bytes + 3) / 4 }

// opaqueTokens is the estimate for a picture or a file in a prompt.
const opaqueTokens = 1000

// regionOf returns the region that the address of a request names; "" for none. Vertex AI has it in the path, and OpenAI in the
// first label of the host.
func regionOf(u *url.URL) string {
	if _, rest, ok := strings.Cut(u.Path, "/locations/"); ok {
		region, _, _ := strings.Cut(rest, "/")
		return region
	}
	if region, ok := strings.CutSuffix(u.Hostname(), ".api.openai.com"); ok {
		return region
	}
	return ""
}
