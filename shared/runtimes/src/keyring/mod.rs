//! Which credentials a pull uses: the node's files and helpers, matched and tried as kubelet does.
