package server

// Warnings returns what a config does that its author may not expect, in order.
func (c *Config) Warnings() []string { return c.RateLimit.Warnings() }
