//! Files below a directory are opened without following a link, and only if that is safe.
//!
//! Checks that links above the directory are followed and none below it; that pipes and hard links are refused; and that root refuses
//! directories that others own or may write, unless root itself linked to them.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{PermissionsExt as _, chown, lchown, symlink};
use std::path::Path;
use std::process::Command;

use safe_dir::{PRIVATE_MODE, PUBLIC_MODE, Refusal, SafeDir};
use tempfile::{TempDir, tempdir};

fn refusal(result: io::Result<impl Sized>) -> String {
    let error = result.err().expect("it is refused");
    assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
    assert!(error.get_ref().is_some_and(|inner| inner.is::<Refusal>()), "{error}");
    error.to_string()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// A directory, and a secret file outside it for links to point at.
fn place() -> (TempDir, SafeDir) {
    let place = tempdir().unwrap();
    fs::write(place.path().join("secret"), "secret").unwrap();
    let dir = SafeDir::make(&place.path().join("dir"), PUBLIC_MODE).unwrap();
    (place, dir)
}

#[test]
fn a_directory_is_made_with_its_mode_and_those_above_for_all_to_read() {
    let place = tempdir().unwrap();
    let path = place.path().join("a/b/c");
    let dir = SafeDir::make(&path, PRIVATE_MODE).unwrap();
    assert_eq!((mode(&path), mode(&place.path().join("a"))), (0o700, 0o755));
    assert_eq!(dir.path(), path);
    SafeDir::make(&path, PUBLIC_MODE).unwrap();
    assert_eq!(mode(&path), 0o700, "one that is there keeps its permissions");
    dir.make_dir("d", PUBLIC_MODE).unwrap();
    dir.make_dir("d", PUBLIC_MODE).unwrap();
    assert_eq!(dir.names().unwrap(), ["d"]);
}

#[test]
fn links_above_are_followed_and_none_below() {
    let (place, dir) = place();
    let above = place.path().join("above");
    symlink(place.path(), &above).unwrap();
    SafeDir::open(&above.join("dir")).unwrap();
    SafeDir::make(&above.join("new"), PUBLIC_MODE).unwrap();
    for (name, target) in [("to_file", "../secret"), ("to_dir", ".."), ("to_nothing", "../missing")] {
        symlink(target, dir.path().join(name)).unwrap();
        for refused in [
            refusal(dir.open_file(name)),
            refusal(dir.open_to_write(name, 0o600)),
            refusal(dir.dir(name)),
            refusal(dir.make_dir(name, PUBLIC_MODE)),
        ] {
            assert!(refused.contains(&format!("dir/{name} is a symbolic link")), "{refused}");
        }
        assert_eq!(dir.create_file(name, 0o600).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert!(dir.metadata(name).unwrap().unwrap().is_symlink());
    }
    assert!(!place.path().join("missing").exists());
    let mut new = dir.create_file("new", 0o644).unwrap();
    new.write_all(b"new").unwrap();
    dir.rename("new", &dir, "to_file").unwrap();
    assert_eq!(fs::read_to_string(place.path().join("secret")).unwrap(), "secret");
    let mut text = String::new();
    dir.open_file("to_file").unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "new", "the link was replaced, not what it points at");
    dir.remove_file("to_dir").unwrap();
}

#[test]
fn pipes_folders_and_hard_links_are_refused() {
    let (place, dir) = place();
    assert!(Command::new("mkfifo").arg(dir.path().join("pipe")).status().unwrap().success());
    assert!(refusal(dir.open_file("pipe")).contains("no regular file"));
    assert!(refusal(dir.open_to_write("pipe", 0o600)).contains("no regular file"));
    fs::create_dir(dir.path().join("folder")).unwrap();
    assert_eq!(dir.open_file("folder").unwrap_err().kind(), io::ErrorKind::IsADirectory);
    fs::hard_link(place.path().join("secret"), dir.path().join("linked")).unwrap();
    assert!(refusal(dir.open_to_write("linked", 0o600)).contains("2 names"));
    assert_eq!(fs::read_to_string(place.path().join("secret")).unwrap(), "secret");
    assert_eq!(dir.open_file("missing").unwrap_err().kind(), io::ErrorKind::NotFound);
    assert!(dir.metadata("missing").unwrap().is_none());
    assert_eq!(SafeDir::open(&place.path().join("secret")).unwrap_err().kind(), io::ErrorKind::NotADirectory);
}

#[test]
fn handle_follows_its_directory_after_a_rename() {
    let (place, dir) = place();
    fs::rename(dir.path(), place.path().join("moved")).unwrap();
    symlink("..", dir.path()).unwrap();
    dir.create_file("new", 0o644).unwrap();
    assert!(place.path().join("moved/new").exists());
}

/// Some if this process is root: only root is refused, and only root can make what is refused.
fn root() -> Option<()> {
    let is_root = fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
    support::requirement::met(if is_root { Ok(()) } else { Err("directories of other users need root".to_owned()) })
}

#[test]
fn root_refuses_directories_that_others_own_or_may_write() {
    let Some(()) = root() else { return };
    let (_place, dir) = place();
    let path = dir.path();
    chown(path, Some(1000), None).unwrap();
    assert!(refusal(SafeDir::open(path)).contains("belongs to user 1000"));
    chown(path, Some(0), None).unwrap();
    for writable in [0o775, 0o757, 0o1777] {
        fs::set_permissions(path, fs::Permissions::from_mode(writable)).unwrap();
        assert!(refusal(SafeDir::make(path, PUBLIC_MODE)).contains(&format!("(mode {writable:04o})")));
    }
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    dir.make_dir("sub", PUBLIC_MODE).unwrap();
    chown(path.join("sub"), Some(1000), None).unwrap();
    assert!(refusal(dir.dir("sub")).contains("dir/sub belongs to user 1000"));
    fs::write(path.join("file"), "").unwrap();
    chown(path.join("file"), Some(1000), None).unwrap();
    assert!(refusal(dir.open_to_write("file", 0o600)).contains("dir/file belongs to user 1000"));
    dir.open_file("file").expect("what is only read is verified otherwise");
}

#[test]
fn root_follows_a_link_at_the_end_only_if_it_is_roots_own() {
    let Some(()) = root() else { return };
    let (place, dir) = place();
    let link = place.path().join("link");
    symlink(dir.path(), &link).unwrap();
    SafeDir::open(&link).expect("root made it where nobody else may write");
    lchown(&link, Some(1000), None).unwrap();
    let slash = place.path().join("link/");
    for path in [&link, &slash] {
        assert!(refusal(SafeDir::open(path)).contains("link is a symbolic link"));
    }
    lchown(&link, Some(0), None).unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o777)).unwrap();
    assert!(refusal(SafeDir::open(&link)).contains("link is a symbolic link"), "others may exchange it");
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    SafeDir::open(&link).expect("as in /tmp");
}
