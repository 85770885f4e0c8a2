//! Checks image names from kubelet's documentation, tests and messages, row by row; the broad comparison with its library is in
//! `golden.rs`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use image::{Reference, ReferenceError};

const EMPTY: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
const IDENTIFIER: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

/// image, repository, tag
#[rustfmt::skip]
const UNTAGGED_OR_TAGGED: [(&str, &str, &str); 36] = [
    ("busybox", "docker.io/library/busybox", "latest"),
    ("root", "docker.io/library/root", "latest"),
    ("root:tag", "docker.io/library/root", "tag"),
    ("root:latest", "docker.io/library/root", "latest"),
    ("library/busybox", "docker.io/library/busybox", "latest"),
    ("docker.io/busybox", "docker.io/library/busybox", "latest"),
    ("index.docker.io/library/debian", "docker.io/library/debian", "latest"),
    ("docker.io/library/foo/bar", "docker.io/library/foo/bar", "latest"),
    ("gcr.io/p/app:v1", "gcr.io/p/app", "v1"),
    ("localhost/fooo", "localhost/fooo", "latest"),
    ("localhost:5000/app", "localhost:5000/app", "latest"),
    // Without a slash a port is parsed as a tag.
    ("localhost:5000", "docker.io/library/localhost", "5000"),
    ("test.com:5000", "docker.io/library/test.com", "5000"),
    ("192.168.1.1:5000", "docker.io/library/192.168.1.1", "5000"),
    ("foo_bar.com:8080", "docker.io/library/foo_bar.com", "8080"),
    ("test:5000/repo:tag", "test:5000/repo", "tag"),
    // No dot, so no host.
    ("myhost/app", "docker.io/myhost/app", "latest"),
    ("LOCALDOMAIN/debian", "LOCALDOMAIN/debian", "latest"),
    ("Docker/docker", "Docker/docker", "latest"),
    ("DOCKER/docker", "DOCKER/docker", "latest"),
    ("192.168.1.1:5000/repo:5050", "192.168.1.1:5000/repo", "5050"),
    ("[2001:db8::1]:5000/repo:tag", "[2001:db8::1]:5000/repo", "tag"),
    ("[::1]:5000/repo", "[::1]:5000/repo", "latest"),
    ("xn--n3h.com/myimage:xn--n3h.com", "xn--n3h.com/myimage", "xn--n3h.com"),
    ("lowercase:Uppercase", "docker.io/library/lowercase", "Uppercase"),
    ("docker---rules/docker", "docker.io/docker---rules/docker", "latest"),
    ("dock__er/docker", "docker.io/dock__er/docker", "latest"),
    ("d/docker", "docker.io/d/docker", "latest"),
    ("test_com/foo", "docker.io/test_com/foo", "latest"),
    ("test.com/foo", "test.com/foo", "latest"),
    ("a.b/c/d:_foo", "a.b/c/d", "_foo"),
    // An identifier is refused only if it is the whole text; one digit less is a name.
    ("docker.io/ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
     "docker.io/library/ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", "latest"),
    ("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015a",
     "docker.io/library/ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015a", "latest"),
    // No host by the grammar because of its underscore, but runtimes connect to it.
    ("foo_bar.com/app", "foo_bar.com/app", "latest"),
    ("index.docker.io:443/app", "index.docker.io:443/app", "latest"),
    ("docker.io:443/app", "docker.io:443/app", "latest"),
];

#[test]
fn names_are_completed_but_not_for_the_runtime() {
    for (image, repository, tag) in UNTAGGED_OR_TAGGED {
        let reference = Reference::parse(image).unwrap();
        assert_eq!(reference.repository(), repository, "{image}");
        assert_eq!(reference.tag(), Some(tag), "{image}");
        assert_eq!(reference.digest(), None, "{image}");
        assert_eq!(reference.normalised(), format!("{repository}:{tag}"), "{image}");
        assert_eq!(format!("{}/{}", reference.domain(), reference.path()), repository, "{image}");
        assert_eq!(reference.requested(), image);
        assert_eq!(reference.is_latest(), tag == "latest", "{image}");
        let runtime_reference = if image.ends_with(&format!(":{tag}")) { image.to_owned() } else { format!("{image}:latest") };
        assert_eq!(reference.runtime_reference(), runtime_reference, "{image}");
    }
}

#[test]
fn digest_replaces_the_default_tag() {
    let sha512 = format!("sha512:{}", "0f".repeat(64));
    let sha384 = format!("sha384:{}", "0f".repeat(48));
    let cases = [
        ("root", None, EMPTY),
        ("root", Some("latest"), EMPTY),
        ("root", Some("v1"), EMPTY),
        ("x", None, sha512.as_str()),
        ("x", None, sha384.as_str()),
    ];
    for (name, tag, digest) in cases {
        let suffix = tag.map(|tag| format!(":{tag}")).unwrap_or_default();
        let image = format!("{name}{suffix}@{digest}");
        let reference = Reference::parse(&image).unwrap();
        assert_eq!(reference.tag(), tag, "{image}");
        assert_eq!(reference.digest().unwrap().as_str(), digest);
        assert_eq!(reference.runtime_reference(), image);
        assert_eq!(reference.normalised(), format!("docker.io/library/{image}"));
        assert_eq!(reference.is_latest(), tag == Some("latest"), "{image}");
    }
}

#[test]
fn docker_io_is_asked_at_another_host() {
    let cases = [
        ("busybox", "docker.io", "registry-1.docker.io"),
        ("index.docker.io/library/debian", "docker.io", "registry-1.docker.io"),
        ("docker.io:443/app", "docker.io:443", "docker.io:443"),
        ("localhost:5000/app", "localhost:5000", "localhost:5000"),
        ("[::1]:5000/app", "[::1]:5000", "[::1]:5000"),
        ("foo_bar.com/app", "foo_bar.com", "foo_bar.com"),
    ];
    for (image, registry, host) in cases {
        let reference = Reference::parse(image).unwrap();
        assert_eq!((reference.registry(), reference.registry_host()), (registry, host), "{image}");
    }
}

#[test]
fn longest_allowed_names_are_accepted() {
    let path = format!("example.com/{}:tag", "a".repeat(255));
    assert_eq!(Reference::parse(&path).unwrap().path().len(), 255);
    let tag = format!("x:{}", "t".repeat(128));
    assert_eq!(Reference::parse(&tag).unwrap().tag().unwrap().len(), 128);
}

#[test]
fn invalid_reference_is_refused_with_kubelets_text() {
    let invalid_format = [
        "http://url",
        "https://github.com/docker/docker",
        "",
        " busybox",
        "busybox ",
        "busybox:",
        ":justtag",
        "@sha256:ff",
        "[2001:db8::1]",
        "[fe80::1%eth0]:5000/repo",
        "fc00::1:5000/debian",
        "[2001:db8:3:4::192.0.2.33]:5000/debian",
        "docker///docker",
        "docker/",
        "-docker",
        "docker-/docker",
        "_docker/_docker",
        "____/____",
        "dock..er/docker",
        "dock_.er/docker",
        "dock-.er/docker",
        "dock___er/docker",
        "aa/asdf$$^/aa",
        "x:-foo",
        "x:.foo",
        "app:v1.0+build",
        "a:b:c",
        "repo:tag/more",
        "busybox:latest@latest",
        "busybox\n",
        "-foo/bar",
        "foo.com:/bar",
        "foo.com:http/bar",
        "a.b/",
        "/a",
        "é",
        "repo@sha256:ffff",
    ];
    for image in invalid_format {
        refused(image, "invalid reference format");
    }
    refused(&format!("@{EMPTY}"), "invalid reference format");
    refused(&format!("x:{}", "t".repeat(129)), "invalid reference format");
}

#[test]
fn other_refusals_have_their_own_texts() {
    let upper = "AB".repeat(32);
    let hex = "ab".repeat(32);
    let must_be_lowercase = |name: &str| format!("invalid reference format: repository name ({name}) must be lowercase");
    let too_long = "repository name must not be more than 255 characters".to_owned();
    let cases = [
        ("FAILED_IMAGE".to_owned(), must_be_lowercase("library/FAILED_IMAGE")),
        ("docker/Docker".to_owned(), must_be_lowercase("docker/Docker")),
        ("test:5000/Uppercase/lowercase:tag".to_owned(), must_be_lowercase("Uppercase/lowercase")),
        (format!("repo@SHA256:{hex}"), must_be_lowercase("library/repo@SHA256")),
        ("busyboÉ".to_owned(), must_be_lowercase("library/busyboÉ")),
        ("Foo_Bar/app".to_owned(), "repository name must be lowercase".to_owned()),
        (IDENTIFIER.to_owned(), format!("invalid repository name ({IDENTIFIER}), cannot specify 64-byte hexadecimal strings")),
        ("repo@sha256:ffffffffffffffffffffffffffffffffff".to_owned(), "invalid checksum digest length".to_owned()),
        (format!("validname@invaliddigest:{hex}"), "unsupported digest algorithm".to_owned()),
        (format!("v@md5:{}", "0".repeat(32)), "unsupported digest algorithm".to_owned()),
        (format!("v@sha256:{upper}"), "invalid checksum digest format".to_owned()),
        (format!("v:tag@SHA256:{hex}"), "invalid checksum digest format".to_owned()),
        (format!("domain/{}:tag", "a".repeat(256)), too_long.clone()),
        (format!("a.b/{}@md5:{}", "a".repeat(256), "0".repeat(32)), too_long.clone()),
        ("a".repeat(248), too_long),
    ];
    for (image, expected) in cases {
        refused(&image, &expected);
    }
}

fn refused(image: &str, expected: &str) {
    let error = Reference::parse(image).expect_err(image);
    assert_eq!(error.to_string(), expected, "{image}");
}

#[test]
fn refusal_text_quotes_the_image_as_go_does() {
    let error = Reference::parse("FAILED_IMAGE").unwrap_err();
    assert_eq!(error, ReferenceError::UppercaseName { name: "library/FAILED_IMAGE".to_owned() });
    assert_eq!(
        error.kubelet_message("FAILED_IMAGE"),
        r#"couldn't parse image name "FAILED_IMAGE": invalid reference format: repository name (library/FAILED_IMAGE) must be lowercase"#
    );
    let odd = "a\"b\n\u{7f}\u{200b}";
    let error = Reference::parse(odd).unwrap_err();
    assert_eq!(error.kubelet_message(odd), r#"couldn't parse image name "a\"b\n\x7f\u200b": invalid reference format"#);
}
