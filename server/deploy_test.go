package server

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/template"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/zlimit"
)

// What the manifests use of the API of Kubernetes and of the Compose specification. A field that is not here is an error with its line, such
// as a misspelt one.
type (
	objectMeta struct {
		Name   string
		Labels map[string]string
	}
	object[S any] struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string
		Metadata   objectMeta
		Spec       S
		Data       map[string]string
	}
	selector struct {
		MatchLabels map[string]string `yaml:"matchLabels"`
	}
	probe struct {
		HTTPGet struct{ Path, Port string } `yaml:"httpGet"`
		Period  int                         `yaml:"periodSeconds"`
	}
	containerPort struct {
		Name          string
		ContainerPort int `yaml:"containerPort"`
	}
	container struct {
		Name, Image     string
		Args            []string
		Ports           []containerPort
		Readiness       probe `yaml:"readinessProbe"`
		Liveness        probe `yaml:"livenessProbe"`
		SecurityContext struct {
			Escalation   *bool `yaml:"allowPrivilegeEscalation"`
			ReadOnly     bool  `yaml:"readOnlyRootFilesystem"`
			Capabilities struct{ Drop []string }
		} `yaml:"securityContext"`
		Resources struct{ Requests, Limits map[string]string }
		Mounts    []struct {
			Name     string
			Path     string `yaml:"mountPath"`
			ReadOnly bool   `yaml:"readOnly"`
		} `yaml:"volumeMounts"`
	}
	deployment struct {
		Replicas int
		Selector selector
		Template struct {
			Metadata objectMeta
			Spec     struct {
				ServiceAccount  string `yaml:"serviceAccountName"`
				Grace           int    `yaml:"terminationGracePeriodSeconds"`
				SecurityContext struct {
					NonRoot bool                  `yaml:"runAsNonRoot"`
					User    int                   `yaml:"runAsUser"`
					Group   int                   `yaml:"runAsGroup"`
					FSGroup int                   `yaml:"fsGroup"`
					Seccomp struct{ Type string } `yaml:"seccompProfile"`
				} `yaml:"securityContext"`
				Containers []container
				Volumes    []struct {
					Name      string
					ConfigMap struct{ Name string } `yaml:"configMap"`
					Secret    struct {
						Name string `yaml:"secretName"`
						Mode int    `yaml:"defaultMode"`
					}
				}
			}
		}
	}
	service struct {
		ClusterIP string `yaml:"clusterIP"`
		Selector  map[string]string
		Ports     []struct {
			Name     string
			Port     int
			Target   string `yaml:"targetPort"`
			Protocol string `yaml:"appProtocol"`
		}
	}
	budget struct {
		MaxUnavailable int `yaml:"maxUnavailable"`
		Selector       selector
	}
	compose struct {
		Services map[string]struct {
			Image    string
			Command  []string
			ReadOnly bool `yaml:"read_only"`
			User     string
			Drop     []string `yaml:"cap_drop"`
			Options  []string `yaml:"security_opt"`
			Grace    string   `yaml:"stop_grace_period"`
			Ports    []string
			Volumes  []string
		}
		Volumes map[string]struct{}
	}
)

// decodeStrictly reads the next document of YAML, and refuses fields that it does not know.
func decodeStrictly(t *testing.T, text string, into any) {
	t.Helper()
	d := yaml.NewDecoder(strings.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(into); err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
}

// TestKubernetes decodes the manifests strictly, loads their config, and compares its ports, paths and times with the ones of the containers.
func TestKubernetes(t *testing.T) {
	text := check.Call(os.ReadFile("deploy/kubernetes.yaml")).Must(t, "os.ReadFile()")
	documents := strings.Split(string(text), "\n---\n")
	if len(documents) != 4 {
		t.Fatalf("there are %d documents, want 4", len(documents))
	}
	var config object[struct{}]
	var deploy object[deployment]
	var front object[service]
	var disruption object[budget]
	for i, into := range []any{&config, &deploy, &front, &disruption} {
		decodeStrictly(t, documents[i], into)
	}
	kinds := []string{config.APIVersion, config.Kind, deploy.APIVersion, deploy.Kind, front.APIVersion, front.Kind, disruption.APIVersion, disruption.Kind}
	if want := []string{"v1", "ConfigMap", "apps/v1", "Deployment", "v1", "Service", "policy/v1", "PodDisruptionBudget"}; !slices.Equal(kinds, want) {
		t.Errorf("kinds = %v, want %v", kinds, want)
	}
	files := map[string]string{"first": strings.Repeat("x", 32)}
	for name, content := range config.Data {
		files[name] = strings.ReplaceAll(content, "/run/secrets/zlimitd/", "")
	}
	c := check.Call(Load(filepath.Join(directory(t, files), "zlimitd.yaml"), noEnv)).Must(t, "Load()")
	spec := deploy.Spec.Template.Spec
	if drain := int((c.Drain.Delay + c.Drain.Timeout).Seconds()); spec.Grace <= drain {
		t.Errorf("terminationGracePeriodSeconds = %d, want more than a drain takes, %d", spec.Grace, drain)
	}
	of := spec.Containers[0]
	if ports := of.Ports; len(ports) != 2 || ports[0].ContainerPort != 8080 || ports[1].ContainerPort != 8081 || portOf(c.HTTP) != "8080" || portOf(c.GRPC) != "8081" {
		t.Errorf("ports = %v, config has %s and %s", ports, c.HTTP, c.GRPC)
	}
	for _, port := range front.Spec.Ports {
		if !slices.Contains(of.Ports, containerPort{port.Target, port.Port}) {
			t.Errorf("the service has the port %+v, which the container has not", port)
		}
	}
	if !slices.Equal(of.Args, []string{"-config", "/etc/zlimitd/zlimitd.yaml"}) {
		t.Errorf("args = %v", of.Args)
	}
	if of.Readiness.HTTPGet.Path != "/readyz" || of.Liveness.HTTPGet.Path != "/healthz" {
		t.Errorf("the probes ask %s and %s, want /readyz and /healthz", of.Readiness.HTTPGet.Path, of.Liveness.HTTPGet.Path)
	}
	for _, mount := range of.Mounts {
		if !strings.Contains(documents[1], "{name: "+mount.Name+", ") || !mount.ReadOnly {
			t.Errorf("the mount %+v has no volume, or can be written", mount)
		}
	}
	if of.SecurityContext.Escalation == nil || *of.SecurityContext.Escalation || !of.SecurityContext.ReadOnly || !spec.SecurityContext.NonRoot || spec.SecurityContext.User != 65532 {
		t.Errorf("the container may more than it needs: %+v, %+v", of.SecurityContext, spec.SecurityContext)
	}
	labels := deploy.Spec.Template.Metadata.Labels
	for name, want := range map[string]map[string]string{"deployment": deploy.Spec.Selector.MatchLabels, "service": front.Spec.Selector, "budget": disruption.Spec.Selector.MatchLabels} {
		if !maps.Equal(labels, want) {
			t.Errorf("the %s selects %v, want the pods %v", name, want, labels)
		}
	}
}

// TestChart renders the Helm chart with its own values: it has the objects of the manifests, and a checksum beside them. The chart keeps to
// what Go's templates have, and to two functions of Helm.
func TestChart(t *testing.T) {
	read := func(path string) string {
		text := check.Call(os.ReadFile(path)).Must(t, "os.ReadFile()")
		return string(text)
	}
	var chart struct {
		APIVersion                       string `yaml:"apiVersion"`
		Name, Description, Type, Version string
		AppVersion                       string `yaml:"appVersion"`
	}
	decodeStrictly(t, read("deploy/chart/Chart.yaml"), &chart)
	if chart.APIVersion != "v2" || chart.Version != zlimit.Version || chart.AppVersion != zlimit.Version {
		t.Errorf("the chart is %+v, want the version %s", chart, zlimit.Version)
	}
	source := check.Call(template.New("").Option("missingkey=error").Funcs(template.FuncMap{
		"toJson":    func(v any) (string, error) { text, err := json.Marshal(v); return string(text), err },
		"sha256sum": func(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) },
	}).Parse(read("deploy/chart/templates/zlimitd.yaml"))).Must(t, "Parse()")
	decode := func(text string) (documents []map[string]any) {
		for d := yaml.NewDecoder(strings.NewReader(text)); ; {
			var document map[string]any
			err := d.Decode(&document)
			if errors.Is(err, io.EOF) {
				return documents
			}
			check.Fatal(t, "Decode()", err)
			documents = append(documents, document)
		}
	}
	render := func(name string, change func(values map[string]any)) []map[string]any {
		var values map[string]any
		decodeStrictly(t, read("deploy/chart/values.yaml"), &values)
		change(values)
		var out strings.Builder
		check.Fatal(t, "Execute()", source.Execute(&out, map[string]any{"Values": values, "Release": map[string]string{"Name": name}}))
		return decode(out.String())
	}
	checksum := func(deployment map[string]any) any {
		metadata := deployment["spec"].(map[string]any)["template"].(map[string]any)["metadata"].(map[string]any)
		sum := metadata["annotations"]
		delete(metadata, "annotations")
		return sum
	}
	got := render("zlimitd", func(map[string]any) {})
	before := checksum(got[1])
	if diff := cmp.Diff(decode(read("deploy/kubernetes.yaml")), got); diff != "" {
		t.Errorf("the chart differs from the manifests (-manifests +chart):\n%s", diff)
	}
	other := render("eu", func(values map[string]any) {
		values["replicas"], values["image"] = 5, "registry/zlimitd:1"
		values["files"].(map[string]any)["limits.yaml"] = "domain: llm\n"
	})
	if cmp.Equal(checksum(other[1]), before) {
		t.Error("another file leaves the pods as they are")
	}
	if text := fmt.Sprint(other); !strings.Contains(text, "replicas:5") || !strings.Contains(text, "image:registry/zlimitd:1") || strings.Count(text, "app:eu") != 5 {
		t.Errorf("with other values the chart is %s", text)
	}
}

// TestCompose decodes the file strictly, and compares it with the image and the drain.
func TestCompose(t *testing.T) {
	text := check.Call(os.ReadFile("deploy/compose.yaml")).Must(t, "os.ReadFile()")
	var c compose
	decodeStrictly(t, string(text), &c)
	s := c.Services["zlimitd"]
	if !s.ReadOnly || s.User != "65532:65532" || !slices.Equal(s.Drop, []string{"ALL"}) || !slices.Equal(s.Command, []string{"-config", "/etc/zlimitd/zlimitd.yaml"}) {
		t.Errorf("the service is %+v", s)
	}
	drain := check.Call(Load("", noEnv)).Must(t, "Load()")
	if grace, err := time.ParseDuration(s.Grace); err != nil || grace <= drain.Drain.Delay+drain.Drain.Timeout {
		t.Errorf("stop_grace_period = %s, %v, want more than a drain takes", s.Grace, err)
	}
	for _, port := range s.Ports {
		if !strings.HasPrefix(port, "127.0.0.1:") {
			t.Errorf("the port %s is open to others", port)
		}
	}
	for _, volume := range s.Volumes {
		name, _, _ := strings.Cut(volume, ":")
		if _, ok := c.Volumes[name]; !ok && !strings.HasPrefix(name, "./") {
			t.Errorf("the volume %s is not declared", name)
		}
	}
}
