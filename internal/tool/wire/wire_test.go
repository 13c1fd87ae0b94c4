package wire

import (
	"math"
	"testing"
)

// TestValues writes values and reads them back.
func TestValues(t *testing.T) {
	var w Writer
	for _, text := range []string{"gpt-4", "", "Žofie", "gpt-4", ""} {
		w.Text(text)
	}
	for _, n := range []int64{0, -1, math.MaxInt64, math.MinInt64} {
		w.Int(n)
	}
	w.Flag(true)
	r := NewReader(w.Bytes)
	for _, want := range []string{"gpt-4", "", "Žofie", "gpt-4", ""} {
		if got := r.Text(); got != want {
			t.Errorf("Text() = %q, want %q", got, want)
		}
	}
	for _, want := range []int64{0, -1, math.MaxInt64, math.MinInt64} {
		if got := r.Int(); got != want {
			t.Errorf("Int() = %d, want %d", got, want)
		}
	}
	if !r.Flag() || !r.Done() {
		t.Error("the reader does not end with the flag")
	}
	for n := range w.Bytes {
		r := NewReader(w.Bytes[:n])
		for range 5 {
			r.Text()
		}
		for range 4 {
			r.Int()
		}
		if r.Flag(); r.OK() || r.Done() {
			t.Errorf("%d of %d bytes can be read", n, len(w.Bytes))
		}
	}
}

// FuzzReader reads any bytes.
func FuzzReader(f *testing.F) {
	f.Add([]byte{0, 2, 'a', 2, 0x80, 0})
	f.Fuzz(func(t *testing.T, bytes []byte) {
		r := NewReader(bytes)
		for i := 0; r.OK() && i < 1000; i++ {
			if text := r.Text(); len(text) > len(bytes) {
				t.Errorf("a text of %d bytes from %d", len(text), len(bytes))
			}
			if n := r.Count(); n > len(bytes) {
				t.Errorf("a count of %d from %d bytes", n, len(bytes))
			}
		}
	})
}
