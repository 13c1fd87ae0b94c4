package llm

import (
	"cmp"
	"strings"
)

// usage returns the known usage of the call; atEnd says that the answer came to its end. The tally is locked.
func (t *tally) usage(atEnd bool) Usage {
	f := &t.facts
	u := Usage{Model: cmp.Or(f.model, t.call.Model), Service: cmp.Or(f.service, t.format.service), Speed: f.speed, Region: f.region}
	if t.refused() {
		return Usage{Model: u.Model}
	}
	r := t.read(&u, atEnd)
	u.Complete = r.prompt && r.isSettled() && (t.hasEnded() || atEnd) && u.Mismatch == 0
	switch {
	case r.isSettled():
	case r.blank && atEnd && !f.failed && !f.withheld && !r.prompt: // nothing of it was understood, so that the estimate stands
		u.Output = t.call.Output
	default:
		said := r.sound.tokens(r.hushed, t.call.Output)
		u.AudioOutput += said
		u.Output += said + tokensOf(r.streamed-r.settled)
		if !r.answer {
			t.addUnseen(&u)
		}
	}
	t.addBeside(&u)
	return u
}

// addUnseen adds what came and is no text: a thousand tokens for each picture, as in a prompt, and at most the bound for an answer in
// an encoding that is not understood.
func (t *tally) addUnseen(u *Usage) {
	pictures, _ := t.seen()
	drawn := times(opaqueTokens, pictures)
	u.ImageOutput += drawn
	u.Output += drawn + min(tokensOf(t.unread), t.call.Output)
}

// A reading is how much of its usage an answer reports.
type reading struct {
	prompt, answer bool  // whose counts are there
	streamed       int64 // bytes of text that came
	settled        int64 // how many of them the counts include
	sound          heard // that came
	hushed         int64 // how much of it the counts include
	blank          bool  // no answer is reported, and none came
}

// isSettled reports whether the counts of the answer include all of its text and sound.
func (r *reading) isSettled() bool {
	return r.answer && r.settled == r.streamed && r.hushed == r.sound.quarters
}

// read sorts the reported counts into the classes of a usage.
func (t *tally) read(u *Usage, atEnd bool) reading {
	r := reading{streamed: t.written(), settled: t.settled, hushed: t.hushed}
	_, r.sound = t.seen()
	if t.document.sounds {
		r.sound = r.sound.add(quarters*t.plain, t.ownRate())
	}
	if t.total {
		r.settled, r.hushed = r.streamed, r.sound.quarters
	}
	r.prompt, r.answer = t.split(u)
	silent := r.streamed+r.sound.quarters > 0 && !t.total // a zero beside text or sound says nothing
	r.answer = r.answer && (u.Output > 0 || !silent)
	u.Mismatch = t.compare(u, &r.prompt, &r.answer)
	if !r.prompt {
		u.Input = t.call.Input
	}
	if u.Output == 0 && silent {
		r.answer, r.settled, r.hushed = false, 0, 0
	}
	r.blank = !r.answer && r.streamed+r.sound.quarters == 0
	if r.blank && atEnd && r.prompt && (t.hasEnded() || t.bare) {
		r.answer = true
	}
	return r
}

// hasEnded reports whether the answer says that it is at its end.
func (t *tally) hasEnded() bool { return t.facts.finished || t.facts.failed }

// split sorts the reported counts into classes, and reports whether the counts of the prompt and of the answer are there.
func (t *tally) split(u *Usage) (prompt, answer bool) {
	f, n := &t.facts, &t.facts.counts
	u.Input, u.CacheRead, u.CacheWrite = n[CountInput], n[CountCacheRead], n[CountCacheWrite]
	u.CacheWrite = max(u.CacheWrite, n[CountCacheWrite12Hours]+n[CountCacheWriteHour]+n[countCacheWriteShort]) // some servers have the parts alone
	if cache := u.CacheRead + u.CacheWrite; f.has[countUncached] {
		u.Input = max(n[countUncached], u.Input-cache)
	} else if u.Input >= cache && t.inclusive(cache) {
		u.Input -= cache
	}
	u.Input += n[CountToolInput]
	u.Output, u.Reasoning = n[CountOutput], n[CountReasoning]
	if t.format.ReasoningApart || u.Reasoning > u.Output { // more than the answer cannot be a part of it
		u.Output += u.Reasoning
	}
	u.CacheWriteHour, u.CacheWrite12Hours = n[CountCacheWriteHour], n[CountCacheWrite12Hours]
	u.AudioCacheRead, u.ImageCacheRead = n[CountAudioCacheRead], n[CountImageCacheRead]
	u.AudioInput = n[CountAudioInput] - n[CountAudioCacheRead]
	u.ImageInput = n[CountImageInput] - n[CountImageCacheRead]
	u.VideoInput = n[CountVideoInput] - n[countVideoCacheRead]
	u.AudioOutput, u.ImageOutput, u.VideoOutput = n[CountAudioOutput], n[CountImageOutput], n[CountVideoOutput]
	if t.format.API == APIOpenAIImages && !f.has[CountImageOutput] { // an answer there is of pictures
		u.ImageOutput = u.Output
	}
	if t.format.API == APIOpenAIAudio && t.sound.quarters > 0 && !f.has[CountAudioOutput] { // and one of speech is of sound
		u.AudioOutput = u.Output
	}
	u.Searches = n[CountSearches] + n[countFileSearches]
	prompt = (f.has[CountInput] || f.has[countUncached]) && (f.failed || u.Input+u.CacheRead+u.CacheWrite > 0 || t.call.Input == 0) // a zero says nothing of a prompt with text
	return prompt, f.has[CountOutput] || f.has[CountReasoning] || t.format.InputOnly
}

// inclusive reports whether the count of the input includes the cache. Converse does so for OpenAI's models in streams, and in bodies
// whose total does not count the cache twice.
func (t *tally) inclusive(cache int64) bool {
	n := &t.facts.counts
	if t.format.API == APIBedrockConverse && strings.Contains(t.call.Model, "openai.") {
		return t.messages || n[CountTotal] != n[CountInput]+cache+n[CountOutput]
	}
	return t.format.InputHasCache
}

// compare brings the classes in line with the provider's own total, where they are a known way to count, and returns the
// rest of the difference. A total that is greater is charged: as answer, which is dearer, where the call has one.
func (t *tally) compare(u *Usage, prompt, answer *bool) int64 {
	n := &t.facts.counts
	total := n[CountTotal]
	if total == 0 {
		return 0
	}
	cache := u.CacheRead + u.CacheWrite
	sum := u.Input + cache + u.Output
	switch rest := total - sum; {
	case !*prompt && !*answer:
		u.Input, *prompt, *answer = min(t.call.Input, total), true, true
		u.Output = total - u.Input
		return total
	case t.format.InputOnly && !*prompt:
		u.Input, *prompt = max(0, total-cache), true
		return 0
	case !*prompt:
		u.Input, *prompt = u.Input+max(0, rest), true
		return min(0, rest)
	case !*answer:
		u.Output, *answer = u.Output+max(0, rest), true
		return 0
	case rest == 0:
	case !t.format.ReasoningApart && rest == u.Reasoning: // xAI has it beside the output
		u.Output += u.Reasoning
	case rest == cache && t.format.InputHasCache: // which the input does not include after all
		u.Input += cache
	case !t.format.ReasoningApart && rest == cache+u.Reasoning && t.format.InputHasCache:
		u.Input, u.Output = u.Input+cache, u.Output+u.Reasoning
	case !t.format.ReasoningApart && rest == -u.Reasoning && n[CountOutput] < u.Reasoning: // which the total leaves out
	case (t.format.API == APIBedrockConverse || t.format.API == APIBedrockInvoke) && (rest == cache || rest == -cache): // a total with the cache twice, or without it
	case rest < 0:
		return rest
	default:
		return t.chargeRest(u, rest)
	}
	return 0
}

// chargeRest charges what a total has more than the classes, and returns how much of it is not explained. Beside seconds of sound, it is the
// sound.
func (t *tally) chargeRest(u *Usage, rest int64) int64 {
	switch {
	case t.facts.counts[countSeconds] > 0:
		u.Input, u.AudioInput = u.Input+rest, u.AudioInput+rest
		return 0
	case t.format.InputOnly:
		u.Input += rest
	default:
		u.Output += rest
	}
	return rest
}

// addBeside adds what the provider's other counts do not include, and keeps the parts of each class within it.
func (t *tally) addBeside(u *Usage) {
	n := &t.facts.beside
	u.Input += n.uncached(t.format.InputHasCache)
	u.CacheRead += n[CountCacheRead]
	u.CacheWrite += n[CountCacheWrite]
	u.CacheWriteHour += n[CountCacheWriteHour]
	u.CacheWrite12Hours += n[CountCacheWrite12Hours]
	u.ImageCacheRead += n[CountImageCacheRead]
	u.ImageInput += max(0, n[CountImageInput]-n[CountImageCacheRead])
	u.Output += n[CountOutput]
	u.ImageOutput += n[CountImageOutput]
	u.within()
	u.Reasoning += n[CountReasoning]
	u.Searches += n[CountSearches]
}

// uncached returns the tokens of a prompt that no cache was involved in; within says that the count of the input includes the others.
func (n *counts) uncached(within bool) int64 {
	if cache := n[CountCacheRead] + n[CountCacheWrite]; within && n[CountInput] >= cache {
		return n[CountInput] - cache
	}
	return n[CountInput]
}

// refused reports whether the answer is an error and nothing else. The tally is locked.
func (t *tally) refused() bool {
	return t.facts.failed && t.written()+t.sound.quarters == 0 && t.facts.has == [countEnd]bool{} && t.facts.beside == counts{}
}
