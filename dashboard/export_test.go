package dashboard

// Disarmed is [disarmed] for tests.
var Disarmed = disarmed
