package wire

import (
	"fmt"
	"os"
	"reflect"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// A Constant is an [dynamodb.EndpointResolverV2] that gives all calls the same endpoint.
type Constant interface {
	dynamodb.EndpointResolverV2
	Constant()
}

// A rule decides which values a field of the options may hold.
type rule uint8

const (
	asReference rule = iota // the value of the reference client; also the rule of a field that is not listed
	honored                 // anything: a [Path] honours it, or it does not matter for the calls of a Path
	sameType                // a value, or values, of the types that the reference client has
	zero                    // nothing
)

// rules has a rule for each field of [dynamodb.Options]. A field added by a new version of the SDK has none, so a
// client that sets it keeps its calls.
var rules = map[string]rule{
	"AccountIDEndpointMode":           honored, // by the prototype
	"AppID":                           honored, // by the prototype
	"BaseEndpoint":                    honored, // by the prototype
	"Credentials":                     honored,
	"DefaultsMode":                    honored, // decides on the HTTP client and the retryer
	"DisableClockSkewCorrection":      honored,
	"DisableValidateResponseChecksum": honored,
	"EndpointOptions":                 honored, // by the prototype
	"HTTPClient":                      honored,
	"IdempotencyTokenProvider":        honored, // no call of a Path has a token
	"Logger":                          honored, // nothing is logged without a ClientLogMode
	"Region":                          honored,
	"RetryMaxAttempts":                honored, // calls bring their own retryer
	"RetryMode":                       honored,
	"Retryer":                         honored,
	"RuntimeEnvironment":              honored,
	"resolvedDefaultsMode":            honored,

	"AuthSchemeResolver": sameType,
	"AuthSchemes":        sameType,
	"EndpointResolverV2": sameType,
	"HTTPSignerV4":       sameType,
	"MeterProvider":      sameType, // the one that measures nothing
	"Protocol":           sameType,
	"TracerProvider":     sameType, // the one that traces nothing

	"APIOptions":               zero,
	"AuthSchemePreference":     zero,
	"ClientLogMode":            zero,
	"EnableAcceptEncodingGzip": zero,
	"EndpointResolver":         zero,
}

// unsuited returns why the calls of a client with these options are left to the SDK, "" when they need not be.
func unsuited(options dynamodb.Options) string {
	if options.Credentials == nil {
		return "no credentials"
	}
	if os.Getenv("AWS_NEW_RETRIES_2026") == "true" {
		return "the SDK's new way of retrying"
	}
	reference := reflect.ValueOf(dynamodb.New(dynamodb.Options{
		Region: options.Region, Credentials: options.Credentials, EndpointDiscovery: options.EndpointDiscovery,
	}).Options())
	actual := reflect.ValueOf(options)
	for i := range actual.NumField() {
		name := actual.Type().Field(i).Name
		if !suits(name, actual.Field(i), reference.Field(i)) {
			return "the option " + name
		}
	}
	return ""
}

// suits reports whether the value of a field of the options is allowed.
func suits(name string, actual, reference reflect.Value) bool {
	switch name {
	case "EndpointDiscovery":
		return actual.Interface().(dynamodb.EndpointDiscoveryOptions).EnableEndpointDiscovery != aws.EndpointDiscoveryEnabled
	case "Interceptors": // a struct of lists, which may be empty without being nil
		for i := range actual.NumField() {
			if actual.Field(i).Len() > 0 {
				return false
			}
		}
		return true
	case "EndpointResolverV2":
		if _, ok := actual.Interface().(Constant); ok {
			return true
		}
	}
	switch rules[name] {
	case honored:
		return true
	case zero:
		return actual.IsZero() || actual.Kind() == reflect.Slice && actual.Len() == 0
	case sameType:
		return typesIn(actual) == typesIn(reference)
	default:
		return actual.CanInterface() && reflect.DeepEqual(actual.Interface(), reference.Interface())
	}
}

// typesIn returns the types of the values in a field: the type of an interface's value, or the types of the authentication schemes and of
// their signers.
func typesIn(field reflect.Value) string {
	schemes, ok := field.Interface().([]smithyhttp.AuthScheme)
	if !ok {
		return fmt.Sprintf("%T", field.Interface())
	}
	types := ""
	for _, scheme := range schemes {
		signer := scheme.Signer()
		types += fmt.Sprintf("%T %T", scheme, signer)
		// The SDK's adapter, which is internal to it, keeps the client's first signer.
		if v := reflect.Indirect(reflect.ValueOf(signer)); v.Kind() == reflect.Struct {
			if inner := v.FieldByName("Signer"); inner.IsValid() && inner.CanInterface() {
				types += fmt.Sprintf(" %T", inner.Interface())
			}
		}
	}
	return types
}
