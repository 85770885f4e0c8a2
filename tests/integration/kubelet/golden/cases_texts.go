package main

import (
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
)

type namedText struct{ name, text string }

// oddTexts are what a runtime might say, and what it never should.
func oddTexts() []namedText {
	return []namedText{
		{"plain", "manifest unknown"},
		{"one-space", " "},
		{"spaces", "   "},
		{"leading-space", "  denied"},
		{"trailing-space", "denied  "},
		{"newline", "\n"},
		{"trailing-newline", "denied\n"},
		{"double-quotes", `"denied": requested access to "team/app" is "denied"`},
		{"single-quotes", `can't pull 'team/app'`},
		{"back-quotes", "`team/app`"},
		{"backslashes", `C:\images\new\table \\server\share \`},
		{"written-escapes", `\n \t \x00 \u00e9 \"`},
		{"newlines-and-tabs", "first line\n\tsecond line\n\n\tthird"},
		{"crlf", "first line\r\nsecond line\r"},
		{"percent", "100% %s %d %%"},
		{"go-verbs", "%!s(MISSING) %v %+v %#v %q %x %T %[1]s %*d %n"},
		{"percent-encoded", "%20 %41 %0A %E2%82%AC %00"},
		{"half-percent-encoded", "%4 %zz %G1 %%41 50%"},
		{"nul", "before\x00after"},
		{"control-characters", controlCharacters(0x00, 0x1f)},
		{"delete", "a\x7fb"},
		{"c1-controls", controlCharacters(0x80, 0x9f)},
		{"ansi-colours", "\x1b[31mdenied\x1b[0m"},
		{"no-break-space", "a\u00a0b"},
		{"zero-width", "a\u200bb\u200dc\ufeffd\u2060e"},
		{"right-to-left-override", "a\u202etxt.exe\u202c"},
		{"line-separators", "a\u2028b\u2029c\u0085d"},
		{"latin", "Zugriff verweigert: ungültige Prüfsumme – prüfen…"},
		{"combining", "e\u0301 a\u0308 \u0301"},
		{"cjk", "拉取镜像失败:未找到清单"},
		{"arabic", "فشل سحب الصورة"},
		{"emoji", "📦❌ pull failed 👩‍👩‍👧‍👦 🇩🇪 ✊🏽"},
		{"private-use", "\ue000\uf8ff\U000f0000"},
		{"non-characters", "\ufffe\uffff\U0001ffff\U0010ffff\ufdd0"},
		{"replacement-character", "bad \ufffd byte"},
		{"unassigned", "\u0378\U000e0080"},
		{"json", `{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown","detail":{"Tag":"v1"}}]}`},
		{"html", "<html>\r\n<body><h1>502 Bad Gateway</h1>&nbsp;<!-- nginx --></body>\r\n</html>"},
		{"braces", "{} {0} {text} }}{{ ${HOME} $(id)"},
		{"rpc-error-nested", "rpc error: code = NotFound desc = manifest unknown"},
		{"rpc-error-empty", "rpc error: code = Unknown desc = "},
		{"list", `[first, second, "third"]`},
		{"colon-first", ": denied"},
		{"kubelet-words", `ErrImagePull: Back-off pulling image "busybox": ImagePullBackOff`},
		{"qps", "pull QPS exceeded"},
		{"containerd-not-found", `failed to pull and unpack image "docker.io/library/busybox:nope": failed to resolve reference "docker.io/library/busybox:nope": docker.io/library/busybox:nope: not found`},
		{"containerd-denied", `failed to pull and unpack image "docker.io/team/app:v1": failed to resolve reference "docker.io/team/app:v1": pull access denied, repository does not exist or may require authorization: server message: insufficient_scope: authorization failed`},
		{"containerd-refused", `failed to pull and unpack image "localhost:5000/app:v1": failed to resolve reference "localhost:5000/app:v1": failed to do request: Head "https://localhost:5000/v2/app/manifests/v1": dial tcp 127.0.0.1:5000: connect: connection refused`},
		{"crio-not-found", "reading manifest nope in docker.io/library/busybox: manifest unknown"},
		{"crio-lines", "unable to pull image or OCI artifact: pull image err: initializing source docker://localhost:5000/app:v1: pinging container registry localhost:5000: Get \"https://localhost:5000/v2/\": EOF; artifact err: get manifest\n"},
	}
}

func controlCharacters(from, to rune) string {
	var text strings.Builder
	for character := from; character <= to; character++ {
		text.WriteRune(character)
	}
	return text.String()
}

// textCases send each text from PullImage with its code stripped and kept, and from ImageStatus.
func textCases() []plannedCase {
	var cases []plannedCase
	kept := allCodes()
	for index, one := range oddTexts() {
		code := kept[index%len(kept)]
		if code == codes.Unknown {
			code = codes.FailedPrecondition
		}
		cases = append(cases,
			plan("text/pull/"+one.name+"/code-stripped", "busybox", ifNotPresent,
				script{ImageStatus: statuses(absent), PullImage: pulls(pullFails(codes.Unknown, one.text))}, intoBackOff()),
			plan("text/pull/"+one.name+"/code-kept", "registry.example/team/app:v1", always,
				script{PullImage: pulls(pullFails(code, one.text))}, once()),
			plan("text/inspect/"+one.name, "busybox", ifNotPresent,
				script{ImageStatus: statuses(statusFails(codes.Unknown, one.text))}, once()))
	}
	return cases
}

// longTextCases hold what must not be shortened.
func longTextCases() []plannedCase {
	const long = 3_000
	texts := []namedText{
		{"letters", counted(long)},
		{"newlines", strings.Repeat("line\n", long/5)},
		{"percents", strings.Repeat("100%", long/4)},
		{"quotes", strings.Repeat(`"\`, long/2)},
		{"emoji", strings.Repeat("📦", long)},
		{"controls", strings.Repeat("\x01\x7f\u0085", long/3)},
		{"spaces", strings.Repeat(" ", long)},
	}
	var cases []plannedCase
	for _, one := range texts {
		cases = append(cases, plan("long/pull/3000-"+one.name, "busybox", ifNotPresent,
			script{ImageStatus: statuses(absent), PullImage: pulls(pullFails(codes.Unknown, one.text))}, twice()))
	}
	for _, one := range texts[:3] {
		cases = append(cases, plan("long/inspect/3000-"+one.name, "busybox", never,
			script{ImageStatus: statuses(statusFails(codes.Internal, one.text))}, once()))
	}
	return append(cases,
		plan("long/pull/3000-code-kept", "busybox", always,
			script{PullImage: pulls(pullFails(codes.Unavailable, counted(long)))}, twice()),
		plan("long/pull/3000-registry-unavailable", "busybox", always,
			script{PullImage: pulls(pullFails(codes.Unknown, "RegistryUnavailable: "+counted(long)))}, twice()),
		plan("long/pull/3000-signature", "busybox", always,
			script{PullImage: pulls(pullFails(codes.Unknown, "SignatureValidationFailed: "+counted(long)))}, twice()),
		plan("long/pull/40000-letters", "busybox", always,
			script{PullImage: pulls(pullFails(codes.Unknown, counted(40_000)))}, twice()),
		// Newlines take three bytes each on the wire.
		plan("long/inspect/10000-newlines", "busybox", ifNotPresent,
			script{ImageStatus: statuses(statusFails(codes.Unavailable, strings.Repeat("\n", 10_000)))}, once()),
		plan("long/pull/65536-letters", "busybox", always,
			script{PullImage: pulls(pullFails(codes.Unknown, counted(1<<16)))}, once()))
}

// counted is a text of this many bytes in which every place can be told from the others.
func counted(length int) string {
	var text strings.Builder
	for text.Len() < length {
		fmt.Fprintf(&text, "%08d ", text.Len())
	}
	return text.String()[:length]
}
