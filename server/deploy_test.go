package server

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// TestKubernetes loads the config of the manifests, and compares its ports, paths and times with those of the containers.
func TestKubernetes(t *testing.T) {
	text, err := os.ReadFile("deploy/kubernetes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	objects := map[string]map[string]any{}
	for d := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var object map[string]any
		if err := d.Decode(&object); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		kind := object["kind"].(string)
		kinds = append(kinds, kind)
		objects[kind] = object
	}
	if want := []string{"ConfigMap", "Deployment", "Service", "PodDisruptionBudget"}; !slices.Equal(kinds, want) {
		t.Fatalf("kinds = %v, want %v", kinds, want)
	}
	files := map[string]string{"first": strings.Repeat("x", 32)}
	for name, content := range objects["ConfigMap"]["data"].(map[string]any) {
		files[name] = strings.ReplaceAll(content.(string), "/run/secrets/zlimitd/", "")
	}
	c, err := Load(filepath.Join(directory(t, files), "zlimitd.yaml"), noEnv)
	if err != nil {
		t.Fatal(err)
	}
	var pod struct {
		Spec struct {
			Template struct {
				Spec struct {
					Grace      int `yaml:"terminationGracePeriodSeconds"`
					Containers []struct {
						Args  []string
						Ports []struct {
							Name string
							Port int `yaml:"containerPort"`
						}
					}
				}
			}
		}
	}
	deployment, err := yaml.Marshal(objects["Deployment"])
	if err == nil {
		err = yaml.Unmarshal(deployment, &pod)
	}
	if err != nil {
		t.Fatal(err)
	}
	spec := pod.Spec.Template.Spec
	if drain := int((c.Drain.Delay + c.Drain.Timeout).Seconds()); spec.Grace <= drain {
		t.Errorf("terminationGracePeriodSeconds = %d, want more than a drain takes, %d", spec.Grace, drain)
	}
	container := spec.Containers[0]
	if ports := container.Ports; len(ports) != 2 || ports[0].Port != 8080 || ports[1].Port != 8081 || portOf(c.HTTP) != "8080" || portOf(c.GRPC) != "8081" {
		t.Errorf("ports = %v, config has %s and %s", ports, c.HTTP, c.GRPC)
	}
	if !slices.Equal(container.Args, []string{"-config", "/etc/zlimitd/zlimitd.yaml"}) {
		t.Errorf("args = %v", container.Args)
	}
}
