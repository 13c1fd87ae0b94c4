package browsertest

import (
	"bytes"
	"cmp"
	"flag"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/zlimit/zlimit-go/internal/proof/check"
)

var update = flag.Bool("update", false, "draw the pictures of docs/dashboard.md")

// envPictures names a directory for a picture of every screen.
const envPictures = "ZLIMIT_PICTURES"

// docs is where the pictures of the documentation are.
const docs = "../../docs/dashboard"

// keep saves a picture of the whole screen, where a directory is named.
func keep(t *testing.T, s *site, name string) {
	t.Helper()
	dir := os.Getenv(envPictures)
	if dir == "" {
		return
	}
	shot, err := chromedp.Run(s.tab, chromedp.FullScreenshot(100))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name+".png"), shot, 0o600)
	}
	check.Error(t, "the picture "+name, err)
}

// pictures draws those of the documentation, or checks that they are there and small.
func pictures(t *testing.T, s *site) {
	t.Helper()
	for _, p := range []struct {
		name, path, theme string
		width             int64
	}{
		{"now", "/", "light", 1280},
		{"now-dark", "/", "dark", 1280},
		{"usage", "/usage", "light", 1280},
		{"entity", "/entity?id=search&resource=gpt-5", "dark", 1280},
		{"whatif", "/whatif", "light", 1280},
		{"phone", "/usage", "dark", 390},
	} {
		file := filepath.Join(docs, p.name+".png")
		if *update {
			s.look(t, p.path, p.theme, p.width)
			s.do(t, chromedp.EmulateViewport(p.width, 860))
			shot, err := chromedp.Run(s.tab, chromedp.CaptureScreenshot())
			check.Fatal(t, "chromedp.Run()", err)
			check.Fatal(t, "os.WriteFile()", os.WriteFile(file, reduced(t, shot), 0o600))
		}
		if info, err := os.Stat(file); err != nil || info.Size() > 150_000 {
			t.Errorf("%s: %v, want a picture of up to 150 KB, which -update draws", file, err)
		}
	}
}

// reduced returns a picture with its 256 most frequent colours: a third of the size, and the same to the eye.
func reduced(t *testing.T, shot []byte) []byte {
	t.Helper()
	picture, err := png.Decode(bytes.NewReader(shot))
	check.Fatal(t, "png.Decode()", err)
	bounds := picture.Bounds()
	counts := map[color.RGBA]int{}
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			counts[color.RGBAModel.Convert(picture.At(x, y)).(color.RGBA)]++
		}
	}
	colours := make([]color.RGBA, 0, len(counts))
	for c := range counts {
		colours = append(colours, c)
	}
	key := func(c color.RGBA) uint32 { return uint32(c.R)<<16 | uint32(c.G)<<8 | uint32(c.B) }
	slices.SortFunc(colours, func(a, b color.RGBA) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(key(a), key(b)))
	})
	palette := color.Palette{}
	for _, c := range colours[:min(len(colours), 256)] {
		palette = append(palette, c)
	}
	out := image.NewPaletted(bounds, palette)
	draw.Draw(out, bounds, picture, bounds.Min, draw.Src)
	var b bytes.Buffer
	encoder := png.Encoder{CompressionLevel: png.BestCompression}
	check.Fatal(t, "Encode()", encoder.Encode(&b, out))
	return b.Bytes()
}
