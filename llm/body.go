package llm

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
)

// A spool is the body of a request. It is read to its end before the request is sent, since the model and the length of
// the prompt may be anywhere in it. It keeps the beginning in memory. The rest is read a second time: from GetBody
// if the request has one, as requests of SDKs do, which costs neither memory nor disk. Otherwise, as in a reverse
// proxy, the rest is in a temporary file, to save the memory of the process.
type spool struct {
	head  []byte
	whole bool                          // the head is all of the body
	again func() (io.ReadCloser, error) // nil without GetBody
	file  *os.File                      // the part behind the head; nil for none
	size  int64
	users atomic.Int32 // of the file: who may open the spool, and those who read it
}

// fill reads a body to its end, in pieces that scan is given, and closes it.
func fill(r *http.Request, memory, most int64, scan io.Writer) (_ *spool, err error) {
	s := &spool{}
	s.users.Store(1)
	if r.Body == nil || r.Body == http.NoBody {
		s.whole = true
		return s, nil
	}
	if r.ContentLength > most {
		return nil, tooLarge(strconv.FormatInt(r.ContentLength, 10), most)
	}
	defer func() {
		if err != nil {
			s.release()
		}
	}()
	if s.head, err = io.ReadAll(io.LimitReader(r.Body, min(memory, most)+1)); err != nil {
		return nil, fmt.Errorf("llm: read the request: %w", err)
	}
	_, _ = scan.Write(s.head) // a scanner returns no error
	s.size, s.whole = int64(len(s.head)), int64(len(s.head)) <= memory
	if !s.whole {
		if err = s.spill(r, most, scan); err != nil {
			return nil, err
		}
	}
	if s.size > most {
		return nil, tooLarge("more", most)
	}
	_ = r.Body.Close() // all of it was read
	return s, nil
}

// spill reads the part behind the head.
func (s *spool) spill(r *http.Request, most int64, scan io.Writer) (err error) {
	to := scan
	if s.again = r.GetBody; s.again == nil {
		if s.file, err = os.CreateTemp("", "zlimit-body-"); err != nil {
			return fmt.Errorf("llm: keep the request: %w", err)
		}
		_ = os.Remove(s.file.Name()) // so that a crash leaves nothing; where open files stay, release removes it
		to = io.MultiWriter(scan, s.file)
	}
	n, err := io.Copy(to, io.LimitReader(r.Body, most-s.size+1))
	s.size += n
	if err != nil {
		return fmt.Errorf("llm: read the request: %w", err)
	}
	return nil
}

func tooLarge(size string, most int64) error {
	return invalid("body", size+" bytes", fmt.Sprintf("must be at most %d bytes", most))
}

// release gives up one use of the file, and the last one deletes it.
func (s *spool) release() {
	if s.users.Add(-1) == 0 && s.file != nil {
		_ = s.file.Close()
		_ = os.Remove(s.file.Name())
	}
}

// open returns the body from its beginning, with an edit. The spool must not be released before.
func (s *spool) open(e edit) (io.ReadCloser, error) {
	b := &body{}
	switch {
	case s.whole:
		b.Reader, b.close = bytes.NewReader(s.head), func() error { return nil }
	case s.again != nil:
		again, err := s.again()
		if err != nil {
			return nil, fmt.Errorf("llm: read the request again: %w", err)
		}
		b.Reader, b.close = again, again.Close
	default:
		s.users.Add(1)
		head := int64(len(s.head))
		b.Reader = io.MultiReader(bytes.NewReader(s.head), io.NewSectionReader(s.file, 0, s.size-head))
		b.close = func() error { s.release(); return nil }
	}
	if e.text != "" {
		b.Reader = io.MultiReader(io.LimitReader(b.Reader, e.from), strings.NewReader(e.text), &skipping{b.Reader, e.to - e.from})
	}
	return b, nil
}

// A body is a spool that is read, and closed once.
type body struct {
	io.Reader
	close  func() error
	closed atomic.Bool
}

func (b *body) Close() error {
	if b.closed.Swap(true) {
		return nil
	}
	return b.close()
}

// An edit puts a text in place of some bytes of a body; the zero value leaves the body as it is.
type edit struct {
	from, to int64
	text     string
}

// grows returns by how many bytes.
func (e edit) grows() int64 { return int64(len(e.text)) - (e.to - e.from) }

// A skipping reader leaves out its first bytes.
type skipping struct {
	io.Reader
	n int64
}

func (s *skipping) Read(p []byte) (int, error) {
	if s.n > 0 {
		n, err := io.CopyN(io.Discard, s.Reader, s.n)
		if s.n -= n; err != nil {
			return 0, err
		}
	}
	return s.Reader.Read(p)
}
