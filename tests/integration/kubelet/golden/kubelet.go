package main

import (
	"context"
	"fmt"
	"time"

	cadvisorapi "github.com/google/cadvisor/info/v1"
	"go.opentelemetry.io/otel/trace/noop"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"
	remote "k8s.io/cri-client/pkg"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/credentialprovider"
	"k8s.io/kubernetes/pkg/features"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/images"
	"k8s.io/kubernetes/pkg/kubelet/images/pullmanager"
	"k8s.io/kubernetes/pkg/kubelet/kuberuntime"
	testingclock "k8s.io/utils/clock/testing"
)

const (
	// kubelet's imageBackOffPeriod and MaxImageBackOff.
	backOffInitial = 10 * time.Second
	backOffMax     = 300 * time.Second
	// How long a call to the scripted runtime may take before the client gives it up; it answers at once.
	requestTimeout = 2 * time.Minute
)

// gates are the feature gates that differ from this kubelet's defaults.
var gates = map[string]bool{string(features.KubeletEnsureSecretPulledImages): false}

// kubeRuntime builds kubelet's own runtime manager over its own CRI clients, connected to the socket.
func kubeRuntime(ctx context.Context, socket, stateDir string) (kubecontainer.ImageService, error) {
	if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(gates); err != nil {
		return nil, fmt.Errorf("set feature gates: %w", err)
	}
	tracing := noop.NewTracerProvider()
	endpoint := "unix://" + socket
	runtimeService, err := remote.NewRemoteRuntimeService(ctx, endpoint, requestTimeout, tracing, false)
	if err != nil {
		return nil, fmt.Errorf("connect the runtime client to %s: %w", endpoint, err)
	}
	imageService, err := remote.NewRemoteImageService(ctx, endpoint, requestTimeout, tracing, false)
	if err != nil {
		return nil, fmt.Errorf("connect the image client to %s: %w", endpoint, err)
	}
	manager, _, err := kuberuntime.NewKubeGenericRuntimeManager(
		ctx, &eventLog{},
		nil, nil, nil, // probe results
		stateDir, stateDir,
		&cadvisorapi.MachineInfo{}, nil, 110,
		kubecontainer.RealOS{}, nil, nil,
		flowcontrol.NewBackOff(backOffInitial, backOffMax),
		true, nil, 0, 0, // its own image manager, which is not the one under test
		"", nil, "", "",
		nil, false, metav1.Duration{},
		runtimeService, imageService,
		cm.NewFakeContainerManager(),
		nil, nil, false, "", nil, 0, kubeletconfig.NoneMemoryReservationPolicy,
		noPullingTimes{}, tracing, nil, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("build the runtime manager: %w", err)
	}
	return manager, nil
}

// node is what one case runs on: a fresh image manager with its own clock, back-off and events.
type node struct {
	manager images.ImageManager
	clock   *testingclock.FakeClock
	events  *eventLog
}

// newNode builds the real image manager on top of kubelet's runtime manager.
func newNode(service kubecontainer.ImageService, one *goldenCase, serialized bool) *node {
	fakeClock := testingclock.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	recorded := &eventLog{}
	limit := throttle{}
	if one.Throttle != nil {
		limit = *one.Throttle
	}
	manager := images.NewImageManager(
		kubecontainer.FilterEventRecorder(recorded),
		keyring(one.Credentials),
		service,
		&pullmanager.NoopImagePullManager{},
		flowcontrol.NewFakeBackOff(backOffInitial, backOffMax, fakeClock),
		serialized, nil, limit.QPS, limit.Burst,
		noPullingTimes{})
	return &node{manager: manager, clock: fakeClock, events: recorded}
}

// ensure makes one call for the pod's only container.
func (n *node) ensure(ctx context.Context, pod *v1.Pod, one *goldenCase) (imageRef, message string, err error) {
	object := &v1.ObjectReference{
		Kind: "Pod", APIVersion: "v1", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
		FieldPath: "spec.containers{main}",
	}
	return n.manager.EnsureImageExists(ctx, object, pod, one.Image, nil, sandboxConfig(pod), "", v1.PullPolicy(one.Policy))
}

// keyring is the node's config.json in kubelet's form.
func keyring(credentials []credential) credentialprovider.DockerKeyring {
	config := credentialprovider.DockerConfig{}
	for _, one := range credentials {
		config[one.Registry] = credentialprovider.DockerConfigEntry{Username: one.Username, Password: one.Password}
	}
	ring := &credentialprovider.BasicDockerKeyring{}
	ring.Add(nil, config)
	return ring
}

func podNamed(name string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: podNamespace, Name: name, UID: types.UID("uid-of-" + name)}}
}

// eventLog keeps events in the order in which the image manager emits them.
type eventLog struct{ recorded []recordedEvent }

var _ record.EventRecorderLogger = &eventLog{}

func (l *eventLog) take() []recordedEvent {
	taken := append([]recordedEvent{}, l.recorded...)
	l.recorded = nil
	return taken
}

// Event keeps one event.
func (l *eventLog) Event(_ runtime.Object, kind, reason, message string) {
	l.recorded = append(l.recorded, recordedEvent{Type: kind, Reason: reason, Message: message})
}

// Eventf is as Event, with a format.
func (l *eventLog) Eventf(object runtime.Object, kind, reason, format string, args ...any) {
	l.Event(object, kind, reason, fmt.Sprintf(format, args...))
}

// AnnotatedEventf is as Eventf; the image manager annotates nothing.
func (l *eventLog) AnnotatedEventf(object runtime.Object, _ map[string]string, kind, reason, format string, args ...any) {
	l.Eventf(object, kind, reason, format, args...)
}

// WithLogger returns the same log.
func (l *eventLog) WithLogger(klog.Logger) record.EventRecorderLogger { return l }

// noPullingTimes drops the start-up latencies, which no text shows.
type noPullingTimes struct{}

// RecordImageStartedPulling does nothing.
func (noPullingTimes) RecordImageStartedPulling(types.UID) {}

// RecordImageFinishedPulling does nothing.
func (noPullingTimes) RecordImageFinishedPulling(types.UID) {}
