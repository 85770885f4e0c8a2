//! Stores in folders that other users may write.
//!
//! Checks that no symlink below the store's root is followed, while those above it are; that root refuses a store that other users own or
//! may write, with advice; and that viewing a store changes nothing.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

use contract::FailureClass;
use image::Reference;
use memory_registry::MadeImage;
use runtimes::oci_layout::{OciLayout, StoreView, check_writable};
use runtimes::{ImageRuntime, Progress};

use crate::oci_support::{Node, options, registry, request};

fn open(folder: &Path) -> Result<OciLayout, String> {
    OciLayout::open(options(folder)).map_err(|error| error.to_string())
}

/// The state of every file below a folder that a write would change.
fn snapshot(folder: &Path) -> Vec<(PathBuf, u64, i64, i64)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let entry = fs::symlink_metadata(&folder).unwrap();
        if entry.is_dir() {
            folders.extend(fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()));
        }
        found.push((folder, entry.ino(), entry.ctime(), entry.ctime_nsec()));
    }
    found.sort();
    found
}

#[tokio::test]
async fn symlink_above_the_store_is_followed_and_below_is_refused() {
    let registry = registry().await;
    registry.add_image("app", "1", &MadeImage::of_layers([10_000]));
    let image = format!("{}/app:1", registry.host());
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("real")).unwrap();
    let above = folder.path().join("above");
    symlink(folder.path().join("real"), &above).unwrap();
    open(&above).unwrap().pull(request(&image, None), Progress::new()).await.unwrap();
    for name in [".fleetpull", ".fleetpull/partial", "blobs", "blobs/sha256"] {
        let (path, elsewhere) = (above.join("store").join(name), folder.path().join("elsewhere"));
        fs::rename(&path, &elsewhere).unwrap();
        symlink(&elsewhere, &path).unwrap();
        let before = snapshot(&elsewhere);
        let refused = open(&above).err().unwrap();
        assert!(refused.contains(&format!("store/{name} is a symbolic link")) && refused.contains("--store"), "{refused}");
        assert_eq!(snapshot(&elsewhere), before, "{name}");
        fs::remove_file(&path).unwrap();
        fs::rename(&elsewhere, &path).unwrap();
    }
}

/// The symlinks appear while the process runs, as from another user who may write the store's folder.
#[tokio::test]
async fn symlinked_files_are_not_written_through() {
    let registry = registry().await;
    let added = registry.add_image("app", "1", &MadeImage::of_layers([10_000]));
    let image = format!("{}/app:1", registry.host());
    let layer = added.manifests[0].layers[0].digest.replace(':', "-");
    for name in [format!(".fleetpull/partial/{layer}"), ".fleetpull/index.lock".to_owned(), "index.json".to_owned()] {
        let node = Node::new();
        let (path, precious) = (node.store().join(&name), node.folder.path().join("precious"));
        fs::write(&precious, "precious").unwrap();
        symlink(&precious, &path).unwrap();
        let before = snapshot(&precious);
        let failure = node.pull(&image).await.unwrap_err();
        assert_eq!(failure.class, FailureClass::NodeLocal);
        assert!(failure.text.contains(&format!("{name} is a symbolic link")), "{name}: {failure}");
        assert_eq!(snapshot(&precious), before, "{name}");
        fs::remove_file(&path).unwrap();
        node.pull(&image).await.unwrap();
    }
}

#[tokio::test]
async fn root_refuses_a_store_that_other_users_own_or_may_write() {
    let is_root = fs::metadata("/proc/self").unwrap().uid() == 0;
    let required = if is_root { Ok(()) } else { Err("folders of other users need root".to_owned()) };
    let Some(()) = support::requirement::met(required) else { return };
    let folder = tempfile::tempdir().unwrap();
    open(folder.path()).unwrap();
    for name in ["", ".fleetpull", ".fleetpull/partial", "blobs", "blobs/sha256"] {
        let path = folder.path().join("store").join(name);
        chown(&path, Some(1000), None).unwrap();
        let refused = open(folder.path()).err().unwrap();
        assert!(refused.contains("belongs to user 1000") && refused.contains("chown root") && refused.contains("--store"), "{refused}");
        chown(&path, Some(0), None).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o777)).unwrap();
        let refused = open(folder.path()).err().unwrap();
        assert!(refused.contains("others may write") && refused.contains("chmod go-w") && refused.contains("--store"), "{refused}");
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    }
    open(folder.path()).unwrap();
}

/// Who may open a lock's file may hold the lock, and so stop all pulls.
#[test]
fn other_users_cannot_open_the_files_of_locks() {
    let folder = tempfile::tempdir().unwrap();
    open(folder.path()).unwrap();
    assert_eq!(fs::metadata(folder.path().join("store/.fleetpull")).unwrap().mode() & 0o077, 0);
}

#[tokio::test]
async fn store_view_changes_nothing_and_finds_images() {
    let registry = registry().await;
    registry.add_image("app", "1", &MadeImage::of_layers([10_000]));
    let image = format!("{}/app:1", registry.host());
    let reference = Reference::parse(&image).unwrap();
    let node = Node::new();
    node.pull(&image).await.unwrap();
    let empty = tempfile::tempdir().unwrap();
    for (store, is_there) in [(node.store(), true), (empty.path().to_owned(), false)] {
        let before = snapshot(&store);
        let view = StoreView::open(&store).unwrap().expect("there is something");
        assert_eq!(view.image_status(&reference, None).unwrap().is_some(), is_there);
        check_writable(&store).unwrap();
        assert_eq!(snapshot(&store), before);
    }
    let missing = empty.path().join("a/b");
    assert!(StoreView::open(&missing).unwrap().is_none());
    check_writable(&missing).unwrap();
    assert!(!missing.exists());
    fs::create_dir_all(missing.join(".fleetpull")).unwrap();
    fs::write(missing.join(".fleetpull/pulls"), "").unwrap();
    assert!(check_writable(&missing).unwrap_err().to_string().contains("/pulls is no folder"));
    fs::write(empty.path().join("file"), "").unwrap();
    let text = check_writable(&empty.path().join("file/store")).unwrap_err().to_string();
    assert!(text.contains("/file is no folder") && text.contains("--store"), "{text}");
    assert!(check_writable(Path::new("/proc/1/x")).unwrap_err().to_string().contains("nothing can be made in /proc/1"));
}
