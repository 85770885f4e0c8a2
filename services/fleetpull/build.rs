//! Strips the release program. Cargo forgets `strip` of the profile for a package with settings of its own, as this one has for its size.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("PROFILE").as_deref() == Ok("release") {
        println!("cargo::rustc-link-arg-bins=-Wl,--strip-all");
    }
}
