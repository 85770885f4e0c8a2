package main

import (
	"time"

	"google.golang.org/grpc/codes"
)

// sequenceCases are what several calls on one node leave to each other.
func sequenceCases() []plannedCase {
	const image = "registry.example/team/app:v1"
	failing := script{ImageStatus: statuses(absent), PullImage: pulls(
		pullFails(codes.NotFound, "first cause"), pullFails(codes.Unknown, "second cause"),
		pullFails(codes.Unknown, "RegistryUnavailable: third cause"), pullFails(codes.Unknown, ""))}
	return []plannedCase{
		plan("sequence/steps-to-the-cap", image, always,
			script{PullImage: pulls(pullFails(codes.NotFound, "manifest unknown"))}, stepsToTheCap()),
		plan("sequence/the-cause-is-the-last-one", image, ifNotPresent, failing,
			callsAfter(0, time.Second, 9*time.Second, time.Second, 19*time.Second, time.Second, 39*time.Second, time.Second)),
		plan("sequence/forgotten-after-600s", image, always,
			script{PullImage: pulls(pullFails(codes.NotFound, "manifest unknown"))},
			callsAfter(0, 10*time.Second, 601*time.Second, 10*time.Second-time.Millisecond, time.Millisecond)),
		plan("sequence/kept-at-600s", image, always,
			script{PullImage: pulls(pullFails(codes.NotFound, "manifest unknown"))},
			callsAfter(0, 600*time.Second, 10*time.Second, 10*time.Second)),
		plan("sequence/pulled-in-the-end", image, ifNotPresent,
			script{ImageStatus: statuses(absent, absent, absent, there), PullImage: pulls(pullFails(codes.NotFound, "manifest unknown"), pulled(imageID))},
			callsAfter(0, time.Second, 9*time.Second, time.Second, time.Second)),
		plan("sequence/appears-during-back-off", image, ifNotPresent,
			script{ImageStatus: statuses(absent, absent, there), PullImage: pulls(pullFails(codes.NotFound, "manifest unknown"))},
			callsAfter(0, time.Second, time.Second)),
		plan("sequence/inspect-error-during-back-off", image, ifNotPresent,
			script{ImageStatus: statuses(absent, statusFails(codes.Unavailable, "store is closed"), absent), PullImage: pulls(pullFails(codes.NotFound, "manifest unknown"))},
			callsAfter(0, time.Second, time.Second)),
		plan("sequence/removed-after-pull", image, ifNotPresent,
			script{ImageStatus: statuses(absent, there, there, absent, there), PullImage: pulls(pulled(imageID))},
			callsAfter(0, time.Second, time.Second)),
		plan("sequence/never-until-present", image, never,
			script{ImageStatus: statuses(absent, absent, there)}, callsAfter(0, time.Second, time.Second)),
		plan("sequence/always-pulls-each-time", image, always,
			script{ImageStatus: statuses(there), PullImage: pulls(pulled(imageID))}, callsAfter(0, time.Second, time.Second)),
		plan("sequence/back-off-kept-after-success", image, always,
			script{ImageStatus: statuses(there), PullImage: pulls(pullFails(codes.NotFound, "gone"), pulled(imageID), pullFails(codes.NotFound, "gone again"))},
			callsAfter(0, 10*time.Second, time.Second, 15*time.Second, 5*time.Second)).with(tagKeepsBackOff),
		plan("sequence/a-pod-each", image, ifNotPresent,
			script{ImageStatus: statuses(absent), PullImage: pulls(pullFails(codes.NotFound, "for the first"), pullFails(codes.Unknown, "for the second"))},
			[]plannedCall{{"web-0", 0}, {"web-1", time.Second}, {"web-0", time.Second}, {"web-1", time.Second}, {"web-0", 7 * time.Second}}).with(tagSeveralPods),
		plan("sequence/the-second-pod-finds-it", image, ifNotPresent,
			script{ImageStatus: statuses(absent, there), PullImage: pulls(pulled(imageID))},
			[]plannedCall{{"web-0", 0}, {"web-1", time.Second}}).with(tagSeveralPods),
	}
}

// stepsToTheCap asks a millisecond before each back-off ends and again when it does.
func stepsToTheCap() []plannedCall {
	advances := []time.Duration{0}
	for _, step := range []time.Duration{10, 20, 40, 80, 160, 300, 300} {
		advances = append(advances, step*time.Second-time.Millisecond, time.Millisecond)
	}
	return callsAfter(advances...)
}

// throttleCases never get a token, so that no real time can change the answer.
func throttleCases() []plannedCase {
	var cases []plannedCase
	for _, one := range []struct {
		name, policy string
		status       []statusAnswer
	}{{"always", always, nil}, {"if-not-present", ifNotPresent, statuses(absent)}, {"present", ifNotPresent, statuses(there)}} {
		planned := plan("throttle/"+one.name, "busybox", one.policy,
			script{ImageStatus: one.status, PullImage: pulls(pulled(imageID))}, intoBackOff()).with(tagThrottle)
		planned.golden.Throttle = &throttle{QPS: 5, Burst: 0}
		cases = append(cases, planned)
	}
	return cases
}

// credentialCases try several credentials for one image; kubelet joins their errors.
func credentialCases() []plannedCase {
	team := credential{"registry.example/team", "team", "secret-1"}
	whole := credential{"registry.example", "whole", "secret-2"}
	wild := credential{"*.example", "wild", "secret-3"}
	elsewhere := credential{"other.example", "elsewhere", "secret-4"}
	denied := pullFails(codes.Unknown, "denied")
	var cases []plannedCase
	for _, one := range []struct {
		name        string
		credentials []credential
		answers     []pullAnswer
	}{
		{"one-fails", []credential{whole}, pulls(denied)},
		{"one-fails-code-kept", []credential{whole}, pulls(pullFails(codes.PermissionDenied, "denied"))},
		{"one-fails-no-text", []credential{whole}, pulls(pullFails(codes.Unknown, ""))},
		{"one-registry-unavailable", []credential{whole}, pulls(pullFails(codes.Unknown, "RegistryUnavailable: x"))},
		{"none-matches", []credential{elsewhere}, pulls(denied)},
		{"two-same-text", []credential{team, whole}, pulls(denied, denied)},
		{"two-differ", []credential{team, whole}, pulls(denied, pullFails(codes.Unknown, `"expired", 100%`))},
		{"two-differ-by-code", []credential{team, whole}, pulls(denied, pullFails(codes.PermissionDenied, "denied"))},
		{"two-one-without-text", []credential{team, whole}, pulls(pullFails(codes.Unknown, ""), denied)},
		{"two-without-text", []credential{team, whole}, pulls(pullFails(codes.Unknown, ""))},
		{"two-registry-unavailable", []credential{team, whole}, pulls(pullFails(codes.Unknown, "RegistryUnavailable: x"))},
		{"two-registry-unavailable-differ", []credential{team, whole}, pulls(pullFails(codes.Unknown, "RegistryUnavailable: x"), pullFails(codes.Unknown, "RegistryUnavailable: y"))},
		{"two-second-pulls", []credential{team, whole}, pulls(denied, pulled(imageID))},
		{"two-first-pulls", []credential{team, whole}, pulls(pulled(imageID))},
		{"two-no-ref", []credential{team, whole}, pulls(pulled(""))},
		{"three-first-and-last-same", []credential{team, whole, wild}, pulls(denied, pullFails(codes.NotFound, "not found"), denied)},
		{"three-differ", []credential{team, whole, wild}, pulls(denied, pullFails(codes.NotFound, "not found"), pullFails(codes.Unknown, "a, [b]"))},
	} {
		planned := plan("credentials/"+one.name, "registry.example/team/app:v1", always,
			script{ImageStatus: statuses(there), PullImage: one.answers}, twice()).with(tagCredentials)
		planned.golden.Credentials = one.credentials
		cases = append(cases, planned)
	}
	return cases
}
