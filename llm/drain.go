package llm

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"
)

// draining reports whether answers are read on when their callers have left.
func (t *Transport) draining() bool { return t.config.drainBytes > 0 && t.config.drainTime > 0 }

// errDrained ends an answer that is longer than is read for a caller who has left.
var errDrained = errors.New("llm: the rest of the answer is not read")

// A drained answer comes from a goroutine that reads on when the caller has left.
type drained struct {
	*io.PipeReader
	leave func(error)
}

// Close says that the caller has left. It does not wait for the rest of the answer.
func (d *drained) Close() error {
	d.leave(io.ErrClosedPipe)
	return d.PipeReader.Close()
}

// drain starts a goroutine that reads an answer and settles at its end, after its last bytes are passed on. The caller leaves by Close or
// with its context. From then on the answer is read within the bounds of the transport, and the request is cancelled when it reaches them.
func (t *Transport) drain(ctx context.Context, body io.ReadCloser, settle func(), cancel context.CancelFunc) io.ReadCloser {
	r, w := io.Pipe()
	var once sync.Once
	leave := func(err error) {
		once.Do(func() {
			_ = w.CloseWithError(err)
			time.AfterFunc(t.config.drainTime, cancel)
		})
	}
	stop := context.AfterFunc(ctx, func() { leave(ctx.Err()) })
	end := t.behind.begin()
	go func() {
		defer end()
		err := t.pump(w, body)
		_ = body.Close()
		settle()
		cancel()
		stop()
		once.Do(func() {}) // there is nothing left to leave
		_ = w.CloseWithError(err)
	}()
	return &drained{r, leave}
}

// pump copies an answer to its caller, and reads the rest of it when the caller has left. It returns the error at the end,
// which is io.EOF when there is none.
func (t *Transport) pump(w *io.PipeWriter, body io.Reader) error {
	buffer := make([]byte, 32<<10)
	rest := t.config.drainBytes
	for {
		n, err := body.Read(buffer)
		if n > 0 {
			if _, left := w.Write(buffer[:n]); left != nil {
				rest -= int64(n)
			}
		}
		switch {
		case err != nil:
			return err
		case rest <= 0:
			return errDrained
		}
	}
}
