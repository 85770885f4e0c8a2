package main

import (
	"fmt"

	"google.golang.org/grpc/codes"
)

// policyCases crosses every policy with every presence.
func policyCases() []plannedCase {
	policies := []struct{ name, policy string }{
		{"always", always}, {"if-not-present", ifNotPresent}, {"never", never},
		{"empty", ""}, {"lower-case-always", "always"}, {"lower-case-never", "never"}, {"unknown", "Sometimes"},
	}
	presences := []struct {
		name    string
		answers script
		calls   []plannedCall
	}{
		{"absent-then-there", script{ImageStatus: statuses(absent, there), PullImage: pulls(pulled(imageID))}, twice()},
		{"absent-even-after-pull", script{ImageStatus: statuses(absent), PullImage: pulls(pulled(imageID))}, twice()},
		{"present", script{ImageStatus: statuses(there), PullImage: pulls(pulled(imageID))}, twice()},
		{"empty-id", script{ImageStatus: statuses(present("", imageSize)), PullImage: pulls(pulled(imageID))}, twice()},
		{"zero-size", script{ImageStatus: statuses(present(imageID, 0)), PullImage: pulls(pulled(imageID))}, twice()},
		{"empty-id-zero-size", script{ImageStatus: statuses(present("", 0)), PullImage: pulls(pulled(imageID))}, once()},
		{"inspect-error", script{ImageStatus: statuses(statusFails(codes.Internal, "database is locked")), PullImage: pulls(pulled(imageID))}, twice()},
		{"absent-pull-error", script{ImageStatus: statuses(absent), PullImage: pulls(pullFails(codes.NotFound, "manifest unknown"))}, intoBackOff()},
		{"present-pull-error", script{ImageStatus: statuses(there), PullImage: pulls(pullFails(codes.Unknown, "no route to host"))}, intoBackOff()},
	}
	var cases []plannedCase
	for _, policy := range policies {
		for _, presence := range presences {
			answers := presence.answers
			if looksFirst := policy.policy == ifNotPresent || policy.policy == never; !looksFirst && presence.name == "absent-then-there" {
				// Without a look before the pull, the first ImageStatus is the one after it.
				answers.ImageStatus = statuses(there)
			}
			one := plan(fmt.Sprintf("policy/%s/%s", policy.name, presence.name), "busybox", policy.policy, answers, presence.calls)
			if policy.policy != always && policy.policy != ifNotPresent && policy.policy != never {
				one = one.with(tagOddPolicy)
			}
			cases = append(cases, one)
		}
	}
	return cases
}

// resultCases are odd answers of a runtime that says it has succeeded.
func resultCases() []plannedCase {
	var cases []plannedCase
	for _, one := range []struct{ name, ref string }{
		{"empty", ""}, {"plain-hex", imageID[len("sha256:"):]}, {"repo-digest", "docker.io/library/busybox@" + imageID},
		{"quotes", `a "quoted" ref`}, {"newline", "a\nref"}, {"percent", "100% %s"}, {"blank", " "}, {"emoji", "📦"},
	} {
		cases = append(cases,
			plan("result/image-ref/"+one.name+"/absent", "busybox", ifNotPresent,
				script{ImageStatus: statuses(absent, there), PullImage: pulls(pulled(one.ref))}, callsAfter(0)),
			plan("result/image-ref/"+one.name+"/always", "registry.example/app@"+imageID, always,
				script{ImageStatus: statuses(there), PullImage: pulls(pulled(one.ref))}, intoBackOff()))
		if one.ref != "" {
			cases = append(cases, plan("result/image-id/"+one.name, "busybox", never,
				script{ImageStatus: statuses(present(one.ref, 1))}, once()))
		}
	}
	for _, size := range []uint64{0, 1, 999, 1 << 20, 1 << 32, 1<<53 + 1, 1<<63 - 1, 1 << 63, 1<<64 - 1} {
		cases = append(cases, plan(fmt.Sprintf("result/size/%d", size), "busybox", always,
			script{ImageStatus: statuses(present(imageID, size)), PullImage: pulls(pulled(imageID))}, once()))
	}
	for _, image := range []string{"busybox", "busybox:1.36", "localhost:5000", "registry.example:5000/team/app@" + imageID} {
		cases = append(cases,
			plan("result/no-ref-named/"+image, image, always,
				script{ImageStatus: statuses(there), PullImage: pulls(pulled(""))}, intoBackOff()),
			plan("result/no-id-named/"+image, image, ifNotPresent,
				script{ImageStatus: statuses(present("", 7))}, once()))
	}
	return cases
}
