//! containerd or CRI-O through CRI v1.
