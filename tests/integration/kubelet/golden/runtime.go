package main

import (
	"context"
	"fmt"
	"net"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// scriptedRuntime is a CRI server that answers ImageStatus and PullImage from a script.
type scriptedRuntime struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	runtimeapi.UnimplementedImageServiceServer

	mutex sync.Mutex
	state scriptState
}

// scriptState is how far one case has got.
type scriptState struct {
	script      script
	statusCalls int
	pullCalls   int
	pulled      int
	// What ImageStatus has said so far, by the number of successful pulls before it.
	statusByPulls map[int][]statusAnswer
	calls         []string
	pullUsers     []string
	images        map[string]bool
}

// serve listens on a unix socket and answers until the process ends.
func (r *scriptedRuntime) serve(socket string) error {
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", socket, err)
	}
	server := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(server, r)
	runtimeapi.RegisterImageServiceServer(server, r)
	go func() {
		if err := server.Serve(listener); err != nil {
			panic(fmt.Sprintf("the scripted runtime stopped: %v", err))
		}
	}()
	return nil
}

// load starts a new case.
func (r *scriptedRuntime) load(next script) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.state = scriptState{script: next, statusByPulls: map[int][]statusAnswer{}, images: map[string]bool{}}
}

// takeCalls returns the calls since the last one, and the user names that PullImage carried.
func (r *scriptedRuntime) takeCalls() (calls, users []string) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	calls, users = append([]string{}, r.state.calls...), r.state.pullUsers
	r.state.calls, r.state.pullUsers = nil, nil
	return calls, users
}

// Version satisfies the checks that kubelet makes on a runtime when it starts.
func (r *scriptedRuntime) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{Version: "0.1.0", RuntimeName: "scripted", RuntimeVersion: "1.0.0", RuntimeApiVersion: "v1"}, nil
}

// ImageFsInfo is the call with which the image client validates its connection.
func (r *scriptedRuntime) ImageFsInfo(context.Context, *runtimeapi.ImageFsInfoRequest) (*runtimeapi.ImageFsInfoResponse, error) {
	return &runtimeapi.ImageFsInfoResponse{}, nil
}

// ImageStatus gives the next scripted answer.
func (r *scriptedRuntime) ImageStatus(_ context.Context, request *runtimeapi.ImageStatusRequest) (*runtimeapi.ImageStatusResponse, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	state := &r.state
	state.calls = append(state.calls, "ImageStatus")
	state.images[request.GetImage().GetImage()] = true
	answer := answerAt(state.script.ImageStatus, state.statusCalls, request.GetImage().GetImage())
	state.statusCalls++
	state.statusByPulls[state.pulled] = append(state.statusByPulls[state.pulled], answer)
	if answer.Error != nil {
		return nil, answer.Error.asStatus()
	}
	if answer.Image == nil {
		return &runtimeapi.ImageStatusResponse{}, nil
	}
	return &runtimeapi.ImageStatusResponse{Image: &runtimeapi.Image{Id: answer.Image.ID, Size: answer.Image.Size}}, nil
}

// PullImage gives the next scripted answer.
func (r *scriptedRuntime) PullImage(_ context.Context, request *runtimeapi.PullImageRequest) (*runtimeapi.PullImageResponse, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	state := &r.state
	state.calls = append(state.calls, "PullImage")
	state.images[request.GetImage().GetImage()] = true
	if request.GetAuth() != nil {
		state.pullUsers = append(state.pullUsers, request.GetAuth().GetUsername())
	}
	answer := answerAt(state.script.PullImage, state.pullCalls, request.GetImage().GetImage())
	state.pullCalls++
	if answer.Error != nil {
		return nil, answer.Error.asStatus()
	}
	state.pulled++
	return &runtimeapi.PullImageResponse{ImageRef: answer.ImageRef}, nil
}

func (e *grpcError) asStatus() error {
	return status.Error(codes.Code(e.Code), e.Message)
}

// answerAt picks answer `index`, or the last one. A call that the case has not scripted is a mistake in the case.
func answerAt[T any](answers []T, index int, image string) T {
	if len(answers) == 0 {
		panic(fmt.Sprintf("the script has no answer for image %q", image))
	}
	return answers[min(index, len(answers)-1)]
}

// runtimeImage is the one image string that the runtime was asked for, or "".
func (s *scriptState) runtimeImage() (string, error) {
	if len(s.images) > 1 {
		return "", fmt.Errorf("the runtime was asked for several images: %v", s.images)
	}
	for image := range s.images {
		return image, nil
	}
	return "", nil
}

// statusByState turns the answers given in order into answers by the number of successful pulls.
// It is nil when two answers of the same state differ: then only the order tells.
func (s *scriptState) statusByState() []statusAnswer {
	if scripted := s.script.ImageStatus; len(scripted) < 2 {
		return scripted
	}
	var byState []statusAnswer
	for pulls := s.pulled; pulls >= 0; pulls-- {
		answers := s.statusByPulls[pulls]
		for _, answer := range answers {
			if !sameAnswer(answer, answers[0]) {
				return nil
			}
		}
		switch {
		case len(answers) > 0:
			byState = append([]statusAnswer{answers[0]}, byState...)
		case len(byState) > 0:
			// Nobody looked in this state (policy Always before its pull): as it is afterwards.
			byState = append([]statusAnswer{byState[0]}, byState...)
		}
	}
	return byState
}

// notThereAfterPull tells whether the runtime claimed a pull and then could not show the image.
func (s *scriptState) notThereAfterPull() bool {
	for pulls, answers := range s.statusByPulls {
		for _, answer := range answers {
			if usable := answer.Image != nil && answer.Image.ID != "" && answer.Image.Size > 0; pulls > 0 && !usable {
				return true
			}
		}
	}
	return false
}

func sameAnswer(one, other statusAnswer) bool {
	left, leftErr := one.MarshalJSON()
	right, rightErr := other.MarshalJSON()
	return leftErr == nil && rightErr == nil && string(left) == string(right)
}
