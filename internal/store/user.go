package store

import (
	"fmt"
	"os/user"
)

// CurrentUser returns the name of the process's user of the operating system. It is the identity behind a store that
// asks for none.
func CurrentUser() (string, error) {
	u, err := user.Current()
	if err != nil {
		return "", fmt.Errorf("find the user: %w", err)
	}
	return u.Username, nil
}
