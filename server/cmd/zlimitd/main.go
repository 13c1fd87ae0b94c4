// The command zlimitd serves the limits of a store to Envoy, and to services in every language.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	_ "time/tzdata" // zones of limits, in an image without them

	"github.com/zlimit/zlimit-go/envoylimit"
	"github.com/zlimit/zlimit-go/server"
)

const usage = `zlimitd serves limits to Envoy, and to services in every language.

Usage:
  zlimitd [-config FILE]                 serve; SIGHUP reloads, SIGTERM drains
  zlimitd check [-envoy FILE] [FILE]     check a config, and print what may surprise
  zlimitd dashboard [-demo] [-config FILE] [-listen ADDRESS]
                                         the page alone, on the loopback

Environment variables replace what the file says: ZLIMITD_STORE,
ZLIMITD_NAMESPACE, ZLIMITD_GRPC and ZLIMITD_HTTP.
`

func main() { os.Exit(run(context.Background(), os.Args[1:], os.Getenv, os.Stdout, os.Stderr)) }

// run runs the command, and returns its exit code: 0, 1 for a failure, 2 for wrong usage, 3 for a check with warnings.
func run(ctx context.Context, args []string, env func(string) string, stdout, stderr io.Writer) int {
	logger := slog.New(slog.NewJSONHandler(stderr, nil))
	flags := flag.NewFlagSet("zlimitd", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() { _, _ = io.WriteString(stderr, usage) }
	command, most := "", 0
	if len(args) > 0 && (args[0] == "check" || args[0] == "dashboard") {
		command, args = args[0], args[1:]
	}
	var path, envoy string
	page := server.Dashboard{Logger: logger, Ready: func(link string) { _, _ = fmt.Fprintln(stdout, "Open this link. It works once:", link) }}
	switch command {
	case "check":
		flags.StringVar(&envoy, "envoy", "", "")
		most = 1
	case "dashboard":
		flags.BoolVar(&page.Demo, "demo", false, "")
		flags.StringVar(&page.Address, "listen", "", "")
		fallthrough
	default:
		flags.StringVar(&path, "config", "", "")
	}
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if flags.NArg() > most {
		flags.Usage()
		return 2
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, os.Interrupt)
	defer stop()
	load := func() (*server.Config, error) { return server.Load(cmp.Or(path, flags.Arg(0)), env) } //nolint:contextcheck // it waits for nothing
	config, err := load()
	warned := false
	switch {
	case err != nil:
	case command == "check":
		warned, err = check(config, envoy, stdout)
	case command == "dashboard":
		page.Config = config
		err = page.Run(ctx)
	default:
		err = serve(ctx, config, load, logger)
	}
	switch {
	case err != nil && command == "":
		logger.Error("zlimitd failed", "error", err)
		return 1
	case err != nil:
		_, _ = fmt.Fprintln(stderr, "zlimitd:", err)
		return 1
	case warned:
		return 3
	}
	return 0
}

// serve serves until the context ends. SIGHUP reads the config again.
func serve(ctx context.Context, config *server.Config, load func() (*server.Config, error), logger *slog.Logger) error {
	s, err := server.New(ctx, config, logger)
	if err != nil {
		return err
	}
	reload := make(chan os.Signal, 1)
	signal.Notify(reload, syscall.SIGHUP)
	defer signal.Stop(reload)
	done := make(chan struct{})
	defer close(done)
	go func() {
		for {
			select {
			case <-done:
				return
			case <-reload:
			}
			config, err := load()
			if err == nil {
				err = s.Reload(ctx, config)
			}
			if err != nil {
				logger.Error("the reload failed, the limits are as before", "error", err)
				continue
			}
			logger.Info("the config was reloaded")
		}
	}()
	return s.Run(ctx)
}

// check prints what may surprise in a config, and what Envoy would let pass without a word by a config of its own. It reports whether there is
// something.
func check(config *server.Config, envoy string, stdout io.Writer) (bool, error) {
	warnings := config.Warnings()
	if envoy != "" {
		text, err := os.ReadFile(envoy)
		if err != nil {
			return false, err
		}
		more, err := config.RateLimit.EnvoyWarnings(envoylimit.File{Name: envoy, Text: text})
		if err != nil {
			return false, err
		}
		warnings = append(warnings, more...)
	}
	for _, w := range warnings {
		_, _ = fmt.Fprintln(stdout, "warning:", w)
	}
	if len(warnings) == 0 {
		_, _ = fmt.Fprintln(stdout, "ok")
	}
	return len(warnings) > 0, nil
}
