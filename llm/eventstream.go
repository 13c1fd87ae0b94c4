package llm

import (
	"bytes"
	"encoding/binary"
	"encoding/json"

	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"
	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream/eventstreamapi"
)

// A messageReader takes the payloads out of an AWS event stream. It keeps one message, up to a bound; larger ones, which
// Converse does not send, are passed over.
type messageReader struct {
	data    *scanner
	failure func(kind string) // takes the kind of an error that a message is

	message []byte
	skip    int // bytes of a message that is too large
	broken  bool
	decoder *eventstream.Decoder
}

// Lengths in bytes: of the beginning of a message, of the shortest message, and of the longest one that is read. The
// first four bytes of a message are its length.
const (
	messagePrelude = 12
	messageLeast   = 16
	messageMost    = 1 << 20
)

// write takes a piece of the stream.
func (r *messageReader) write(p []byte) {
	for len(p) > 0 && !r.broken {
		if r.skip > 0 {
			n := min(r.skip, len(p))
			r.skip -= n
			p = p[n:]
			continue
		}
		n := min(r.missing(), len(p))
		r.message = append(r.message, p[:n]...)
		p = p[n:]
		if len(r.message) >= messagePrelude {
			r.check()
		}
	}
}

// missing returns how many bytes have to come before more is known of the message, or before it is complete.
func (r *messageReader) missing() int {
	if len(r.message) < messagePrelude {
		return messagePrelude - len(r.message)
	}
	return r.length() - len(r.message)
}

func (r *messageReader) length() int { return int(binary.BigEndian.Uint32(r.message)) }

// check decodes a complete message, and passes over one that is too large.
func (r *messageReader) check() {
	switch length := r.length(); {
	case length < messageLeast:
		r.broken = true
	case length > messageMost:
		r.skip = length - len(r.message)
		r.message = r.message[:0]
	case length == len(r.message):
		r.decode()
		r.message = r.message[:0]
	}
}

func (r *messageReader) decode() {
	if r.decoder == nil {
		r.decoder = eventstream.NewDecoder()
	}
	m, err := r.decoder.Decode(bytes.NewReader(r.message), nil)
	if err != nil { // a wrong checksum: later bytes cannot be trusted
		r.broken = true
		return
	}
	r.data.reset()
	for _, name := range []string{eventstreamapi.ExceptionTypeHeader, eventstreamapi.ErrorCodeHeader} {
		if kind := m.Headers.Get(name); kind != nil {
			r.failure(kind.String())
		}
	}
	if kind := m.Headers.Get(eventstreamapi.EventTypeHeader); kind != nil && kind.String() == "chunk" { // of InvokeModelWithResponseStream
		var chunk struct {
			Bytes []byte `json:"bytes"`
		}
		if json.Unmarshal(m.Payload, &chunk) == nil {
			r.data.write(chunk.Bytes)
		}
		return
	}
	r.data.write(m.Payload)
}
