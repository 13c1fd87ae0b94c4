package llm

import (
	"fmt"
	"strings"
)

// A Format recognises the calls of an API, and names the places of the counts in their answers. A place is the names of
// members, joined by dots, such as usage.prompt_tokens. Arrays do not appear in it: their elements have its place.
// [WithFormats] adds formats to [Formats].
//
// The place of a count may have brackets behind the name of an array. The count is then the sum over the elements, or
// over those that the brackets describe: usage.details[ttl=1h].tokens, output[type=search&status!=failed]. A place that
// ends with brackets counts elements. A plus before a place says that the provider's other counts do not include it:
// +usage.steps[type=summary].tokens. An element of a sum that has a member model is priced as a call of that model. An
// object in place of an array is one element.
//
// All formats read the same parts of a request: the model, whether to stream, texts, pictures and files. They read the
// bound of the answer under the names of the known APIs.
type Format struct {
	// API names the format in reports.
	API API `json:"api,omitempty"`
	// Paths are the ends of the paths of calls, such as "/v2/chat" or "/models/{model}:predict". {model} stands for the
	// model, and * for one segment; a path has each of them at most once. The body names the model where the path does
	// not.
	Paths []string `json:"paths,omitempty"`
	// Streams are those whose answers always come in pieces.
	Streams []string `json:"streams,omitempty"`
	// Free says that requests to Paths take no tokens. They are sent as they are, unread and uncounted.
	Free bool `json:"free,omitempty"`
	// DefaultModel is the model of requests that name none; "" to refuse them.
	DefaultModel string `json:"default_model,omitempty"`
	// InputOnly says that answers have no tokens, such as vectors: none are estimated, and usage is complete without.
	InputOnly bool `json:"input_only,omitempty"`
	// Usage are the counts of an answer. A count may have several places, and come in several reports: the greatest
	// counts, and a zero says nothing beside another number. Of the counts of a prompt, later ones replace earlier ones
	// where that makes the prompt no shorter.
	Usage map[string]Count `json:"usage,omitempty"`
	// InputHasCache says that the count of Input includes the counts of CacheRead and CacheWrite. In an answer in which it is
	// less than these, it does not.
	InputHasCache bool `json:"input_has_cache,omitempty"`
	// ReasoningApart says that Output does not include Reasoning.
	ReasoningApart bool `json:"reasoning_apart,omitempty"`
	// Text are strings that the model writes, whose length counts where no usage comes. A place that ends in ".*" stands
	// for everything below it but identifiers, addresses and data. Places with a bar between them are forms of the same
	// text, of which the longest counts.
	Text []string `json:"text,omitempty"`
	// Model names the model that answered.
	Model []string `json:"model,omitempty"`
	// Service names the class of service that was used, Speed how fast, and Region where.
	Service []string `json:"service,omitempty"`
	Speed   []string `json:"speed,omitempty"`
	Region  []string `json:"region,omitempty"`
	// Finish is there, and not null, once the model has ended. The usage may come later.
	Finish []string `json:"finish,omitempty"`
	// Failure is there when the answer is an error, with any status, besides the places of errors that all providers
	// have. A place with an equals sign, such as status=failed, has that value then.
	Failure []string `json:"failure,omitempty"`

	service  string   // the class of all calls, where nothing else names one
	again    []string // of Text, what repeats the pieces of a stream
	pictures []string // what the model draws, whose data come before the usage
	sounds   []string // what it says, in base64
	media    []string // either of them, with its type beside it

	spoken      bool   // answers speak the text of the request
	soundFormat string // of sounds, where the request names none
	soundEvents bool   // the type of an event says whether its text is sound

	// The name of a response that may be made in the background, and how far the provider is; nil if none is.
	id, stage []string
}

// A Count is a number of tokens that providers report.
type Count uint8

// The counts of answers.
const (
	CountInput Count = iota
	CountCacheRead
	CountCacheWrite
	CountOutput
	CountReasoning
	CountToolInput         // what tools of the provider add to the prompt
	CountCacheWriteHour    // the part of CountCacheWrite that is kept for an hour
	CountAudioInput        // the part of CountInput that is sound
	CountAudioOutput       // the part of CountOutput that is sound
	CountSearches          // searches of the web that a tool of the provider made
	CountTotal             // the provider's own total, which the other counts are compared with
	CountAudioCacheRead    // the part of CountCacheRead that is sound
	CountImageInput        // the part of CountInput that is pictures
	CountImageOutput       // the part of CountOutput that is pictures
	CountImageCacheRead    // the part of CountCacheRead that is pictures
	CountCacheWrite12Hours // the part of CountCacheWrite that is kept for twelve hours
	CountVideoInput        // the part of CountInput that is videos
	CountVideoOutput       // the part of CountOutput that is videos
	countSeconds           // seconds of sound in the prompt, whose tokens only the total has

	countUncached        // what neither came from a cache nor was written to one, where the input includes these
	countCacheWriteShort // the part of CountCacheWrite that is kept for less than an hour
	countFileSearches    // searches of files that a tool of the provider made, charged like searches of the web
	countVideoCacheRead  // the part of CountCacheRead that is videos
	countEnd
)

// validate checks a format, the i-th that is given.
func (f *Format) validate(i int) error {
	field := fmt.Sprintf("format %d", i+1)
	switch {
	case f.API == "":
		return invalid(field+": API", "", "must not be empty")
	case len(f.Paths)+len(f.Streams) == 0:
		return invalid(field+": Paths", "", "must not be empty")
	}
	for _, path := range append(append([]string{}, f.Paths...), f.Streams...) {
		if !strings.HasPrefix(path, "/") || len(path) == 1 || strings.HasSuffix(path, "/") {
			return invalid(field+": path", path, "must begin with a slash and not end with one")
		}
		if strings.Count(path, wildModel)+strings.Count(path, wildSegment) > 1 {
			return invalid(field+": path", path, "must have one {model} or * at most")
		}
	}
	for place, count := range f.Usage {
		if count >= countEnd {
			return invalid(field+": usage["+place+"]", fmt.Sprint(uint8(count)), "must be a Count of this package")
		}
		if _, err := parsePlace(place); err != nil {
			return invalid(field+": usage", place, err.Error())
		}
	}
	return nil
}
