//! The limits of this process, which its tests inherit.

use anyhow::Context;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit of open files to this user's maximum. A test process runs whole fleets of agents and registries, which need more than
/// the usual 1,024; that default is meant for programs that still use `select`.
pub(crate) fn raise_open_files() -> anyhow::Result<()> {
    let may_have = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: may_have, maximum: may_have })
        .context("the number of open files cannot be raised; try `ulimit -n hard` and run this again")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_files_may_be_open_as_this_user_may_have() {
        raise_open_files().unwrap();
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
    }
}
