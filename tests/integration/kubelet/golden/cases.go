package main

import (
	"time"

	"google.golang.org/grpc/codes"
)

// Tags mark what a reader of golden.json may have to treat apart; README.md says how.
const (
	tagNotThereAfterPull = "not-there-after-pull"
	tagOddPolicy         = "odd-policy"
	tagCodeBeyond16      = "code-beyond-16"
	tagThrottle          = "throttle"
	tagCredentials       = "credentials"
	tagSeveralPods       = "several-pods"
	tagKeepsBackOff      = "back-off-kept-after-success"
	tagUnicodeTables     = "unicode-tables"
)

const (
	always       = "Always"
	ifNotPresent = "IfNotPresent"
	never        = "Never"
)

// plannedCase is a case before it has been run.
type plannedCase struct {
	golden goldenCase
	calls  []plannedCall
}

// plannedCall is one call to come.
type plannedCall struct {
	pod     string
	advance time.Duration
}

// with adds a tag.
func (p plannedCase) with(tag string) plannedCase {
	p.golden.Tags = append(p.golden.Tags, tag)
	return p
}

// allCases lists everything, in the order in which it stands in golden.json.
func allCases() []plannedCase {
	groups := [][]plannedCase{
		policyCases(),
		codeCases(),
		textCases(),
		longTextCases(),
		prefixCases(),
		resultCases(),
		validNameCases(),
		invalidNameCases(),
		quoteSweepCases(),
		sequenceCases(),
		credentialCases(),
		throttleCases(),
	}
	var all []plannedCase
	for _, group := range groups {
		all = append(all, group...)
	}
	return all
}

func plan(name, image, policy string, answers script, calls []plannedCall) plannedCase {
	if answers.ImageStatus == nil {
		answers.ImageStatus = []statusAnswer{}
	}
	if answers.PullImage == nil {
		answers.PullImage = []pullAnswer{}
	}
	return plannedCase{
		golden: goldenCase{Name: name, Tags: []string{}, Image: image, Policy: policy, Script: answers},
		calls:  calls,
	}
}

func statuses(answers ...statusAnswer) []statusAnswer { return answers }
func pulls(answers ...pullAnswer) []pullAnswer        { return answers }

var absent = statusAnswer{}

func present(id string, size uint64) statusAnswer {
	return statusAnswer{Image: &runtimeImage{ID: id, Size: size}}
}

func statusFails(code codes.Code, message string) statusAnswer {
	return statusAnswer{Error: &grpcError{Code: uint32(code), Message: message}}
}

func pulled(imageRef string) pullAnswer { return pullAnswer{ImageRef: imageRef} }

func pullFails(code codes.Code, message string) pullAnswer {
	return pullAnswer{Error: &grpcError{Code: uint32(code), Message: message}}
}

// An image as a runtime would list it.
const (
	imageID   = "sha256:5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef"
	imageSize = 72_345_678
)

var there = present(imageID, imageSize)

const onlyPod = "web-0"

// callsAfter makes one call of the only pod after each advance of the clock.
func callsAfter(advances ...time.Duration) []plannedCall {
	var calls []plannedCall
	for _, advance := range advances {
		calls = append(calls, plannedCall{pod: onlyPod, advance: advance})
	}
	return calls
}

// once is a single call.
func once() []plannedCall { return callsAfter(0) }

// twice asks again a second later.
func twice() []plannedCall { return callsAfter(0, time.Second) }

// intoBackOff fails, asks inside the back-off of 10 s, and asks again when it is over.
func intoBackOff() []plannedCall { return callsAfter(0, 5*time.Second, 6*time.Second) }

// allCodes are the gRPC codes of an error.
func allCodes() []codes.Code {
	var all []codes.Code
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		all = append(all, code)
	}
	return all
}
