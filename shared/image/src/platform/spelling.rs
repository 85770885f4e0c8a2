//! Normalises the spellings of platforms.

/// Whether the text can be a part of a platform.
pub(super) fn is_component(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
}

/// The operating system as Go names it; `os` is in lower case.
pub(super) fn normal_os(os: &str) -> String {
    if os == "macos" { "darwin".to_owned() } else { os.to_owned() }
}

/// Architecture and variant in the normal form, for all spellings that containerd treats as equal (platforms 1.0); both are in lower case.
pub(super) fn normal_architecture(architecture: &str, variant: Option<&str>) -> (String, Option<String>) {
    let (architecture, variant) = match (architecture, variant) {
        ("i386", _) => ("386", None),
        ("x86_64" | "x86-64" | "amd64", None | Some("v1")) => ("amd64", None),
        ("x86_64" | "x86-64", variant) => ("amd64", variant),
        ("aarch64" | "arm64", None | Some("8" | "v8" | "v8.0")) => ("arm64", None),
        ("aarch64" | "arm64", Some("9" | "9.0" | "v9.0")) => ("arm64", Some("v9")),
        ("aarch64", variant) => ("arm64", variant),
        ("armhf", _) | ("arm", None | Some("7")) => ("arm", Some("v7")),
        ("armel", _) | ("arm", Some("6")) => ("arm", Some("v6")),
        ("arm", Some("5")) => ("arm", Some("v5")),
        ("arm", Some("8")) => ("arm", Some("v8")),
        other => other,
    };
    (architecture.to_owned(), variant.map(str::to_owned))
}

/// Go's name for an architecture of Rust (`std::env::consts::ARCH`), where the normal form does not cover the difference.
pub(super) fn go_architecture(architecture: &str) -> &str {
    let little_endian = cfg!(target_endian = "little");
    match architecture {
        "x86" => "386",
        "loongarch64" => "loong64",
        "mips" if little_endian => "mipsle",
        "mips64" if little_endian => "mips64le",
        "powerpc" => "ppc",
        "powerpc64" if little_endian => "ppc64le",
        "powerpc64" => "ppc64",
        "wasm32" => "wasm",
        same => same,
    }
}
