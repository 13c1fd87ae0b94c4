package cli

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/spf13/cobra"

	"github.com/zlimit/zlimit-go/cmd/zlimit/internal/cli/shell"
)

// dashboardCommand starts the page of zlimitd, which is a module of its own.
func dashboardCommand(sh *shell.Shell) *cobra.Command {
	var listen string
	cmd := &cobra.Command{
		Use:   "dashboard",
		Short: "Serve a page about the store, on this machine",
		Long: `Serves a page about a namespace of the store, on the loopback: who is rejected
and until when, usage and budgets, entities, and a form that changes limits. The
command prints a link that signs in once, and serves until it is interrupted.

zlimitd serves the page, and must be in PATH:

  go install github.com/zlimit/zlimit-go/server/cmd/zlimitd@latest`,
		Example: `  zlimit dashboard --store sqlite:limits.db
  zlimit dashboard --store dynamodb:limits --listen 127.0.0.1:9000`,
		Args: shell.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			dsn, err := sh.Lasting()
			if err != nil {
				return err
			}
			if err := sh.CheckFile(dsn); err != nil {
				return err
			}
			program, err := exec.LookPath("zlimitd")
			if err != nil {
				return errors.New("zlimitd is not in PATH, and serves the page: go install github.com/zlimit/zlimit-go/server/cmd/zlimitd@latest")
			}
			server := exec.CommandContext(cmd.Context(), program, "dashboard", "-listen", listen)
			server.Env = append(os.Environ(), "ZLIMITD_STORE="+dsn, "ZLIMITD_NAMESPACE="+sh.Namespace)
			server.Stdout, server.Stderr = sh.Stdout, sh.Stderr
			server.Cancel = func() error { return server.Process.Signal(os.Interrupt) }
			server.WaitDelay = 10 * time.Second
			if err := server.Run(); err != nil && cmd.Context().Err() == nil {
				return fmt.Errorf("%s: %w", program, err)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:8082", "`address` of the page")
	return cmd
}
