//! Our own files that an interrupted pull left.

use std::io;
use std::time::{Duration, UNIX_EPOCH};

use safe_dir::SafeDir;

use super::has_name;

/// Calls `visit` with the name and size of each file that has not changed for longer than `age` and that no pull holds. The file is locked
/// meanwhile, so that no pull resumes it.
pub(super) fn for_each_forgotten(folder: &SafeDir, wall: Duration, age: Duration, mut visit: impl FnMut(&str, u64)) -> io::Result<()> {
    for name in folder.names()? {
        let Ok(file) = folder.open_file(&name) else { continue };
        let entry = file.metadata()?;
        let unchanged_for = |modified: std::time::SystemTime| wall.saturating_sub(modified.duration_since(UNIX_EPOCH).unwrap_or(wall));
        let is_old = entry.modified().is_ok_and(|modified| unchanged_for(modified) > age);
        if is_old && file.try_lock().is_ok() && has_name(&file, folder, &name)? {
            visit(&name, entry.len());
        }
    }
    Ok(())
}
