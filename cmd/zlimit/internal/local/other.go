//go:build !linux

package local

import (
	"context"
	"errors"
	"io"
	"runtime"
	"time"
)

// Supported says why a deployment cannot run on this machine.
var Supported = errors.New("zlimit local runs on Linux, not on " + runtime.GOOS + "; a store in a file needs nothing: --store sqlite:limits.db")

// A State describes a running deployment.
type State struct {
	PID      int       `json:"pid"`
	Endpoint string    `json:"endpoint"`
	Table    string    `json:"table"`
	Engine   string    `json:"engine"`
	Since    time.Time `json:"since"`
}

// Store is the DSN of the table.
func (s *State) Store() string { return "" }

// Stands returns nothing here.
func (s *State) Stands(context.Context) string { return "" }

// Environment are the variables with which programs find the table.
func (s *State) Environment() []string { return nil }

// A Config says what [Serve] serves.
type Config struct {
	Dir, Engine, Table string
	Port               int
	Sweep              time.Duration
	Log                io.Writer
}

// LogPath returns the log of the deployment in a directory.
func LogPath(string) string { return "" }

// Find returns [Supported].
func Find(string) (*State, error) { return nil, Supported }

// Up returns [Supported].
func Up(context.Context, string, []string) (*State, bool, error) { return nil, false, Supported }

// Down returns [Supported].
func Down(context.Context, string) (*State, error) { return nil, Supported }

// DeleteData returns [Supported].
func DeleteData(string) error { return Supported }

// Serve returns [Supported].
func Serve(context.Context, Config) error { return Supported }
