package main

import (
	"fmt"

	"google.golang.org/grpc/codes"
)

const oddText = "\"layer 3\" stopped at 50% of\n\tC:\\store 📦"

// codeCases sends every gRPC code from both calls.
func codeCases() []plannedCase {
	var cases []plannedCase
	for _, code := range allCodes() {
		cases = append(cases, pullCodeCases(code)...)
		cases = append(cases, statusCodeCases(code)...)
	}
	for _, code := range []codes.Code{17, 99} {
		cases = append(cases,
			plan(fmt.Sprintf("code/pull/%d", code), "busybox", always,
				script{PullImage: pulls(pullFails(code, "unheard of"))}, intoBackOff()).with(tagCodeBeyond16),
			plan(fmt.Sprintf("code/inspect/%d", code), "busybox", ifNotPresent,
				script{ImageStatus: statuses(statusFails(code, "unheard of"))}, once()).with(tagCodeBeyond16))
	}
	return cases
}

func pullCodeCases(code codes.Code) []plannedCase {
	return []plannedCase{
		plan(fmt.Sprintf("code/pull/%s/absent", code), "registry.example/team/app:v1", ifNotPresent,
			script{ImageStatus: statuses(absent), PullImage: pulls(pullFails(code, "manifest unknown"))}, intoBackOff()),
		plan(fmt.Sprintf("code/pull/%s/odd-text", code), "busybox", always,
			script{PullImage: pulls(pullFails(code, oddText))}, twice()),
		plan(fmt.Sprintf("code/pull/%s/no-text", code), "busybox", always,
			script{PullImage: pulls(pullFails(code, ""))}, twice()),
		plan(fmt.Sprintf("code/pull/%s/then-pulled", code), "busybox", ifNotPresent,
			script{ImageStatus: statuses(absent, absent, absent, there), PullImage: pulls(pullFails(code, "try again"), pulled(imageID))},
			append(intoBackOff(), twice()[1:]...)),
	}
}

func statusCodeCases(code codes.Code) []plannedCase {
	return []plannedCase{
		plan(fmt.Sprintf("code/inspect/%s/if-not-present", code), "registry.example/team/app:v1", ifNotPresent,
			script{ImageStatus: statuses(statusFails(code, "image store is closed"))}, twice()),
		plan(fmt.Sprintf("code/inspect/%s/never", code), "busybox", never,
			script{ImageStatus: statuses(statusFails(code, oddText))}, twice()),
		plan(fmt.Sprintf("code/inspect/%s/no-text", code), "busybox", ifNotPresent,
			script{ImageStatus: statuses(statusFails(code, ""))}, once()),
		plan(fmt.Sprintf("code/size/%s", code), "busybox", always,
			script{ImageStatus: statuses(statusFails(code, "image store is closed")), PullImage: pulls(pulled(imageID))}, once()),
	}
}
