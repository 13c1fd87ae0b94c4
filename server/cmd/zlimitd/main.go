// The command zlimitd serves the limits of a store to Envoy, and to services in every language.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	_ "time/tzdata" // zones of limits, in an image without them

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

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Getenv, os.Stdout, os.Stderr))
}

// run runs the command, and returns its exit code: 0, 1 for a failure, 2 for wrong usage, 3 for a check with warnings.
func run(ctx context.Context, args []string, env func(string) string, stdout, stderr io.Writer) int {
	logger := slog.New(slog.NewJSONHandler(stderr, nil))
	if len(args) > 0 && args[0] == "check" {
		return check(args[1:], env, stdout, stderr)
	}
	if len(args) > 0 && args[0] == "dashboard" {
		return dashboard(ctx, args[1:], env, stdout, stderr)
	}
	flags := flagSet(stderr)
	path := flags.String("config", "", "")
	if err := flags.Parse(args); err != nil || flags.NArg() > 0 {
		if err == nil {
			flags.Usage()
		}
		return 2
	}
	if err := serve(ctx, *path, env, logger); err != nil {
		logger.Error("zlimitd failed", "error", err)
		return 1
	}
	return 0
}

func flagSet(stderr io.Writer) *flag.FlagSet {
	flags := flag.NewFlagSet("zlimitd", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() { _, _ = io.WriteString(stderr, usage) }
	return flags
}

// serve serves until SIGTERM, an interrupt, or the end of the context. SIGHUP reads the config again.
func serve(ctx context.Context, path string, env func(string) string, logger *slog.Logger) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, os.Interrupt)
	defer stop()
	config, err := server.Load(path, env)
	if err != nil {
		return err
	}
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
			config, err := server.Load(path, env)
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

// check checks a config, and a config of Envoy beside it. It prints what Envoy would let pass without a word, and returns 3 if there is
// something.
func check(args []string, env func(string) string, stdout, stderr io.Writer) int {
	flags := flagSet(stderr)
	envoy := flags.String("envoy", "", "")
	if err := flags.Parse(args); err != nil || flags.NArg() > 1 {
		return 2
	}
	config, err := server.Load(flags.Arg(0), env)
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "zlimitd:", err)
		return 1
	}
	warnings := config.Warnings()
	if *envoy != "" {
		more, err := config.EnvoyWarnings(*envoy)
		if err != nil {
			_, _ = fmt.Fprintln(stderr, "zlimitd:", err)
			return 1
		}
		warnings = append(warnings, more...)
	}
	for _, w := range warnings {
		_, _ = fmt.Fprintln(stdout, "warning:", w)
	}
	if len(warnings) > 0 {
		return 3
	}
	_, _ = fmt.Fprintln(stdout, "ok")
	return 0
}

// dashboard serves the page alone, until a signal ends it.
func dashboard(ctx context.Context, args []string, env func(string) string, stdout, stderr io.Writer) int {
	flags := flagSet(stderr)
	d := server.Dashboard{Logger: slog.New(slog.NewJSONHandler(stderr, nil))}
	flags.BoolVar(&d.Demo, "demo", false, "")
	flags.StringVar(&d.Address, "listen", "", "")
	path := flags.String("config", "", "")
	if err := flags.Parse(args); err != nil || flags.NArg() > 0 {
		return 2
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, os.Interrupt)
	defer stop()
	d.Ready = func(link string) { _, _ = fmt.Fprintln(stdout, "Open this link. It works once:", link) }
	var err error
	if d.Config, err = server.Load(*path, env); err == nil {
		err = d.Run(ctx)
	}
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "zlimitd:", err)
		return 1
	}
	return 0
}
