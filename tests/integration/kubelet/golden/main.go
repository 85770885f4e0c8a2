// Command golden writes golden.json: what kubelet's own image manager says when a scripted CRI runtime answers it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime/debug"
	"time"
	"unicode"

	"github.com/go-logr/logr"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
)

const podNamespace = "default"

func main() {
	if err := run(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "golden:", err)
		os.Exit(1)
	}
}

// run drives every case through both pullers and prints the file.
func run(to io.Writer) error {
	silence()
	scratch, err := os.MkdirTemp("", "golden")
	if err != nil {
		return fmt.Errorf("make a scratch folder: %w", err)
	}
	defer os.RemoveAll(scratch)

	cri := &scriptedRuntime{}
	socket := filepath.Join(scratch, "cri.sock")
	if err := cri.serve(socket); err != nil {
		return err
	}
	ctx := klog.NewContext(context.Background(), logr.Discard())
	service, err := kubeRuntime(ctx, socket, scratch)
	if err != nil {
		return err
	}
	file := goldenFile{Source: source()}
	seen := map[string]bool{}
	for _, planned := range allCases() {
		if seen[planned.golden.Name] {
			return fmt.Errorf("two cases are named %s", planned.golden.Name)
		}
		seen[planned.golden.Name] = true
		done, err := drive(ctx, cri, service, planned)
		if err != nil {
			return fmt.Errorf("case %s: %w", planned.golden.Name, err)
		}
		file.Cases = append(file.Cases, done)
	}
	return file.write(to)
}

// drive runs a case with the serial and with the parallel puller: texts and calls must not depend on it.
func drive(ctx context.Context, cri *scriptedRuntime, service kubecontainer.ImageService, planned plannedCase) (goldenCase, error) {
	serial, err := driveOnce(ctx, cri, service, planned, true)
	if err != nil {
		return goldenCase{}, err
	}
	parallel, err := driveOnce(ctx, cri, service, planned, false)
	if err != nil {
		return goldenCase{}, err
	}
	if !reflect.DeepEqual(serial, parallel) {
		return goldenCase{}, errors.New("the serial and the parallel puller differ")
	}
	return serial, nil
}

func driveOnce(ctx context.Context, cri *scriptedRuntime, service kubecontainer.ImageService, planned plannedCase, serialized bool) (goldenCase, error) {
	done := planned.golden
	cri.load(done.Script)
	on := newNode(service, &done, serialized)
	for _, call := range planned.calls {
		on.clock.Step(call.advance)
		imageRef, message, err := on.ensure(ctx, podNamed(call.pod), &done)
		outcome := callOutcome{
			Pod: podNamespace + "/" + call.pod, AdvanceMS: call.advance.Milliseconds(),
			Message: message, ImageRef: imageRef, Events: maskDurations(on.events.take()),
		}
		if err != nil {
			outcome.Reason = err.Error()
		}
		outcome.CRICalls, outcome.PullUsers = cri.takeCalls()
		done.Calls = append(done.Calls, outcome)
	}
	var err error
	if done.RuntimeImage, err = cri.state.runtimeImage(); err != nil {
		return goldenCase{}, err
	}
	done.Script.ImageStatusAfterPulls = cri.state.statusByState()
	if cri.state.notThereAfterPull() {
		done.Tags = append(append([]string{}, done.Tags...), tagNotThereAfterPull)
	}
	return done, nil
}

// The durations stand behind the image's name, which may itself contain anything: match from the end.
var pulledDurations = regexp.MustCompile(`(?s)^(Successfully pulled image ".*" in )\S+( \()\S+( including waiting\)\. Image size: \d+ bytes\.)$`)

// maskDurations puts <d> in the place of both durations of a Pulled event.
func maskDurations(events []recordedEvent) []recordedEvent {
	for i := range events {
		if events[i].Reason == "Pulled" {
			events[i].Message = pulledDurations.ReplaceAllString(events[i].Message, "${1}<d>${2}<d>${3}")
		}
	}
	return events
}

// sandboxConfig carries only what the credential lookup reads.
func sandboxConfig(pod *v1.Pod) *runtimeapi.PodSandboxConfig {
	return &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{
		Name: pod.Name, Namespace: pod.Namespace, Uid: string(pod.UID),
	}}
}

// source reads the versions from the build itself, so that they cannot be out of date.
func source() sourceInfo {
	versions := map[string]string{}
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, module := range build.Deps {
			if module.Replace != nil {
				module = module.Replace
			}
			versions[module.Path] = module.Version
		}
	}
	return sourceInfo{
		Kubernetes: versions["k8s.io/kubernetes"], CRIClient: versions["k8s.io/cri-client"], GRPC: versions["google.golang.org/grpc"],
		Unicode: unicode.Version, FeatureGates: gates,
		BackOffInitMS: int64(backOffInitial / time.Millisecond), BackOffMaxMS: int64(backOffMax / time.Millisecond),
	}
}

// silence drops kubelet's log: its texts are events, returned messages and reasons.
func silence() {
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	_ = flags.Set("logtostderr", "false")
	_ = flags.Set("stderrthreshold", "FATAL")
	klog.SetOutput(io.Discard)
}
