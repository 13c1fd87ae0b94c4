package demo

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"html"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/show"
	"github.com/zlimit/zlimit-go/internal/proof/check"
)

var update = flag.Bool("update", false, "write the recording")

// recording is the picture of the demo in the README.
const recording = "../../../../docs/demo.svg"

// TestRecording compares the recording with the demo as it is.
func TestRecording(t *testing.T) {
	var screen bytes.Buffer
	c := Config{
		Seed: DefaultSeed, Length: DefaultLength, Stdout: &screen, Live: true, Colored: true,
		Sleep: func(context.Context, time.Duration) error { return nil },
	}
	if err := Run(t.Context(), c); err != nil {
		t.Fatalf("Run(%+v) = %v", c, err)
	}
	got := animation(frames(screen.String()))
	if *update {
		check.Fatal(t, "write the recording", os.WriteFile(recording, []byte(got), 0o644))
	}
	want, err := os.ReadFile(recording)
	if err != nil {
		t.Fatalf("read the recording: %v", err)
	}
	if got != string(want) {
		t.Errorf("%s is stale: run this test with -update, and look at the picture", recording)
	}
}

// redraw is how a terminal returns to the first line of the last frame.
var redraw = regexp.MustCompile("\x1b\\[[0-9]+A")

// frames returns the pictures of a terminal: what was drawn at each third second of the demo, and the end of the report.
func frames(screen string) (all [][]string) {
	before, drawn, _ := strings.Cut(screen, show.HideCursor)
	drawn, _, _ = strings.Cut(drawn, "\n\nkey ") // the report
	title, _, _ := strings.Cut(before, "\n")
	pictures := redraw.Split(drawn, -1)
	for i, picture := range pictures {
		if i%3 == 0 || i == len(pictures)-1 {
			lines := strings.Split(strings.ReplaceAll(picture, show.ClearLine, ""), "\n")
			all = append(all, append([]string{title, ""}, lines[:7]...))
		}
	}
	for line := range strings.Lines(screen) {
		if strings.Contains(line, "Highest excess") {
			last := all[len(all)-1]
			all = append(all, append(last[:len(last):len(last)], "", strings.TrimSpace(line)))
		}
	}
	return all
}

const (
	lineHeight = 20
	frameShown = 0.15 // seconds
	endShown   = 6    // seconds of the last frame
)

// animation returns an SVG that shows the frames one after the other, and begins again.
func animation(all [][]string) string {
	height := 0
	for _, lines := range all {
		height = max(height, len(lines))
	}
	height = height*lineHeight + 32
	length := float64(len(all)-1)*frameShown + endShown
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 %d" font-family="ui-monospace,Menlo,Consolas,monospace" font-size="14" role="img" xml:space="preserve">`+"\n", height)
	b.WriteString("<title>zlimit demo: four API keys, one of them abusive, share limits over three replicas</title>\n<style>\n")
	fmt.Fprintf(&b, ".f{visibility:hidden;animation:f %.1fs steps(1) infinite}\n", length)
	fmt.Fprintf(&b, "@keyframes f{0%%{visibility:visible}%.4f%%{visibility:hidden}}\n", frameShown/length*100)
	fmt.Fprintf(&b, ".e{animation:e %.1fs steps(1) infinite}\n@keyframes e{0%%{visibility:hidden}%.4f%%{visibility:visible}}\n", length, (length-endShown)/length*100)
	b.WriteString("text{fill:#d6dbe3}.r{fill:#ff7b72}.g{fill:#56d364}.y{fill:#e3b341}.d{fill:#8b949e}.b{font-weight:bold}\n</style>\n")
	fmt.Fprintf(&b, `<rect width="720" height="%d" rx="8" fill="#0d1117"/>`+"\n", height)
	for i, lines := range all {
		class := fmt.Sprintf(`class="f" style="animation-delay:%.1fs"`, float64(i)*frameShown)
		if i == len(all)-1 {
			class = `class="e"`
		}
		fmt.Fprintf(&b, "<g %s>\n", class)
		for j, line := range lines {
			if line != "" {
				fmt.Fprintf(&b, `<text x="20" y="%d">%s</text>`+"\n", 32+j*lineHeight, colored(line))
			}
		}
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// paints are the classes of the colors.
var paints = map[string]string{show.Red: "r", show.Green: "g", show.Yellow: "y", show.Faint: "d", show.Bold: "b"}

// paint is a piece of text with its color.
var paint = regexp.MustCompile("\x1b\\[([0-9]+)m([^\x1b]*)\x1b\\[0m")

// colored returns a line of a terminal as the inside of a text of SVG.
func colored(line string) string {
	var b strings.Builder
	for line != "" {
		at := paint.FindStringSubmatchIndex(line)
		if at == nil {
			b.WriteString(html.EscapeString(line))
			break
		}
		b.WriteString(html.EscapeString(line[:at[0]]))
		fmt.Fprintf(&b, `<tspan class="%s">%s</tspan>`, paints[line[at[2]:at[3]]], html.EscapeString(line[at[4]:at[5]]))
		line = line[at[1]:]
	}
	return b.String()
}
