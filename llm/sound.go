package llm

import (
	"bytes"
	"cmp"
	"mime"
	"strconv"
	"strings"
)

// Sound that comes without a count is charged by its length. OpenAI counts a token for each 50 ms of an answer:
// https://developers.openai.com/api/docs/guides/realtime-costs. Google counts 25 for a second:
// https://ai.google.dev/gemini-api/docs/pricing. The greater of both counts.
const soundTokens = 25 // of a second

// The bytes of a second: of samples of 16 bits at 24 kHz, of G.711, and of sound in any other format, which is at least as many.
const (
	soundSamples = 48_000
	soundCoded   = 8_000
	soundPacked  = 4_000
)

// The bytes of a sample, and the samples of a second that are believed.
const (
	sampleBytes = 2
	leastRate   = 8_000
	mostRate    = 48_000
)

// quarters are the quarters of a byte that a character of base64 is.
const quarters = 3

// A heard is how much sound came, in quarters of a byte, and how many bytes are a second.
type heard struct{ quarters, rate int64 }

// add adds sound. The format with the fewest bytes of a second counts.
func (h heard) add(quarters, rate int64) heard {
	if h.quarters > 0 {
		rate = min(rate, h.rate)
	}
	return heard{h.quarters + quarters, rate}
}

// spokenBytes is the text of a second of speech: few speak as slowly.
const spokenBytes = 10

// spokenTokens returns the most tokens of sound that a text is when it is spoken.
func spokenTokens(bytes int64) int64 {
	return (times(bytes, soundTokens) + spokenBytes - 1) / spokenBytes
}

// tokens returns the tokens of the sound behind a part of it. Where the length is a guess, they are at most as many as an answer may have.
func (h heard) tokens(settled, most int64) int64 {
	if h.quarters <= settled {
		return 0
	}
	n := (times(h.quarters-settled, soundTokens)-1)/(4*h.rate) + 1
	if h.rate == soundPacked && most > 0 {
		n = min(n, most)
	}
	return n
}

// soundRate returns the bytes of a second in a format, as requests name it, or in a type of sound. The type may name the samples of a second.
func soundRate(format string) int64 {
	kind, params, _ := mime.ParseMediaType(strings.ToLower(format))
	switch strings.TrimPrefix(cmp.Or(kind, strings.ToLower(format)), "audio/") {
	case "pcm", "pcm16", "l16", "linear16", "lpcm", "wav", "wave", "x-wav", "vnd.wave", "aiff", "x-aiff", "raw":
		if rate, _ := strconv.ParseInt(params["rate"], 10, 64); rate >= leastRate && rate <= mostRate {
			return sampleBytes * rate
		}
		return soundSamples
	case "g711_ulaw", "g711_alaw", "pcmu", "pcma", "basic", "mulaw", "alaw":
		return soundCoded
	default:
		return soundPacked
	}
}

// isSound reports whether a type of content is sound.
func isSound(kind string) bool { return strings.HasPrefix(strings.ToLower(kind), "audio/") }

// soundEvents are types of events whose delta is sound and no text.
var soundEvents = [][]byte{[]byte(`"response.audio.delta"`), []byte(`"response.output_audio.delta"`)}

// isSoundEvent reports whether the delta of an event is sound, by its type.
func isSoundEvent(raw []byte) bool {
	for _, kind := range soundEvents {
		if bytes.Equal(raw, kind) {
			return true
		}
	}
	return false
}

// ownRate returns the bytes of a second in the format that the request asks for.
func (t *tally) ownRate() int64 { return soundRate(cmp.Or(t.call.sound, t.format.soundFormat)) }

// A medium is data whose type is beside it, which may come behind it: a picture or sound.
type medium struct {
	chars int64
	kind  string // "" for one that is not known
	rate  string // samples of a second; "" for none beside the type
}

// second returns the bytes of a second of sound.
func (m *medium) second() int64 {
	if m.rate != "" {
		return soundRate(m.kind + ";rate=" + m.rate)
	}
	return soundRate(m.kind)
}

// endMedium takes what is under way.
func (t *tally) endMedium() {
	if t.medium != (medium{}) {
		t.pictures, t.sound = t.seen()
		t.medium = medium{}
	}
}

// seen returns the pictures and the sound of media, with the one that is under way.
func (t *tally) seen() (pictures int64, sound heard) {
	switch m := &t.medium; {
	case m.chars == 0:
		return t.pictures, t.sound
	case isSound(m.kind):
		return t.pictures, t.sound.add(quarters*m.chars, m.second())
	default:
		return t.pictures + 1, t.sound
	}
}

// endEvent takes the text of an event for the sound that it is.
func (t *tally) endEvent() {
	if t.document.sounds {
		t.streamed -= t.plain
		t.sound = t.sound.add(quarters*t.plain, t.ownRate())
	}
	t.plain = 0
}

// A soundBody is an answer that is sound and nothing else. Its bytes are counted.
type soundBody struct {
	tally *tally
	rate  int64
}

func (b soundBody) write(p []byte) { b.tally.sound = b.tally.sound.add(4*int64(len(p)), b.rate) }
