package main

import (
	"fmt"

	"google.golang.org/grpc/codes"
)

// prefixCases are the two words at the start of a pull error that give a reason of their own, and near misses.
func prefixCases() []plannedCase {
	var cases []plannedCase
	for _, word := range []string{"RegistryUnavailable", "SignatureValidationFailed"} {
		other := map[string]string{"RegistryUnavailable": "SignatureValidationFailed", "SignatureValidationFailed": "RegistryUnavailable"}[word]
		for _, one := range []namedText{
			{"alone", word},
			{"colon", word + ":"},
			{"detail", word + ": connection refused"},
			{"odd-detail", word + `: "100% %s" of C:\x` + "\n\tdone 📦"},
			{"no-colon", word + " and more"},
			{"word-goes-on", word + "Today"},
			{"newline", word + "\n"},
			{"twice", word + word + ": x"},
			{"other-follows", word + other},
			{"other-as-detail", word + ": " + other + ": x"},
			{"leading-space", " " + word + ": x"},
			{"leading-newline", "\n" + word},
			{"in-the-middle", "pull failed: " + word + ": x"},
			{"at-the-end", "pull failed: " + word},
			{"lower-case", lowerFirst(word) + ": x"},
			{"cut-short", word[:len(word)-1]},
			{"quoted", `"` + word + `": x`},
			{"in-brackets", "[" + word + ": a, " + word + ": b]"},
			{"behind-nested-status", "rpc error: code = Unknown desc = " + word + ": x"},
			{"percent", word + "%s%!d(MISSING)"},
		} {
			name := fmt.Sprintf("prefix/%s/%s", word, one.name)
			cases = append(cases,
				plan(name+"/code-unknown", "registry.example/team/app", ifNotPresent,
					script{ImageStatus: statuses(absent), PullImage: pulls(pullFails(codes.Unknown, one.text))}, intoBackOff()),
				plan(name+"/code-unavailable", "busybox:1.36", always,
					script{PullImage: pulls(pullFails(codes.Unavailable, one.text))}, once()))
		}
		for _, code := range allCodes() {
			cases = append(cases, plan(fmt.Sprintf("prefix/%s/code/%s", word, code), "busybox", always,
				script{PullImage: pulls(pullFails(code, word+": x"))}, twice()))
		}
		cases = append(cases,
			plan("prefix/"+word+"/inspect", "busybox", ifNotPresent,
				script{ImageStatus: statuses(statusFails(codes.Unknown, word+": x"))}, once()),
			plan("prefix/"+word+"/digest-reference", "registry.example/app@"+imageID, ifNotPresent,
				script{ImageStatus: statuses(absent), PullImage: pulls(pullFails(codes.Unknown, word+": x"))}, twice()),
			plan("prefix/"+word+"/then-another-cause", "busybox", ifNotPresent,
				script{ImageStatus: statuses(absent), PullImage: pulls(pullFails(codes.Unknown, word+": x"), pullFails(codes.NotFound, "manifest unknown"))},
				append(intoBackOff(), twice()[1:]...)))
	}
	return cases
}

func lowerFirst(word string) string { return string(word[0]+('a'-'A')) + word[1:] }
