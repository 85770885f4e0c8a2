package main

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	hex64      = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
	emptySHA   = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	hex96      = hex64 + "ba7816bf8f01cfea414140de5dae2223"
	hex128     = hex64 + hex64
	runesInOne = 200
)

// validNameCases show which string reaches the runtime, and how each name stands in the texts.
func validNameCases() []plannedCase {
	names := []string{
		"busybox", "root", "root:tag", "root@" + emptySHA, "root:latest@" + emptySHA, "root:latest", "library/busybox",
		"docker.io/busybox", "index.docker.io/library/debian", "docker.io/library/foo/bar", "gcr.io/p/app:v1", "localhost/fooo",
		"localhost:5000/app", "localhost:5000", "test.com:5000", "192.168.1.1:5000", "foo_bar.com:8080", "test:5000/repo:tag",
		"test:5000/repo@" + emptySHA, "myhost/app", "LOCALDOMAIN/debian", "Docker/docker", "DOCKER/docker", "192.168.1.1:5000/repo:5050",
		"[2001:db8::1]:5000/repo:tag", "[::1]:5000/repo", "[2001:db8::1]/repo", "xn--n3h.com/myimage:xn--n3h.com", "lowercase:Uppercase",
		"docker---rules/docker", "dock__er/docker", "d/docker", "test_com/foo", "docker.io/" + hex64, hex64[:63], hex64 + ":v1",
		"example.com/" + strings.Repeat("a", 255) + ":tag", "x:" + strings.Repeat("t", 128), "x:_foo", "x:1.0-rc.1_2",
		"x@sha512:" + hex128, "x@sha384:" + hex96, "latest", "latest:latest", "x:latest", "a/b/c/d/e/f/g", "a.b/c:d",
		"foo:bar@" + emptySHA, "localhost:latest", "host:5000/latest", strings.Repeat("a", 247),
	}
	var cases []plannedCase
	for _, name := range names {
		cases = append(cases, plan("name/valid/"+name, name, ifNotPresent,
			script{ImageStatus: statuses(absent, there), PullImage: pulls(pulled(imageID))}, twice()))
	}
	return cases
}

// invalidNameCases never reach the runtime.
func invalidNameCases() []plannedCase {
	names := []string{
		"", " ", "FAILED_IMAGE", "docker/Docker", "test:5000/Uppercase/lowercase:tag", "http://url", "https://github.com/docker/docker",
		"docker://busybox", "oci:/tmp/x", hex64, " busybox", "busybox ", "busybox:", "busybox\n", "\tbusybox", ":justtag", "@" + emptySHA, "@", ":", "/", "//",
		"repo@sha256:" + hex64[:34], "repo@sha256:" + hex64[:63], "repo@sha256:" + hex64 + "a", "repo@sha256:", "repo@sha256", "repo@", "repo@" + hex64,
		"validname@invaliddigest:" + hex64, "v@md5:" + hex64[:32], "v@sha1:" + hex64[:40], "v@sha256:" + strings.ToUpper(hex64), "v@sha256:" + strings.Repeat("g", 64),
		"v@sha256+b64:" + hex64, "v@sha512:" + hex64, "v@sha384:" + hex64, "repo@SHA256:" + hex64, "Repo@sha256:" + hex64, "repo:tag@sha256:" + hex64[:34],
		"[2001:db8::1]", "[fe80::1%eth0]:5000/repo", "[fe80::1%25eth0]:5000/repo", "fc00::1:5000/debian", "[2001:db8:3:4::192.0.2.33]:5000/debian", "[::1:5000/repo",
		"docker///docker", "docker/", "/docker", "-docker", "docker-", "docker-/docker", "_docker/_docker", "____/____", "_", ".", "..", "../x", "./x", "x/.", "x//y",
		"dock..er/docker", "dock_.er/docker", "dock-.er/docker", "dock___er/docker", "aa/asdf$$^/aa", "-foo.com/app", "foo-.com/app", "foo..com/app", "foo.com:/app", "foo.com:port/app",
		"registry.example./app", "domain/" + strings.Repeat("a", 256) + ":tag", "example.com/" + strings.Repeat("a", 256), strings.Repeat("a", 248), strings.Repeat("A", 300),
		"x:" + strings.Repeat("t", 129), "x:-foo", "x:.foo", "v1.0+build", "x:v1.0+build", "a:b:c", "repo:tag/more", "busybox:latest@latest", "x:y@z:w", "x:tag ", "x: tag", "user:secret@registry.example/app",
		"registry.example/app?x=1", "registry.example/app#frag", "registry.example/%61pp", "100%", "%s", "%!s(MISSING)/app:%d", `"quoted"`, "'quoted'", "`quoted`", `back\slash`, `C:\image`, `a"b\c/d`,
		"${IMAGE}", "{{ .Values.image }}", "<nil>", "null/", "a b", "a\tb", "a\nb", "a\r\nb", "a\x00b", "a\x07\x08\x0c\x0b", "a\x1b[31mred", "a\x7f", "ä", "büro/app", "BÜRO/app", "ÄPP", "i\u0130", "\u212aube", "ſ", "x/\u212aube:v1",
		"e\u0301", "图像", "📦", "📦/app:v1", "app:📦", "app:tag\u00a0", "app\u00ad", "app\u200b", "\ufeffbusybox", "app\u2028", "app\u2029", "app\u202etxt", "app\ufffd", "app\ue000", "app\U0010ffff", "app\u0378", "app\U0001f1e9\U0001f1ea", "ａｐｐ",
		strings.Repeat("x ", 1500), strings.Repeat("\"\n", 500),
	}
	policies := []string{always, ifNotPresent, never, ""}
	seen := map[string]bool{}
	var cases []plannedCase
	for index, name := range names {
		policy := policies[index%len(policies)]
		one := plan("name/invalid/"+printableName(name), name, policy, script{}, once())
		if policy == "" {
			one = one.with(tagOddPolicy)
		}
		if seen[name] {
			panic("an image name stands twice: " + name)
		}
		seen[name] = true
		cases = append(cases, one)
	}
	return append(cases, plan("name/invalid/asked-again", "FAILED_IMAGE", always, script{}, intoBackOff()))
}

// printableName keeps the case's own name readable, whatever the image is called.
func printableName(image string) string {
	const most = 40
	quoted := strconv.QuoteToASCII(image)
	if len(quoted) <= most {
		return quoted
	}
	return fmt.Sprintf("%s... (%d bytes)", quoted[:most], len(image))
}

// quoteSweepCases hold every rune at which Go's %q begins or ceases to escape, both sides of each.
func quoteSweepCases() []plannedCase {
	var edges []rune
	before := strconv.IsPrint(0)
	for current := rune(1); current <= utf8.MaxRune; current++ {
		if !utf8.ValidRune(current) {
			continue
		}
		if now := strconv.IsPrint(current); now != before {
			before = now
			if utf8.ValidRune(current - 1) {
				edges = append(edges, current-1)
			}
			edges = append(edges, current)
		}
	}
	var cases []plannedCase
	for start := 0; start < len(edges); start += runesInOne {
		chunk := edges[start:min(start+runesInOne, len(edges))]
		name := fmt.Sprintf("quote/U+%04X-U+%04X", chunk[0], chunk[len(chunk)-1])
		cases = append(cases, plan(name, string(chunk), always, script{}, once()).with(tagUnicodeTables))
	}
	return cases
}
