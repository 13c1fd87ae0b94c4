package page

// Disarmed is [disarmed] for tests.
var Disarmed = disarmed
