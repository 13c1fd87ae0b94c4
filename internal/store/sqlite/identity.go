package sqlite

import (
	"context"
	"fmt"
	"os/user"
)

// Identity returns the name of the user of the operating system that the process runs as.
func (*Store) Identity(context.Context) (string, error) {
	u, err := user.Current()
	if err != nil {
		return "", fmt.Errorf("find the user: %w", err)
	}
	return u.Username, nil
}
